package platform

import (
	"context"
	"fmt"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// noEffectNote is what the help says of things that nothing comes of on one machine.
const noEffectNote = "It is a record: kept and shown, and nothing is refused, filtered or placed by it."

// findOne finds one of a kind by name; the error offers a name that is near.
func findOne[T any](ctx context.Context, k client.Kind[T], name string, ask *client.Client) (T, error) {
	one, err := k.ByName(ctx, ask, name)
	if !command.IsMissing(err) {
		return one, err
	}
	all, lerr := k.List(ctx, ask)
	if lerr != nil {
		return one, lerr
	}
	return one, command.SuggestNearest(err, name, all, k.Name)
}

// createOne makes one of a kind; one that is there already is fine.
func createOne[T any](ctx context.Context, k client.Kind[T], name string, body any, w command.Env) error {
	_, err := k.Create(ctx, w.Client, body)
	if command.AlreadyExists(err) {
		w.Out.Say("%s %s exists already", console.Capitalize(k.Noun), name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot create %s %s: %w", k.Noun, name, err)
	}
	w.Out.Say("Created %s %s", k.Noun, name)
	return nil
}

// deleteOne deletes one of a kind; one that is not there is fine.
func deleteOne[T any](ctx context.Context, k client.Kind[T], o command.DeleteOptions, w command.Env) error {
	if ok, err := console.ConfirmUnless(ctx, w.Out, o.Force, "Delete "+k.Noun+" "+o.Name); err != nil || !ok {
		return err
	}
	one, err := k.ByName(ctx, w.Client, o.Name)
	if command.IsMissing(err) {
		w.Out.Say("There is no %s %s", k.Noun, o.Name)
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
