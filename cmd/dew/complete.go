package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
)

// completer offers what may stand at the next place of a command line: names of
// what the argument or the flag is called after, and flags.
func (g *global) completer(v verb) cli.BashCompleteFunc {
	words := strings.Fields(v.args)
	return func(c *cli.Context) {
		kind := g.flagAtEnd(v)
		if n := c.NArg(); kind == "" && n < len(words) {
			kind = strings.Trim(words[n], "[]")
		}
		names := g.names(c.Context, v, kind)
		if kind == "KEY" || kind == "SNAPSHOT" {
			names = g.ofService(c.Context, c.Args().First(), kind)
		}
		for _, name := range names {
			fmt.Fprintln(c.App.Writer, name)
		}
		cli.DefaultCompleteWithFlags(c.Command)(c)
	}
}

// flagAtEnd is what the flag that waits for its value wants, if the line ends
// with one.
func (g *global) flagAtEnd(v verb) string {
	if len(g.typed) < 2 {
		return ""
	}
	last := g.typed[len(g.typed)-2]
	if v.category == servicesCategory || v.category == brokersCategory {
		if kind := map[string]string{"-b": "BROKER", "-e": "OFFERING", "--service-instance": "SERVICE_INSTANCE"}[last]; kind != "" {
			return kind
		}
	}
	return map[string]string{"-o": "ORG", "-s": "SPACE", "--org": "ORG", "--space": "SPACE", "--service": "SERVICE_INSTANCE"}[last]
}

// names are the names of a kind. A daemon that is not there has none to offer.
func (g *global) names(ctx context.Context, v verb, kind string) []string {
	if kind == "ROLE" {
		return roleNames(strings.Contains(v.args, "SPACE"))
	}
	d, err := g.door()
	if err != nil {
		return nil
	}
	ask, err := g.open(d)
	if err != nil {
		return nil
	}
	switch kind {
	case "APP":
		apps, _ := ask.Apps(ctx)
		return namesOf(apps, func(a v3.App) string { return a.Name })
	case "ORG":
		orgs, _ := ask.Organizations(ctx)
		return namesOf(orgs, func(o v3.Organization) string { return o.Name })
	case "SPACE":
		o, err := findOrg(ctx, where{door: d, ask: ask}, "")
		if err != nil {
			return nil
		}
		spaces, _ := ask.SpacesOf(ctx, o.GUID)
		return namesOf(spaces, func(s v3.Space) string { return s.Name })
	case "SERVICE_INSTANCE":
		all, _ := ask.Services(ctx)
		return namesOf(all, func(i v3.ServiceInstance) string { return i.Name })
	case "OFFERING", "PLAN":
		return g.offered(ctx, ask, kind)
	case "BROKER":
		all, _ := ask.ServiceBrokers(ctx)
		return namesOf(all, func(b v3.ServiceBroker) string { return b.Name })
	case "USER":
		users, _ := ask.Users(ctx)
		return namesOf(users, userName)
	default:
		return nil
	}
}

// ofService are the keys of a service instance, or the copies of its data.
func (g *global) ofService(ctx context.Context, name, kind string) []string {
	d, err := g.door()
	if err != nil {
		return nil
	}
	ask, err := g.open(d)
	if err != nil {
		return nil
	}
	i, err := ask.ServiceByName(ctx, name)
	if err != nil {
		return nil
	}
	if kind == "KEY" {
		keys, _ := ask.Bindings(ctx, client.BindingQuery{Type: v3.BindingKey, Instance: i.GUID})
		return namesOf(keys, bindingName)
	}
	all, _ := ask.Snapshots(ctx, i.GUID)
	return namesOf(all, func(s v3.ServiceSnapshot) string { return s.GUID })
}

// offered are the names of offerings, or of the plans of the one that was typed.
func (g *global) offered(ctx context.Context, ask *client.Client, kind string) []string {
	m, err := ask.Marketplace(ctx, client.MarketplaceQuery{})
	if err != nil {
		return nil
	}
	var names []string
	for _, p := range m.Plans {
		offering := m.Offerings[p.Relationships.ServiceOffering.ID()].Name
		switch {
		case kind == "OFFERING":
			names = append(names, offering)
		case slices.Contains(g.typed, offering):
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func namesOf[T any](all []T, name func(T) string) []string {
	out := make([]string, len(all))
	for i, one := range all {
		out[i] = name(one)
	}
	return out
}
