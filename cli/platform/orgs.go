package platform

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// OrgCommands are the commands for orgs.
func OrgCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{
		g.CommandWithEnv(command.Verb{Name: "orgs", Alias: "o", Category: "Orgs and spaces", Usage: "List orgs", Labels: "/v3/organizations", Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, w command.Env) error { return runOrgs(c.Context, w) }),
		g.CommandWithEnv(command.Verb{
			Name: "org", Args: "ORG", Category: "Orgs and spaces", Usage: "Show an org with its spaces and domains",
			Flags: []cli.Flag{command.BoolFlag("guid", "Print only the guid of the org"), command.JSONFlag()},
		}, func(c *cli.Context, w command.Env) error {
			return runOrg(c.Context, orgOptions{Name: c.Args().First(), GUID: c.Bool("guid")}, w)
		}),
		g.CommandWithEnv(command.Verb{
			Name: "create-org", Alias: "co", Args: "NAME", Category: "Orgs and spaces", Usage: "Create an org",
			About: "If the org already exists, the command succeeds.\n\nExample:\n   dew create-org shop && dew create-space dev -o shop && dew target -o shop -s dev",
			Flags: []cli.Flag{quotaFlag()},
		}, func(c *cli.Context, w command.Env) error {
			return runCreateOrg(c.Context, c.Args().First(), c.String("quota"), w)
		}),
		g.CommandWithEnv(command.Verb{Name: "rename-org", Args: "ORG NEW_NAME", Category: "Orgs and spaces", Usage: "Rename an org"},
			func(c *cli.Context, w command.Env) error {
				return runRenameOrg(c.Context, c.Args().Get(0), c.Args().Get(1), w)
			}),
		g.CommandWithEnv(command.Verb{
			Name: "delete-org", Args: "ORG", Category: "Orgs and spaces", Usage: "Delete an org with all its spaces and apps",
			Flags: []cli.Flag{command.BoolFlag("f", "Do not ask for confirmation")},
		}, func(c *cli.Context, w command.Env) error {
			return runDeleteOrg(c.Context, command.DeleteOptions{Name: c.Args().First(), Force: c.Bool("f")}, w)
		}),
	}
}

// orgRow is an org in the list.
type orgRow struct {
	GUID     string `json:"guid"`
	Name     string `json:"name"`
	Spaces   int    `json:"spaces"`
	Targeted bool   `json:"targeted"`
}

func runOrgs(ctx context.Context, w command.Env) error {
	orgs, err := w.Client.Orgs().List(ctx)
	if err != nil {
		return err
	}
	spaces, err := w.Client.Orgs().Spaces(ctx)
	if err != nil {
		return err
	}
	now := command.CurrentTarget(ctx, w)
	counts := map[string]int{}
	for _, s := range spaces {
		counts[s.Relationships.Organization.ID()]++
	}
	rows := make([]orgRow, len(orgs))
	table := [][]string{{"name", "spaces", "targeted"}}
	for i, o := range orgs {
		rows[i] = orgRow{GUID: o.GUID, Name: o.Name, Spaces: counts[o.GUID], Targeted: o.GUID == now.OrgGUID}
		table = append(table, []string{o.Name, fmt.Sprint(counts[o.GUID]), console.YesNo(rows[i].Targeted)})
	}
	if w.Out.JSON {
		return w.Out.Encode(rows)
	}
	if len(rows) == 0 {
		w.Out.Say("No orgs are visible to you")
		return nil
	}
	return w.Out.Table(table)
}

type orgOptions struct {
	Name string
	GUID bool
}

// orgView is the output of `dew org`.
type orgView struct {
	GUID    string   `json:"guid"`
	Name    string   `json:"name"`
	Spaces  []string `json:"spaces"`
	Domains []string `json:"domains"`
	Quota   string   `json:"quota,omitempty"`
	Segment string   `json:"isolation_segment,omitempty"` // of spaces that have none of their own
}

func runOrg(ctx context.Context, o orgOptions, w command.Env) error {
	org, err := command.FindOrg(ctx, w, o.Name)
	if err != nil {
		return err
	}
	if o.GUID {
		fmt.Fprintln(w.Out.Out, org.GUID)
		return nil
	}
	spaces, err := w.Client.Orgs().SpacesOf(ctx, org.GUID)
	if err != nil {
		return err
	}
	domains, err := w.Client.Routes().Domains(ctx)
	if err != nil {
		return err
	}
	v := orgView{GUID: org.GUID, Name: org.Name, Domains: []string{}, Spaces: console.Names(spaces, func(s v3.Space) string { return s.Name })}
	for _, d := range domains {
		of, shared := d.Relationships.Organization.ID(), d.Relationships.SharedOrganizations.Data
		if of == "" || of == org.GUID || slices.Contains(shared, v3.GUID{GUID: org.GUID}) {
			v.Domains = append(v.Domains, d.Name)
		}
	}
	if v.Quota, err = quotaOf(ctx, client.OrgQuotas.Where("organization_guids", org.GUID), w); err != nil {
		return err
	}
	if v.Segment, err = segmentAt(ctx, client.OrgSegment(org.GUID), w); err != nil {
		return err
	}
	if w.Out.JSON {
		return w.Out.Encode(v)
	}
	return w.Out.Facts([][]string{
		{"name:", v.Name}, {"spaces:", strings.Join(v.Spaces, ", ")}, {"domains:", strings.Join(v.Domains, ", ")}, {"quota:", v.Quota}, {"isolation segment:", v.Segment},
	})
}

// runCreateOrg creates an org. It succeeds if the org already exists.
func runCreateOrg(ctx context.Context, name, quota string, w command.Env) error {
	if quota != "" { // fail before the org is created
		if _, err := findOne(ctx, client.OrgQuotas, quota, w.Client); err != nil {
			return err
		}
	}
	_, err := w.Client.Orgs().Create(ctx, name)
	if command.AlreadyExists(err) {
		w.Out.Say("Org %s already exists", name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot create org %s: %w", name, err)
	}
	w.Out.Say("Created org %s. To create a space in it: dew create-space NAME -o %s", name, name)
	if quota == "" {
		return nil
	}
	return runAssignQuota(ctx, quotaOptions{of: QuotasOfOrgs, Place: name, Name: quota}, w)
}

func runRenameOrg(ctx context.Context, name, to string, w command.Env) error {
	org, err := command.FindOrg(ctx, w, name)
	if err != nil {
		return err
	}
	if err := w.Client.Orgs().Rename(ctx, org.GUID, to); err != nil {
		return fmt.Errorf("cannot rename org %s: %w", name, err)
	}
	if w.Target.OrgGUID == org.GUID {
		w.Target.Org = to
		if err := w.SaveTarget(ctx, w.Target); err != nil {
			return err
		}
	}
	w.Out.Say("Renamed org %s to %s", name, to)
	return nil
}

// runDeleteOrg deletes an org. It succeeds if the org does not exist.
func runDeleteOrg(ctx context.Context, o command.DeleteOptions, w command.Env) error {
	if !o.Force {
		if yes, err := w.Out.Confirm(ctx, "Delete org "+o.Name+" with all its spaces and apps"); err != nil || !yes {
			return err
		}
	}
	org, err := w.Client.Orgs().ByName(ctx, o.Name)
	if command.IsMissing(err) {
		w.Out.Say("Org %s does not exist", o.Name)
		return nil
	}
	if err != nil {
		return err
	}
	defer w.Out.Wait("Deleting org %s", o.Name).End()
	if err := w.Client.Orgs().Delete(ctx, org.GUID); err != nil {
		return fmt.Errorf("cannot delete org %s: %w", o.Name, err)
	}
	w.Out.Say("Deleted org %s", o.Name)
	return w.ForgetTarget(ctx, func(p command.Target) bool { return p.OrgGUID == org.GUID })
}
