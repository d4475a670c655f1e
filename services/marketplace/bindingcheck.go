package marketplace

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/services"
)

// checkBinding checks whether a binding can be created, and returns its instance. It
// drops earlier attempts of the same kind that failed.
func (tx bindingRecords) checkBinding(n services.NewBinding) (services.Instance, error) {
	i, err := tx.instance(n.Instance)
	if errors.Is(err, services.ErrNotFound) {
		return i, services.NewInvalid("relationships.service_instance", "The service instance could not be found: '%s'", n.Instance)
	}
	if err != nil {
		return i, err
	}
	if err := n.Metadata.Validate(); err != nil {
		return i, err
	}
	if utf8.RuneCountInString(n.Name) > services.MaxName || !utf8.ValidString(n.Name) || strings.ContainsFunc(n.Name, unicode.IsControl) {
		return i, services.NewInvalid("name", "Name must be valid UTF-8 without control characters and have at most %d characters", services.MaxName)
	}
	switch n.Type {
	case services.AppBinding:
		return i, tx.checkAppBinding(i, n)
	case services.KeyBinding:
		return i, tx.checkKey(i, n)
	case services.RouteBinding:
		return i, tx.checkRouteBinding(i, n)
	}
	return i, services.NewInvalid("type", "Type must be 'app' or 'key'")
}

// checkBindable checks the state and the plan of an instance.
func (tx bindingRecords) checkBindable(i services.Instance) error {
	if i.Type == services.UserProvided {
		return nil
	}
	p, err := tx.plan(i.Plan)
	switch {
	case err != nil:
		return err
	case !p.Bindable:
		return services.NewInvalid("relationships.service_instance", "Service plan does not allow bindings.")
	case i.Last.Is(services.Create, services.Failed):
		return services.NewInvalid("relationships.service_instance", "Service instance not found")
	case i.Last.Busy():
		return services.NewInvalid("relationships.service_instance", "There is an operation in progress for the service instance")
	}
	return nil
}

func (tx bindingRecords) checkAppBinding(i services.Instance, n services.NewBinding) error {
	a, err := tx.registry.App(n.App)
	if errors.Is(err, app.ErrNotFound) {
		return services.NewInvalid("relationships.app", "The app could not be found: '%s'", n.App)
	}
	if err != nil {
		return err
	}
	if !i.AvailableIn(a.Space) {
		return services.NewInvalid("relationships.app", "The service instance and the app are in different spaces")
	}
	if err := tx.checkBindable(i); err != nil {
		return err
	}
	bs, err := tx.bindings.By("app", n.App)
	if err != nil {
		return fmt.Errorf("cannot list bindings: %w", err)
	}
	for _, bi := range bs {
		if err := tx.checkOtherBinding(bi, i, n); err != nil {
			return err
		}
	}
	return nil
}

// checkOtherBinding checks whether an app can have a new binding in addition to bi.
func (tx bindingRecords) checkOtherBinding(bi services.Binding, i services.Instance, n services.NewBinding) error {
	if bi.Instance != i.GUID {
		if n.Name != "" && bi.Name == n.Name {
			return services.NewInvalid("name", "The binding name is invalid. Binding names must be unique for a given service instance and app. The app already has a binding with name '%s'.", n.Name)
		}
		return nil
	}
	switch {
	case bi.Last.Is(services.Create, services.Failed):
		return tx.replaceFailedBinding(bi)
	case bi.Last.Type == services.Delete:
		return services.NewInvalid("relationships.app", "The binding is getting deleted or its deletion failed")
	case !n.Multiple:
		return services.NewInvalid("relationships.app", "The app is already bound to the service instance")
	case bi.Last.Busy():
		return services.NewInvalid("relationships.app", "There is already a binding in progress for this service instance and app (binding guid: %s)", bi.GUID)
	case bi.Name != n.Name:
		return services.NewInvalid("name", "The binding name cannot be changed for the same app and service instance")
	}
	return nil
}

func (tx bindingRecords) checkKey(i services.Instance, n services.NewBinding) error {
	if i.Type == services.UserProvided {
		return services.NewInvalid("type", "Service credential bindings of type 'key' are not supported for user-provided service instances.")
	}
	if strings.TrimSpace(n.Name) == "" {
		return services.NewInvalid("name", "Name can't be blank")
	}
	if err := tx.checkBindable(i); err != nil {
		return err
	}
	bs, err := tx.bindings.By("instance", i.GUID)
	if err != nil {
		return fmt.Errorf("cannot list bindings: %w", err)
	}
	const taken = "The binding name is invalid. Key binding names must be unique. The service instance already has a key binding with "
	for _, bi := range bs {
		switch {
		case bi.Type != services.KeyBinding || bi.Name != n.Name:
		case bi.Last.Is(services.Create, services.Failed):
			if err := tx.replaceFailedBinding(bi); err != nil {
				return err
			}
		case bi.Last.Type == services.Delete:
			return services.NewInvalid("name", taken+"the name '%s' that is getting deleted or its deletion failed.", n.Name)
		default:
			return services.NewInvalid("name", taken+"name '%s'.", n.Name)
		}
	}
	return nil
}

func (tx bindingRecords) checkRouteBinding(i services.Instance, n services.NewBinding) error {
	rt, err := tx.registry.Route(n.Route)
	if errors.Is(err, app.ErrNotFound) {
		return services.NewInvalid("relationships.route", "The route could not be found: %s", n.Route)
	}
	if err != nil {
		return err
	}
	d, err := tx.registry.Domain(rt.Domain)
	if err != nil {
		return err
	}
	serves, err := tx.isRouteService(i)
	switch {
	case err != nil:
		return err
	case !serves:
		return services.NewInvalid("relationships.service_instance", "This service instance does not support route binding")
	case d.Internal:
		return services.NewInvalid("relationships.route", "Route services cannot be bound to internal routes")
	case rt.Space != i.Space:
		return services.NewInvalid("relationships.route", "The service instance and the route are in different spaces")
	}
	if err := tx.checkBindable(i); err != nil {
		return err
	}
	bs, err := tx.bindings.By("route", n.Route)
	if err != nil {
		return fmt.Errorf("cannot list bindings: %w", err)
	}
	for _, bi := range bs {
		if err := tx.checkOtherRouteBinding(bi, i); err != nil {
			return err
		}
	}
	return nil
}

func (tx bindingRecords) checkOtherRouteBinding(bi services.Binding, i services.Instance) error {
	switch {
	case bi.Last.Is(services.Create, services.Failed):
		return tx.replaceFailedBinding(bi)
	case bi.Instance != i.GUID:
		return services.NewInvalid("relationships.route", "A route may only be bound to a single service instance")
	case bi.Last.Type == services.Delete:
		return services.NewInvalid("relationships.route", "The binding is getting deleted or its deletion failed")
	}
	return &services.Refused{
		Status: http.StatusUnprocessableEntity, Code: 130008, Title: "CF-ServiceInstanceAlreadyBoundToSameRoute",
		Detail: "The route and service instance are already bound.",
	}
}

// isRouteService reports whether an instance can handle the requests of a route.
func (tx bindingRecords) isRouteService(i services.Instance) (bool, error) {
	if i.Type == services.UserProvided {
		return i.RouteService != "", nil
	}
	p, err := tx.plan(i.Plan)
	if err != nil {
		return false, err
	}
	of, err := tx.offering(p.Offering)
	return slices.Contains(of.Requires, services.RequiresRoute), err
}

// replaceFailedBinding drops the record of an earlier failed attempt, so that a new
// binding can replace it. It starts the deletion of anything the failed attempt left at
// the broker.
func (tx bindingRecords) replaceFailedBinding(bi services.Binding) error {
	if err := tx.cancelOperations(bi.GUID, "the binding was created again"); err != nil {
		return err
	}
	op, err := tx.bindingOperation(bi, services.Delete, app.Actor{})
	if err != nil {
		return err
	}
	op.Orphan = true
	if _, err := tx.beginOperation(op); err != nil {
		return err
	}
	return drop(tx.bindings, "binding", bi.GUID)
}
