package platform

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/services/marketplace"
)

// Limits of how long a job waits for a broker. If a broker takes longer, the job stops
// waiting, and the operation continues.
const (
	brokerTimeout = 15 * time.Minute
	pollInterval  = 100 * time.Millisecond
)

// ServiceBindings binds apps to the services that their manifest names, and deletes the
// services and bindings of apps and spaces. It waits for the brokers.
type ServiceBindings struct {
	registry *registry.Registry
	market   *marketplace.Marketplace
	explain  func(error) (status int, body v3.Errors)
}

// ServiceBindings returns the service bindings of all apps.
func (p *Platform) ServiceBindings() ServiceBindings {
	return ServiceBindings{registry: p.Registry, market: p.Services, explain: p.Explain}
}

// check refuses a manifest with services that do not exist, before any of it is
// applied.
func (sb ServiceBindings) check(space string, m app.Manifest) error {
	for _, a := range m.Applications {
		for _, want := range a.Services {
			_, err := sb.market.InstanceIn(space, want.Name)
			if errors.Is(err, services.ErrNotFound) {
				return forApplication(a.Name, "Service instance '%s' not found", want.Name)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func forApplication(name, format string, args ...any) error {
	return &app.JobError{
		Code: v3.CodeUnprocessable, Title: v3.TitleUnprocessable,
		Detail: fmt.Sprintf("For application '%s': ", name) + fmt.Sprintf(format, args...),
	}
}

// bind binds the apps of a manifest to their services, and waits until all are bound.
// Existing bindings stay unchanged.
func (sb ServiceBindings) bind(ctx context.Context, args Application, m app.Manifest) error {
	ctx, cancel := context.WithTimeoutCause(ctx, brokerTimeout, errBrokerTimeout)
	defer cancel()
	for _, ma := range m.Applications {
		if len(ma.Services) == 0 {
			continue
		}
		a, err := sb.registry.AppIn(args.Space, ma.Name)
		if err != nil {
			return err
		}
		for _, want := range ma.Services {
			if err := sb.bindOne(ctx, a, want, args.Actor); err != nil {
				return sb.explainError(ctx, a.Name, want.Name, err)
			}
		}
	}
	return nil
}

var errBrokerTimeout = fmt.Errorf("the service broker has not responded within %s; dewd keeps polling it: try again later", brokerTimeout)

// explainError returns the reason why an app was not bound. If the daemon stops, it
// returns err unchanged.
func (sb ServiceBindings) explainError(ctx context.Context, appName, service string, err error) error {
	why := context.Cause(ctx)
	switch {
	case errors.Is(why, errBrokerTimeout):
		err = why
	case why != nil:
		return err
	}
	if status, said := sb.explain(err); status < 500 {
		return forApplication(appName, "For service '%s': %s", service, said.Errors[0].Detail)
	}
	return forApplication(appName, "For service '%s': %v", service, err)
}

func (sb ServiceBindings) bindOne(ctx context.Context, a app.App, want app.ManifestService, by app.Actor) error {
	i, err := sb.market.InstanceIn(a.Space, want.Name)
	if err != nil {
		return err
	}
	bound, err := sb.market.Bindings(services.BindingFilter{
		Apps: []string{a.GUID}, Instances: []string{i.GUID}, Types: []services.BindingType{services.AppBinding},
	})
	if err != nil {
		return err
	}
	for _, b := range bound {
		if !b.Last.Is(services.Create, services.Failed) {
			return sb.settled(ctx, b.GUID)
		}
	}
	_, o, err := sb.market.CreateBinding(services.NewBinding{
		Type: services.AppBinding, Name: want.BindingName, Instance: i.GUID, App: a.GUID, Parameters: want.Parameters, By: by,
	})
	if err != nil {
		return err
	}
	return sb.await(ctx, o)
}

// await waits for an operation, and returns the reason if it failed.
func (sb ServiceBindings) await(ctx context.Context, o services.Operation) error {
	if o.GUID == "" {
		return nil
	}
	o, err := sb.market.Wait(ctx, o.GUID, services.Operation.Ended)
	if err != nil {
		return err
	}
	if o.State == services.Failed {
		f := FailureOf(o)
		return &app.JobError{Code: f.Code, Title: f.Title, Detail: f.Detail}
	}
	return nil
}

// settled waits until an operation from an earlier run of the job is finished. It polls
// the binding, because the operation's name is no longer known.
func (sb ServiceBindings) settled(ctx context.Context, binding string) error {
	t := time.NewTicker(pollInterval)
	defer t.Stop()
	for {
		b, err := sb.market.Binding(binding)
		if err != nil {
			return err
		}
		if b.Last.Is(services.Create, services.Failed) {
			return Refuse("%s", b.Last.Description)
		}
		if !b.Last.Busy() {
			return nil
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Diff returns the services of a manifest that would be bound.
func (sb ServiceBindings) Diff(space string, m app.Manifest) ([]v3.Difference, error) {
	var out []v3.Difference
	for n, ma := range m.Applications {
		bound, err := sb.boundNames(space, ma.Name)
		if err != nil {
			return nil, err
		}
		for i, want := range ma.Services {
			if !slices.Contains(bound, want.Name) {
				out = append(out, v3.Difference{Op: "add", Path: fmt.Sprintf("/applications/%d/services/%d", n, i), Value: want.Name})
			}
		}
	}
	return out, nil
}

// boundNames returns the names of the services that an app is bound to, if the app
// exists.
func (sb ServiceBindings) boundNames(space, name string) ([]string, error) {
	a, err := sb.registry.AppIn(space, name)
	if errors.Is(err, app.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := sb.InManifest(a.GUID)
	names := make([]string, len(all))
	for i, m := range all {
		names[i] = m.Name
	}
	return names, err
}

// InManifest returns the services of an app for a manifest. They have no parameters,
// because only the broker stores those.
func (sb ServiceBindings) InManifest(appGUID string) ([]app.ManifestService, error) {
	all, err := sb.market.Bindings(services.BindingFilter{Apps: []string{appGUID}, Types: []services.BindingType{services.AppBinding}})
	if err != nil {
		return nil, err
	}
	var out []app.ManifestService
	for _, b := range all {
		i, err := sb.market.Instance(b.Instance)
		if IsNotFound(err) || b.Last.Is(services.Create, services.Failed) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, app.ManifestService{Name: i.Name, BindingName: b.Name})
	}
	return out, nil
}

// unbind deletes an app's bindings. It runs before the app is deleted, because services
// can store data for each binding.
func (sb ServiceBindings) unbind(ctx context.Context, appGUID string) error {
	return sb.deleteUntilNone(ctx, func() ([]services.Operation, error) { return sb.market.UnbindApp(appGUID, ActorOf(ctx)) })
}

// clear deletes the service instances of a space, and the bindings of its apps.
func (sb ServiceBindings) clear(ctx context.Context, space string) error {
	apps, err := sb.registry.AppsIn(space)
	if err != nil {
		return err
	}
	// An error in one of them does not stop the deletion of the others.
	var errs []error
	for _, a := range apps {
		errs = append(errs, sb.unbind(ctx, a.GUID))
	}
	errs = append(errs, sb.deleteUntilNone(ctx, func() ([]services.Operation, error) { return sb.market.DeleteIn(space, ActorOf(ctx)) }))
	return errors.Join(errs...)
}

// maxRounds limits how often new operations can start while everything is deleted.
const maxRounds = 10

// deleteUntilNone starts deletions and waits for them, until nothing is left. An
// operation in progress, such as a creation, must finish before its resource can be
// deleted.
func (sb ServiceBindings) deleteUntilNone(ctx context.Context, begin func() ([]services.Operation, error)) error {
	for range maxRounds {
		os, err := begin()
		if err != nil || len(os) == 0 {
			return err
		}
		if err := sb.awaitAll(ctx, os); err != nil {
			return err
		}
	}
	return Refuse("New services or bindings keep appearing. Try again once nothing is being created")
}

func (sb ServiceBindings) awaitAll(ctx context.Context, os []services.Operation) error {
	bounded, cancel := context.WithTimeoutCause(ctx, brokerTimeout, errBrokerTimeout)
	defer cancel()
	var errs []error
	for _, o := range os {
		err := sb.await(bounded, o)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if bounded.Err() != nil {
			return Refuse("%s: %v", sb.subject(o), errBrokerTimeout)
		}
		if o.Action != services.Delete && isA[*app.JobError](err) {
			continue // it blocked the deletion, and has finished
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", sb.subject(o), err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// subject returns a name for the resource of an operation.
func (sb ServiceBindings) subject(o services.Operation) string {
	instance := o.Record
	if b, err := sb.market.Binding(o.Record); o.Kind == services.OfBinding && err == nil {
		instance = b.Instance
	}
	i, err := sb.market.Instance(instance)
	if err != nil {
		return fmt.Sprintf("%s %s", o.Kind, o.Record) // it was deleted since
	}
	return "Service instance " + i.Name
}
