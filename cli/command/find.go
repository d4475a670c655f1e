package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
	"github.com/dewrun/dew/spelling"
)

// DeleteOptions are the arguments of commands that delete something.
type DeleteOptions struct {
	Name   string
	Force  bool
	Routes bool
}

// Nearest is the candidate that is most similar to asked; empty if none is similar.
func Nearest(given string, candidates []string) string { return spelling.Nearest(given, candidates) }

// FindApp finds an app by name. The error suggests the nearest name.
func FindApp(ctx context.Context, api *client.Client, name string) (v3.App, error) {
	a, err := api.Apps().ByName(ctx, name)
	missing := (*client.NoApp)(nil)
	if !errors.As(err, &missing) {
		return a, err
	}
	all, lerr := api.Apps().List(ctx)
	if lerr != nil {
		return a, lerr
	}
	return a, SuggestNearest(missing, name, all, func(a v3.App) string { return a.Name })
}

// SuggestNearest adds the nearest existing name to the error about a missing one.
func SuggestNearest[T any](missing error, name string, all []T, nameOf func(T) string) error {
	names := make([]string, len(all))
	for i, one := range all {
		names[i] = nameOf(one)
	}
	if near := Nearest(name, names); near != "" {
		return &console.Failure{Status: console.StatusFailed, Err: missing, Advice: fmt.Sprintf("did you mean %q?", near)}
	}
	return missing
}

// SpaceGUID is the guid of the targeted space.
func SpaceGUID(ctx context.Context, api *client.Client) (string, error) { return api.SpaceGUID(ctx) }

// FindOrg finds an org by name. Without a name it is the targeted org, or the one that
// the daemon created at its first start.
func FindOrg(ctx context.Context, w Env, name string) (v3.Organization, error) {
	if name == "" && w.Target.OrgGUID != "" {
		return v3.Organization{GUID: w.Target.OrgGUID, Name: w.Target.Org}, nil
	}
	given := name
	if given == "" {
		given = firstOrg
	}
	o, err := w.Client.Orgs().ByName(ctx, given)
	switch {
	case !IsMissing(err):
		return o, err
	case name == "":
		return o, &console.Failure{Status: console.StatusFailed, Err: errors.New("no org is targeted"), Advice: "Target one: dew target -o ORG (dew orgs lists them)"}
	}
	all, lerr := w.Client.Orgs().List(ctx)
	if lerr != nil {
		return o, lerr
	}
	return o, SuggestNearest(err, name, all, func(o v3.Organization) string { return o.Name })
}

// FindDomain finds a domain by name. The error suggests the nearest name.
func FindDomain(ctx context.Context, api *client.Client, name string) (v3.Domain, error) {
	d, err := api.Routes().DomainByName(ctx, name)
	if !IsMissing(err) {
		return d, err
	}
	all, lerr := api.Routes().Domains(ctx)
	if lerr != nil {
		return d, lerr
	}
	return d, SuggestNearest(err, name, all, func(d v3.Domain) string { return d.Name })
}

// FindService finds a service instance by name. The error suggests the nearest name.
func FindService(ctx context.Context, api *client.Client, name string) (v3.ServiceInstance, error) {
	i, err := api.Services().ByName(ctx, name)
	if !IsMissing(err) {
		return i, err
	}
	all, lerr := api.Services().List(ctx)
	if lerr != nil {
		return i, lerr
	}
	return i, SuggestNearest(err, name, all, func(i v3.ServiceInstance) string { return i.Name })
}

// SpaceOptions are the arguments of commands about one space.
type SpaceOptions struct {
	Name  string
	Org   string // name; empty: the targeted one
	Quota string // name of the quota of a new space
	Rules bool   // show the rules of its security groups
	GUID  bool   // show only the guid
	Force bool
}

// FindSpace finds a space of an org by name. The error suggests the nearest name.
func FindSpace(ctx context.Context, w Env, org v3.Organization, name string) (v3.Space, error) {
	s, err := w.Client.Orgs().SpaceByName(ctx, org.GUID, name)
	if !IsMissing(err) {
		return s, err
	}
	all, lerr := w.Client.Orgs().SpacesOf(ctx, org.GUID)
	if lerr != nil {
		return s, lerr
	}
	err = fmt.Errorf("%w in org %s", err, org.Name)
	return s, SuggestNearest(err, name, all, func(s v3.Space) string { return s.Name })
}

// Find finds the org and the space that the options name.
func (o SpaceOptions) Find(ctx context.Context, w Env) (v3.Organization, v3.Space, error) {
	org, err := FindOrg(ctx, w, o.Org)
	if err != nil {
		return org, v3.Space{}, err
	}
	s, err := FindSpace(ctx, w, org, o.Name)
	return org, s, err
}
