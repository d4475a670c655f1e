package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

// privateDomain are the arguments of commands about a domain of one org.
type privateDomain struct {
	Org, Name string
	Force     bool
}

// domainListCommands is the list of domains.
func domainListCommands(g *global) []*cli.Command {
	return []*cli.Command{
		g.command(verb{name: "domains", category: "Platform", usage: "list the domains that routes may have", labels: "/v3/domains", flags: []cli.Flag{jsonFlag()}},
			func(c *cli.Context, ask *client.Client, out *console.Console) error {
				return runDomains(c.Context, ask, out)
			}),
	}
}

func domainCommands(g *global) []*cli.Command {
	run := func(v verb, fn func(context.Context, privateDomain, where) error) *cli.Command {
		v.category = routesCategory
		return g.commandAt(v, func(c *cli.Context, w where) error {
			o := privateDomain{Org: c.Args().First(), Name: c.Args().Get(1), Force: c.Bool("f")}
			if c.NArg() == 1 {
				o.Org, o.Name = "", o.Org
			}
			return fn(c.Context, o, w)
		})
	}
	return []*cli.Command{
		run(verb{name: "create-private-domain", alias: "create-domain", args: "ORG NAME", usage: "make a domain that one org may have routes in", about: "One that the org has already is fine.\n\nExample:\n   dew create-private-domain shop shop.example.com"}, runCreatePrivate),
		run(verb{name: "delete-private-domain", alias: "delete-domain", args: "DOMAIN", usage: "delete a domain of one org with all its routes", about: "One that is not there is fine.", flags: []cli.Flag{forceFlag()}}, runDeletePrivate),
		run(verb{name: "share-private-domain", args: "ORG DOMAIN", usage: "let another org have routes in a private domain, too"}, runShareDomain),
		run(verb{name: "unshare-private-domain", args: "ORG DOMAIN", usage: "take that back"}, runUnshareDomain),
	}
}

func runCreatePrivate(ctx context.Context, o privateDomain, w where) error {
	org, err := findOrg(ctx, w, o.Org)
	if err != nil {
		return err
	}
	d, err := w.ask.Routes().DomainByName(ctx, o.Name)
	if err == nil && d.Relationships.Organization.ID() == org.GUID {
		w.out.Say("Domain %s exists already", o.Name)
		return nil
	}
	if err != nil && !isMissing(err) {
		return err
	}
	owner := v3.To(org.GUID)
	_, err = w.ask.Routes().CreateDomain(ctx, v3.CreateDomain{Name: o.Name, Relationships: &v3.CreateDomainRelationships{Organization: &owner}})
	if err != nil {
		return fmt.Errorf("cannot create domain %s: %w", o.Name, err)
	}
	w.out.Say("Created domain %s of org %s; dew share-private-domain lets another org use it", o.Name, org.Name)
	return nil
}

// isPrivate is the error about a domain that is no org's own.
func isPrivate(d v3.Domain) error {
	if d.Relationships.Organization.ID() != "" {
		return nil
	}
	return &console.Failure{Status: console.StatusFailed, Err: errors.New("domain " + d.Name + " is shared by all orgs and is no private one"), Todo: "dew domains tells which are private; dew delete-shared-domain deletes those that are not"}
}

func runDeletePrivate(ctx context.Context, o privateDomain, w where) error {
	return removeDomain(ctx, deleteOptions{Name: o.Name, Force: o.Force}, isPrivate, w)
}

// removeDomain deletes a domain if it is of the right kind; one that is not there is
// fine.
func removeDomain(ctx context.Context, o deleteOptions, right func(v3.Domain) error, w where) error {
	if ok, err := console.ConfirmUnless(ctx, w.out, o.Force, "Delete domain "+o.Name+" with all its routes"); err != nil || !ok {
		return err
	}
	d, err := w.ask.Routes().DomainByName(ctx, o.Name)
	if isMissing(err) {
		w.out.Say("There is no domain %s", o.Name)
		return nil
	}
	if err != nil {
		return err
	}
	if err := right(d); err != nil {
		return err
	}
	if err := w.ask.Routes().DeleteDomain(ctx, d.GUID); err != nil {
		return fmt.Errorf("cannot delete domain %s: %w", d.Name, err)
	}
	w.out.Say("Deleted domain %s", d.Name)
	return nil
}

// find finds the domain and the org that the options name.
func (o privateDomain) find(ctx context.Context, w where) (v3.Domain, v3.Organization, error) {
	org, err := findOrg(ctx, w, o.Org)
	if err != nil {
		return v3.Domain{}, org, err
	}
	d, err := findDomain(ctx, w.ask, o.Name)
	if err == nil {
		err = isPrivate(d)
	}
	return d, org, err
}

func runShareDomain(ctx context.Context, o privateDomain, w where) error {
	d, org, err := o.find(ctx, w)
	if err != nil {
		return err
	}
	if err := w.ask.Routes().ShareDomain(ctx, d.GUID, org.GUID); err != nil {
		return fmt.Errorf("cannot share domain %s: %w", d.Name, err)
	}
	w.out.Say("Org %s may have routes in domain %s", org.Name, d.Name)
	return nil
}

func runUnshareDomain(ctx context.Context, o privateDomain, w where) error {
	d, org, err := o.find(ctx, w)
	if err != nil {
		return err
	}
	if !slices.Contains(d.Relationships.SharedOrganizations.Data, v3.GUID{GUID: org.GUID}) {
		w.out.Say("Domain %s is not shared with org %s", d.Name, org.Name)
		return nil
	}
	if err := w.ask.Routes().UnshareDomain(ctx, d.GUID, org.GUID); err != nil {
		return fmt.Errorf("cannot unshare domain %s: %w", d.Name, err)
	}
	w.out.Say("Org %s may not have routes in domain %s any more", org.Name, d.Name)
	return nil
}

type domainRow struct {
	GUID      string   `json:"guid"`
	Name      string   `json:"name"`
	Internal  bool     `json:"internal"`
	Shared    bool     `json:"shared"`
	Protocols []string `json:"protocols"`
}

func runDomains(ctx context.Context, ask *client.Client, out *console.Console) error {
	all, err := ask.Routes().Domains(ctx)
	if err != nil {
		return err
	}
	rows, table := []domainRow{}, [][]string{{"name", "availability", "internal", "protocols"}}
	for _, d := range all {
		r := domainRow{GUID: d.GUID, Name: d.Name, Internal: d.Internal, Shared: d.Relationships.Organization.ID() == "", Protocols: console.NonNil(d.SupportedProtocols)}
		availability := "private"
		if r.Shared {
			availability = "shared"
		}
		rows, table = append(rows, r), append(table, []string{r.Name, availability, console.YesNo(r.Internal), strings.Join(r.Protocols, ", ")})
	}
	return console.List{Rows: rows, Table: table, Empty: "There are no domains"}.Show(out)
}
