package routes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// privateDomain are the arguments of commands about a domain of one org.
type privateDomain struct {
	Org, Name string
	Force     bool
}

// DomainListCommands is the list of domains.
func DomainListCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{
		g.Command(command.Verb{Name: "domains", Category: "Platform", Usage: "list the domains that routes may have", Labels: "/v3/domains", Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, ask *client.Client, out *console.Console) error {
				return runDomains(c.Context, ask, out)
			}),
	}
}

// DomainCommands are about private domains.
func DomainCommands(g *command.Set) []*cli.Command {
	run := func(v command.Verb, fn func(context.Context, privateDomain, command.Env) error) *cli.Command {
		v.Category = routesCategory
		return g.CommandWithEnv(v, func(c *cli.Context, w command.Env) error {
			o := privateDomain{Org: c.Args().First(), Name: c.Args().Get(1), Force: c.Bool("f")}
			if c.NArg() == 1 {
				o.Org, o.Name = "", o.Org
			}
			return fn(c.Context, o, w)
		})
	}
	return []*cli.Command{
		run(command.Verb{Name: "create-private-domain", Alias: "create-domain", Args: "ORG NAME", Usage: "make a domain that one org may have routes in", About: "One that the org has already is fine.\n\nExample:\n   dew create-private-domain shop shop.example.com"}, runCreatePrivate),
		run(command.Verb{Name: "delete-private-domain", Alias: "delete-domain", Args: "DOMAIN", Usage: "delete a domain of one org with all its routes", About: "One that is not there is fine.", Flags: []cli.Flag{command.ForceFlag()}}, runDeletePrivate),
		run(command.Verb{Name: "share-private-domain", Args: "ORG DOMAIN", Usage: "let another org have routes in a private domain, too"}, runShareDomain),
		run(command.Verb{Name: "unshare-private-domain", Args: "ORG DOMAIN", Usage: "take that back"}, runUnshareDomain),
	}
}

func runCreatePrivate(ctx context.Context, o privateDomain, w command.Env) error {
	org, err := command.FindOrg(ctx, w, o.Org)
	if err != nil {
		return err
	}
	d, err := w.Client.Routes().DomainByName(ctx, o.Name)
	if err == nil && d.Relationships.Organization.ID() == org.GUID {
		w.Out.Say("Domain %s exists already", o.Name)
		return nil
	}
	if err != nil && !command.IsMissing(err) {
		return err
	}
	owner := v3.To(org.GUID)
	_, err = w.Client.Routes().CreateDomain(ctx, v3.CreateDomain{Name: o.Name, Relationships: &v3.CreateDomainRelationships{Organization: &owner}})
	if err != nil {
		return fmt.Errorf("cannot create domain %s: %w", o.Name, err)
	}
	w.Out.Say("Created domain %s of org %s; dew share-private-domain lets another org use it", o.Name, org.Name)
	return nil
}

// isPrivate is the error about a domain that is no org's own.
func isPrivate(d v3.Domain) error {
	if d.Relationships.Organization.ID() != "" {
		return nil
	}
	return &console.Failure{Status: console.StatusFailed, Err: errors.New("domain " + d.Name + " is shared by all orgs and is no private one"), Advice: "dew domains tells which are private; dew delete-shared-domain deletes those that are not"}
}

func runDeletePrivate(ctx context.Context, o privateDomain, w command.Env) error {
	return removeDomain(ctx, command.DeleteOptions{Name: o.Name, Force: o.Force}, isPrivate, w)
}

// removeDomain deletes a domain if it is of the right kind; one that is not there is
// fine.
func removeDomain(ctx context.Context, o command.DeleteOptions, right func(v3.Domain) error, w command.Env) error {
	if ok, err := console.ConfirmUnless(ctx, w.Out, o.Force, "Delete domain "+o.Name+" with all its routes"); err != nil || !ok {
		return err
	}
	d, err := w.Client.Routes().DomainByName(ctx, o.Name)
	if command.IsMissing(err) {
		w.Out.Say("There is no domain %s", o.Name)
		return nil
	}
	if err != nil {
		return err
	}
	if err := right(d); err != nil {
		return err
	}
	if err := w.Client.Routes().DeleteDomain(ctx, d.GUID); err != nil {
		return fmt.Errorf("cannot delete domain %s: %w", d.Name, err)
	}
	w.Out.Say("Deleted domain %s", d.Name)
	return nil
}

// find finds the domain and the org that the options name.
func (o privateDomain) find(ctx context.Context, w command.Env) (v3.Domain, v3.Organization, error) {
	org, err := command.FindOrg(ctx, w, o.Org)
	if err != nil {
		return v3.Domain{}, org, err
	}
	d, err := command.FindDomain(ctx, w.Client, o.Name)
	if err == nil {
		err = isPrivate(d)
	}
	return d, org, err
}

func runShareDomain(ctx context.Context, o privateDomain, w command.Env) error {
	d, org, err := o.find(ctx, w)
	if err != nil {
		return err
	}
	if err := w.Client.Routes().ShareDomain(ctx, d.GUID, org.GUID); err != nil {
		return fmt.Errorf("cannot share domain %s: %w", d.Name, err)
	}
	w.Out.Say("Org %s may have routes in domain %s", org.Name, d.Name)
	return nil
}

func runUnshareDomain(ctx context.Context, o privateDomain, w command.Env) error {
	d, org, err := o.find(ctx, w)
	if err != nil {
		return err
	}
	if !slices.Contains(d.Relationships.SharedOrganizations.Data, v3.GUID{GUID: org.GUID}) {
		w.Out.Say("Domain %s is not shared with org %s", d.Name, org.Name)
		return nil
	}
	if err := w.Client.Routes().UnshareDomain(ctx, d.GUID, org.GUID); err != nil {
		return fmt.Errorf("cannot unshare domain %s: %w", d.Name, err)
	}
	w.Out.Say("Org %s may not have routes in domain %s any more", org.Name, d.Name)
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
