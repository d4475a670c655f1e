package platform

import (
	"context"
	"fmt"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// findOne finds a resource by name. If there is none, the error suggests the nearest
// name.
func findOne[T any](ctx context.Context, k client.Kind[T], name string, api *client.Client) (T, error) {
	one, err := k.ByName(ctx, api, name)
	if !command.IsMissing(err) {
		return one, err
	}
	all, lerr := k.List(ctx, api)
	if lerr != nil {
		return one, lerr
	}
	return one, command.SuggestNearest(err, name, all, k.Name)
}

// createOne creates a resource. It succeeds if the resource already exists.
func createOne[T any](ctx context.Context, k client.Kind[T], name string, body any, w command.Env) error {
	_, err := k.Create(ctx, w.Client, body)
	if command.AlreadyExists(err) {
		w.Out.Say("%s %s already exists", console.Capitalize(k.Noun), name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot create %s %s: %w", k.Noun, name, err)
	}
	w.Out.Say("Created %s %s", k.Noun, name)
	return nil
}

// deleteOne deletes a resource. It succeeds if the resource does not exist.
func deleteOne[T any](ctx context.Context, k client.Kind[T], o command.DeleteOptions, w command.Env) error {
	if ok, err := console.ConfirmUnless(ctx, w.Out, o.Force, "Delete "+k.Noun+" "+o.Name); err != nil || !ok {
		return err
	}
	one, err := k.ByName(ctx, w.Client, o.Name)
	if command.IsMissing(err) {
		w.Out.Say("%s %s does not exist", console.Capitalize(k.Noun), o.Name)
		return nil
	}
	if err != nil {
		return err
	}
	if err := k.Delete(ctx, w.Client, k.GUID(one)); err != nil {
		return fmt.Errorf("cannot delete %s %s: %w", k.Noun, o.Name, err)
	}
	w.Out.Say("Deleted %s %s", k.Noun, o.Name)
	return nil
}
