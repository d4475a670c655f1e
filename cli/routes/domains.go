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

// privateDomain are the arguments of the commands for private domains.
type privateDomain struct {
	Org, Name string
	Force     bool
}

// DomainListCommands are the commands that list domains.
func DomainListCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{
		g.Command(command.Verb{Name: "domains", Category: "Platform", Usage: "List the domains that routes can use", Labels: "/v3/domains", Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, api *client.Client, out *console.Console) error {
				return runDomains(c.Context, api, out)
			}),
	}
}

// DomainCommands are the commands for private domains.
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
		run(command.Verb{Name: "create-private-domain", Alias: "create-domain", Args: "ORG NAME", Usage: "Create a private domain, which only one org can use", About: "If the org already has the domain, the command succeeds.\n\nExample:\n   dew create-private-domain shop shop.example.com"}, runCreatePrivate),
		run(command.Verb{Name: "delete-private-domain", Alias: "delete-domain", Args: "DOMAIN", Usage: "Delete a private domain with all its routes", About: "If the domain does not exist, the command succeeds.", Flags: []cli.Flag{command.ForceFlag()}}, runDeletePrivate),
		run(command.Verb{Name: "share-private-domain", Args: "ORG DOMAIN", Usage: "Share a private domain with another org"}, runShareDomain),
		run(command.Verb{Name: "unshare-private-domain", Args: "ORG DOMAIN", Usage: "Stop sharing a private domain with an org"}, runUnshareDomain),
	}
}

func runCreatePrivate(ctx context.Context, o privateDomain, w command.Env) error {
	org, err := command.FindOrg(ctx, w, o.Org)
	if err != nil {
		return err
	}
	d, err := w.Client.Routes().DomainByName(ctx, o.Name)
	if err == nil && d.Relationships.Organization.ID() == org.GUID {
		w.Out.Say("Domain %s already exists", o.Name)
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
	w.Out.Say("Created domain %s of org %s. To share it with another org: dew share-private-domain ORG %s", o.Name, org.Name, o.Name)
	return nil
}

// isPrivate fails if a domain does not belong to one org.
func isPrivate(d v3.Domain) error {
	if d.Relationships.Organization.ID() != "" {
		return nil
	}
	return &console.Failure{Status: console.StatusFailed, Err: errors.New("domain " + d.Name + " is shared by all orgs and not private"), Advice: "To see which domains are shared and which are private: dew domains"}
}

func runDeletePrivate(ctx context.Context, o privateDomain, w command.Env) error {
	return removeDomain(ctx, command.DeleteOptions{Name: o.Name, Force: o.Force}, isPrivate, w)
}

// removeDomain deletes a domain if check accepts it. It succeeds if the domain does not
// exist.
func removeDomain(ctx context.Context, o command.DeleteOptions, check func(v3.Domain) error, w command.Env) error {
	if ok, err := console.ConfirmUnless(ctx, w.Out, o.Force, "Delete domain "+o.Name+" with all its routes"); err != nil || !ok {
		return err
	}
	d, err := w.Client.Routes().DomainByName(ctx, o.Name)
	if command.IsMissing(err) {
		w.Out.Say("Domain %s does not exist", o.Name)
		return nil
	}
	if err != nil {
		return err
	}
	if err := check(d); err != nil {
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
		return fmt.Errorf("cannot share domain %s with org %s: %w", d.Name, org.Name, err)
	}
	w.Out.Say("Shared domain %s with org %s", d.Name, org.Name)
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
		return fmt.Errorf("cannot stop sharing domain %s with org %s: %w", d.Name, org.Name, err)
	}
	w.Out.Say("Stopped sharing domain %s with org %s", d.Name, org.Name)
	return nil
}

type domainRow struct {
	GUID      string   `json:"guid"`
	Name      string   `json:"name"`
	Internal  bool     `json:"internal"`
	Shared    bool     `json:"shared"`
	Protocols []string `json:"protocols"`
}

func runDomains(ctx context.Context, api *client.Client, out *console.Console) error {
	all, err := api.Routes().Domains(ctx)
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
