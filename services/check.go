package services

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/drain"
)

// Limits of the platform.
const (
	maxName = 255
	maxTags = 2048 // letters of all tags
	maxURL  = 2048
)

// What an offering may require.
const (
	requiresSyslog = "syslog_drain"
	requiresRoute  = "route_forwarding"
	requiresVolume = "volume_mount"
)

func checkName(name string) error {
	switch {
	case strings.TrimSpace(name) == "":
		return invalid("name", "Name can't be blank")
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return invalid("name", "Name must be printable text")
	case utf8.RuneCountInString(name) > maxName:
		return invalid("name", "You have requested an invalid service instance name. Names are limited to %d characters.", maxName)
	}
	return nil
}

func checkTags(name string, tags []string) error {
	if utf8.RuneCountInString(strings.Join(tags, "")) > maxTags {
		return invalid("tags", "Combined length of tags for service %s must be %d characters or less.", name, maxTags)
	}
	return nil
}

// drainSchemes says which URLs of log drains are allowed.
const drainSchemes = "must be a URL with the scheme syslog, syslog-tls, https or https-batch"

// checkDrain checks the URL of a log drain.
func checkDrain(address string) error {
	if address != "" && drain.CheckURL(address) != nil {
		return invalid("syslog_drain_url", "Syslog drain url %s", drainSchemes)
	}
	return nil
}

// checkRouteService checks where requests may be sent.
func checkRouteService(service string) error {
	if service == "" {
		return nil
	}
	u, err := url.Parse(service)
	switch {
	case err != nil || u.Hostname() == "" || strings.HasPrefix(u.Host, ".") || len(service) > maxURL:
		return invalid("route_service_url", "Route service url must be a valid URI")
	case u.Scheme != "https":
		return invalid("route_service_url", "Route service url must be https")
	}
	return nil
}

// checkBinding tells whether there may be a binding, and returns its instance.
// Attempts of the same kind that failed before are dropped.
func (tx bindingRecords) checkBinding(n NewBinding) (Instance, error) {
	i, err := tx.instance(n.Instance)
	if errors.Is(err, ErrNotFound) {
		return i, invalid("relationships.service_instance", "The service instance could not be found: '%s'", n.Instance)
	}
	if err != nil {
		return i, err
	}
	if err := n.Metadata.Validate(); err != nil {
		return i, err
	}
	if utf8.RuneCountInString(n.Name) > maxName || !utf8.ValidString(n.Name) || strings.ContainsFunc(n.Name, unicode.IsControl) {
		return i, invalid("name", "Name must be printable text of at most %d characters", maxName)
	}
	switch n.Type {
	case AppBinding:
		return i, tx.checkAppBinding(i, n)
	case KeyBinding:
		return i, tx.checkKey(i, n)
	case RouteBinding:
		return i, tx.checkRouteBinding(i, n)
	}
	return i, invalid("type", "Type must be 'app' or 'key'")
}

// checkBindable checks the state and the plan of an instance.
func (tx bindingRecords) checkBindable(i Instance) error {
	if i.Type == UserProvided {
		return nil
	}
	p, err := tx.plan(i.Plan)
	switch {
	case err != nil:
		return err
	case !p.Bindable:
		return invalid("relationships.service_instance", "Service plan does not allow bindings.")
	case i.Last.Is(Create, Failed):
		return invalid("relationships.service_instance", "Service instance not found")
	case i.Last.Busy():
		return invalid("relationships.service_instance", "There is an operation in progress for the service instance")
	}
	return nil
}

func (tx bindingRecords) checkAppBinding(i Instance, n NewBinding) error {
	a, err := tx.registry.App(n.App)
	if errors.Is(err, app.ErrNotFound) {
		return invalid("relationships.app", "The app could not be found: '%s'", n.App)
	}
	if err != nil {
		return err
	}
	if !i.availableIn(a.Space) {
		return invalid("relationships.app", "The service instance and the app are in different spaces")
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

// checkOtherBinding tells whether there may be another binding of an app beside bi.
func (tx bindingRecords) checkOtherBinding(bi Binding, i Instance, n NewBinding) error {
	if bi.Instance != i.GUID {
		if n.Name != "" && bi.Name == n.Name {
			return invalid("name", "The binding name is invalid. Binding names must be unique for a given service instance and app. The app already has a binding with name '%s'.", n.Name)
		}
		return nil
	}
	switch {
	case bi.Last.Is(Create, Failed):
		return tx.replaceFailedBinding(bi)
	case bi.Last.Type == Delete:
		return invalid("relationships.app", "The binding is getting deleted or its deletion failed")
	case !n.Multiple:
		return invalid("relationships.app", "The app is already bound to the service instance")
	case bi.Last.Busy():
		return invalid("relationships.app", "There is already a binding in progress for this service instance and app (binding guid: %s)", bi.GUID)
	case bi.Name != n.Name:
		return invalid("name", "The binding name cannot be changed for the same app and service instance")
	}
	return nil
}

func (tx bindingRecords) checkKey(i Instance, n NewBinding) error {
	if i.Type == UserProvided {
		return invalid("type", "Service credential bindings of type 'key' are not supported for user-provided service instances.")
	}
	if strings.TrimSpace(n.Name) == "" {
		return invalid("name", "Name can't be blank")
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
		case bi.Type != KeyBinding || bi.Name != n.Name:
		case bi.Last.Is(Create, Failed):
			if err := tx.replaceFailedBinding(bi); err != nil {
				return err
			}
		case bi.Last.Type == Delete:
			return invalid("name", taken+"the name '%s' that is getting deleted or its deletion failed.", n.Name)
		default:
			return invalid("name", taken+"name '%s'.", n.Name)
		}
	}
	return nil
}

func (tx bindingRecords) checkRouteBinding(i Instance, n NewBinding) error {
	rt, err := tx.registry.Route(n.Route)
	if errors.Is(err, app.ErrNotFound) {
		return invalid("relationships.route", "The route could not be found: %s", n.Route)
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
		return invalid("relationships.service_instance", "This service instance does not support route binding")
	case d.Internal:
		return invalid("relationships.route", "Route services cannot be bound to internal routes")
	case rt.Space != i.Space:
		return invalid("relationships.route", "The service instance and the route are in different spaces")
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

func (tx bindingRecords) checkOtherRouteBinding(bi Binding, i Instance) error {
	switch {
	case bi.Last.Is(Create, Failed):
		return tx.replaceFailedBinding(bi)
	case bi.Instance != i.GUID:
		return invalid("relationships.route", "A route may only be bound to a single service instance")
	case bi.Last.Type == Delete:
		return invalid("relationships.route", "The binding is getting deleted or its deletion failed")
	}
	return &Refused{
		Status: http.StatusUnprocessableEntity, Code: 130008, Title: "CF-ServiceInstanceAlreadyBoundToSameRoute",
		Detail: "The route and service instance are already bound.",
	}
}

// isRouteService tells whether requests may go through an instance.
func (tx bindingRecords) isRouteService(i Instance) (bool, error) {
	if i.Type == UserProvided {
		return i.RouteService != "", nil
	}
	p, err := tx.plan(i.Plan)
	if err != nil {
		return false, err
	}
	of, err := tx.offering(p.Offering)
	return slices.Contains(of.Requires, requiresRoute), err
}

// replaceFailedBinding makes room for a binding where an earlier attempt failed, and has taken
// back what that may have left.
func (tx bindingRecords) replaceFailedBinding(bi Binding) error {
	if err := tx.cancelOperations(bi.GUID, "the binding was created anew"); err != nil {
		return err
	}
	op, err := tx.bindingOperation(bi, Delete, app.Actor{})
	if err != nil {
		return err
	}
	op.Orphan = true
	if _, err := tx.beginOperation(op); err != nil {
		return err
	}
	return drop(tx.bindings, "binding", bi.GUID)
}

// isRefusal tells an error that a user can do something about.
func isRefusal(err error) bool { return isA[*Invalid](err) || isA[*Refused](err) }

func isA[T error](err error) bool {
	var e T
	return errors.As(err, &e)
}

// brokerRefusal is what a client reads when a broker does not answer well.
func brokerRefusal(err error) error {
	return &Refused{Status: http.StatusBadGateway, Code: 10001, Title: "CF-ServiceBrokerBadResponse", Detail: err.Error()}
}
