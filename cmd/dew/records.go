package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

// aRecord is what the help says of things that nothing comes of on one machine.
const aRecord = "It is a record: kept and shown, and nothing is refused, filtered or placed by it."

// findOne finds one of a kind by name; the error offers a name that is near.
func findOne[T any](ctx context.Context, k client.Kind[T], name string, ask *client.Client) (T, error) {
	one, err := k.ByName(ctx, ask, name)
	if !isMissing(err) {
		return one, err
	}
	all, lerr := k.List(ctx, ask)
	if lerr != nil {
		return one, lerr
	}
	return one, hint(err, name, all, k.Name)
}

// createOne makes one of a kind; one that is there already is fine.
func createOne[T any](ctx context.Context, k client.Kind[T], name string, body any, w where) error {
	_, err := k.Create(ctx, w.ask, body)
	if isTaken(err) {
		w.out.Say("%s %s exists already", console.Capitalize(k.Noun), name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot create %s %s: %w", k.Noun, name, err)
	}
	w.out.Say("Created %s %s", k.Noun, name)
	return nil
}

// deleteOne deletes one of a kind; one that is not there is fine.
func deleteOne[T any](ctx context.Context, k client.Kind[T], o deleteOptions, w where) error {
	if ok, err := console.ConfirmUnless(ctx, w.out, o.Force, "Delete "+k.Noun+" "+o.Name); err != nil || !ok {
		return err
	}
	one, err := k.ByName(ctx, w.ask, o.Name)
	if isMissing(err) {
		w.out.Say("There is no %s %s", k.Noun, o.Name)
		return nil
	}
	if err != nil {
		return err
	}
	if err := k.Delete(ctx, w.ask, k.GUID(one)); err != nil {
		return fmt.Errorf("cannot delete %s %s: %w", k.Noun, o.Name, err)
	}
	w.out.Say("Deleted %s %s", k.Noun, o.Name)
	return nil
}

// places are the orgs and spaces by guid.
type places struct {
	orgs   map[string]string
	spaces map[string]place
}

// space is the name of a space; of one that is not seen it is the guid.
func (p places) space(guid string) string { return cmp.Or(p.spaces[guid].Space, guid) }

func readPlaces(ctx context.Context, ask *client.Client) (places, error) {
	p := places{orgs: map[string]string{}, spaces: map[string]place{}}
	orgs, err := ask.Orgs().List(ctx)
	if err != nil {
		return p, err
	}
	for _, o := range orgs {
		p.orgs[o.GUID] = o.Name
	}
	spaces, err := ask.Orgs().Spaces(ctx)
	if err != nil {
		return p, err
	}
	for _, s := range spaces {
		org := s.Relationships.Organization.ID()
		p.spaces[s.GUID] = placeOf(v3.Organization{GUID: org, Name: p.orgs[org]}, s)
	}
	return p, nil
}
