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

func orgCommands(g *global) []*cli.Command {
	return []*cli.Command{
		g.commandAt(verb{name: "orgs", alias: "o", category: "Orgs and spaces", usage: "list the orgs", labels: "/v3/organizations", flags: []cli.Flag{jsonFlag()}},
			func(c *cli.Context, w where) error { return runOrgs(c.Context, w) }),
		g.commandAt(verb{
			name: "org", args: "ORG", category: "Orgs and spaces", usage: "show an org: its spaces and domains",
			flags: []cli.Flag{boolFlag("guid", "print its guid and no more"), jsonFlag()},
		}, func(c *cli.Context, w where) error {
			return runOrg(c.Context, orgOptions{Name: c.Args().First(), GUID: c.Bool("guid")}, w)
		}),
		g.commandAt(verb{
			name: "create-org", alias: "co", args: "NAME", category: "Orgs and spaces", usage: "create an org",
			about: "One that is there already is fine.\n\nExample:\n   dew create-org shop && dew create-space dev -o shop && dew target -o shop -s dev",
			flags: []cli.Flag{quotaFlag()},
		}, func(c *cli.Context, w where) error {
			return runCreateOrg(c.Context, c.Args().First(), c.String("quota"), w)
		}),
		g.commandAt(verb{name: "rename-org", args: "ORG NEW_NAME", category: "Orgs and spaces", usage: "give an org another name"},
			func(c *cli.Context, w where) error {
				return runRenameOrg(c.Context, c.Args().Get(0), c.Args().Get(1), w)
			}),
		g.commandAt(verb{
			name: "delete-org", args: "ORG", category: "Orgs and spaces", usage: "delete an org with all its spaces and apps",
			flags: []cli.Flag{boolFlag("f", "do not ask")},
		}, func(c *cli.Context, w where) error {
			return runDeleteOrg(c.Context, deleteOptions{Name: c.Args().First(), Force: c.Bool("f")}, w)
		}),
	}
}

// findOrg finds an org by name; without one it is the targeted one, else the one
// of the daemon's first start.
func findOrg(ctx context.Context, w where, name string) (v3.Organization, error) {
	if name == "" && w.target.OrgGUID != "" {
		return v3.Organization{GUID: w.target.OrgGUID, Name: w.target.Org}, nil
	}
	asked := name
	if asked == "" {
		asked = firstOrg
	}
	o, err := w.ask.Orgs().ByName(ctx, asked)
	switch {
	case !isMissing(err):
		return o, err
	case name == "":
		return o, &console.Failure{Status: console.StatusFailed, Err: errors.New("no org is targeted"), Todo: "dew target -o ORG; dew orgs lists them"}
	}
	all, lerr := w.ask.Orgs().List(ctx)
	if lerr != nil {
		return o, lerr
	}
	return o, hint(err, name, all, func(o v3.Organization) string { return o.Name })
}

// orgRow is an org in the list.
type orgRow struct {
	GUID     string `json:"guid"`
	Name     string `json:"name"`
	Spaces   int    `json:"spaces"`
	Targeted bool   `json:"targeted"`
}

func runOrgs(ctx context.Context, w where) error {
	orgs, err := w.ask.Orgs().List(ctx)
	if err != nil {
		return err
	}
	spaces, err := w.ask.Orgs().Spaces(ctx)
	if err != nil {
		return err
	}
	now := effective(ctx, w)
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
	if w.out.JSON {
		return w.out.Encode(rows)
	}
	if len(rows) == 0 {
		w.out.Say("There are no orgs that you may see")
		return nil
	}
	return w.out.Table(table)
}

type orgOptions struct {
	Name string
	GUID bool
}

// orgView is what `dew org` shows.
type orgView struct {
	GUID    string   `json:"guid"`
	Name    string   `json:"name"`
	Spaces  []string `json:"spaces"`
	Domains []string `json:"domains"`
	Quota   string   `json:"quota,omitempty"`
	Segment string   `json:"isolation_segment,omitempty"` // of spaces that name none
}

func runOrg(ctx context.Context, o orgOptions, w where) error {
	org, err := findOrg(ctx, w, o.Name)
	if err != nil {
		return err
	}
	if o.GUID {
		fmt.Fprintln(w.out.Out, org.GUID)
		return nil
	}
	spaces, err := w.ask.Orgs().SpacesOf(ctx, org.GUID)
	if err != nil {
		return err
	}
	domains, err := w.ask.Routes().Domains(ctx)
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
	if w.out.JSON {
		return w.out.Encode(v)
	}
	return w.out.Facts([][]string{
		{"name:", v.Name}, {"spaces:", strings.Join(v.Spaces, ", ")}, {"domains:", strings.Join(v.Domains, ", ")}, {"quota:", v.Quota}, {"isolation segment:", v.Segment},
	})
}

// runCreateOrg creates an org; one that is there already is fine.
func runCreateOrg(ctx context.Context, name, quota string, w where) error {
	if quota != "" { // before anything is made
		if _, err := findOne(ctx, client.OrgQuotas, quota, w.ask); err != nil {
			return err
		}
	}
	_, err := w.ask.Orgs().Create(ctx, name)
	if isTaken(err) {
		w.out.Say("Org %s exists already", name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot create org %s: %w", name, err)
	}
	w.out.Say("Created org %s; dew create-space NAME -o %s makes a space in it", name, name)
	if quota == "" {
		return nil
	}
	return runAssignQuota(ctx, quotaOptions{of: quotasOfOrgs, Place: name, Name: quota}, w)
}

// isTaken tells whether the answer says that there is one already.
func isTaken(err error) bool {
	e := (*client.Error)(nil)
	return errors.As(err, &e) && (taken(e) || strings.Contains(strings.ToLower(e.Detail), "must be unique"))
}

func runRenameOrg(ctx context.Context, name, to string, w where) error {
	org, err := findOrg(ctx, w, name)
	if err != nil {
		return err
	}
	if err := w.ask.Orgs().Rename(ctx, org.GUID, to); err != nil {
		return fmt.Errorf("cannot rename org %s: %w", name, err)
	}
	if w.target.OrgGUID == org.GUID {
		w.target.Org = to
		if err := w.remember(ctx, w.target); err != nil {
			return err
		}
	}
	w.out.Say("Renamed org %s to %s", name, to)
	return nil
}

// runDeleteOrg deletes an org; one that is not there is fine.
func runDeleteOrg(ctx context.Context, o deleteOptions, w where) error {
	if !o.Force {
		if yes, err := w.out.Confirm(ctx, "Delete org "+o.Name+" with all its spaces and apps"); err != nil || !yes {
			return err
		}
	}
	org, err := w.ask.Orgs().ByName(ctx, o.Name)
	if isMissing(err) {
		w.out.Say("There is no org %s", o.Name)
		return nil
	}
	if err != nil {
		return err
	}
	defer w.out.Wait("Deleting org %s", o.Name).End()
	if err := w.ask.Orgs().Delete(ctx, org.GUID); err != nil {
		return fmt.Errorf("cannot delete org %s: %w", o.Name, err)
	}
	w.out.Say("Deleted org %s", o.Name)
	return w.forget(ctx, func(p place) bool { return p.OrgGUID == org.GUID })
}
