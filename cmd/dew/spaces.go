package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

func orgFlag() cli.Flag {
	return &cli.StringFlag{Name: "o", Usage: "`org` (default: the targeted one)"}
}

func spaceCommands(g *global) []*cli.Command {
	return []*cli.Command{
		g.commandAt(verb{name: "spaces", category: "Orgs and spaces", usage: "list the spaces of an org", labels: "/v3/spaces", flags: []cli.Flag{orgFlag(), jsonFlag()}},
			func(c *cli.Context, w where) error { return runSpaces(c.Context, c.String("o"), w) }),
		g.commandAt(verb{
			name: "space", args: "SPACE", category: "Orgs and spaces", usage: "show a space: its org and apps",
			flags: []cli.Flag{orgFlag(), boolFlag("guid", "print its guid and no more"), boolFlag("security-group-rules", "show the rules of its security groups"), jsonFlag()},
		}, func(c *cli.Context, w where) error {
			return runSpace(c.Context, spaceOptions{Name: c.Args().First(), Org: c.String("o"), GUID: c.Bool("guid"), Rules: c.Bool("security-group-rules")}, w)
		}),
		g.commandAt(verb{
			name: "create-space", alias: "csp", args: "NAME", category: "Orgs and spaces", usage: "create a space, with yourself as its manager and developer",
			about: "One that is there already is fine.\n\nExample:\n   dew create-space test -o shop", flags: []cli.Flag{orgFlag(), quotaFlag()},
		}, func(c *cli.Context, w where) error {
			return runCreateSpace(c.Context, spaceOptions{Name: c.Args().First(), Org: c.String("o"), Quota: c.String("quota")}, w)
		}),
		g.commandAt(verb{name: "rename-space", args: "SPACE NEW_NAME", category: "Orgs and spaces", usage: "give a space another name", flags: []cli.Flag{orgFlag()}},
			func(c *cli.Context, w where) error {
				return runRenameSpace(c.Context, spaceOptions{Name: c.Args().First(), Org: c.String("o")}, c.Args().Get(1), w)
			}),
		g.commandAt(verb{
			name: "delete-space", args: "SPACE", category: "Orgs and spaces", usage: "delete a space with all its apps and routes",
			flags: []cli.Flag{orgFlag(), boolFlag("f", "do not ask")},
		}, func(c *cli.Context, w where) error {
			return runDeleteSpace(c.Context, spaceOptions{Name: c.Args().First(), Org: c.String("o"), Force: c.Bool("f")}, w)
		}),
	}
}

type spaceOptions struct {
	Name  string
	Org   string // name; empty: the targeted one
	Quota string // that a new one has
	Rules bool   // show those of its security groups
	GUID  bool   // show it and no more
	Force bool
}

// findSpace finds a space of an org by name; the error offers a name that is near.
func findSpace(ctx context.Context, w where, org v3.Organization, name string) (v3.Space, error) {
	s, err := w.ask.Orgs().SpaceByName(ctx, org.GUID, name)
	if !isMissing(err) {
		return s, err
	}
	all, lerr := w.ask.Orgs().SpacesOf(ctx, org.GUID)
	if lerr != nil {
		return s, lerr
	}
	err = fmt.Errorf("%w in org %s", err, org.Name)
	return s, hint(err, name, all, func(s v3.Space) string { return s.Name })
}

// find finds the org and the space that the options name.
func (o spaceOptions) find(ctx context.Context, w where) (v3.Organization, v3.Space, error) {
	org, err := findOrg(ctx, w, o.Org)
	if err != nil {
		return org, v3.Space{}, err
	}
	s, err := findSpace(ctx, w, org, o.Name)
	return org, s, err
}

// spaceRow is a space in the list.
type spaceRow struct {
	GUID     string `json:"guid"`
	Name     string `json:"name"`
	Org      string `json:"org"`
	Targeted bool   `json:"targeted"`
}

func runSpaces(ctx context.Context, org string, w where) error {
	o, err := findOrg(ctx, w, org)
	if err != nil {
		return err
	}
	spaces, err := w.ask.Orgs().SpacesOf(ctx, o.GUID)
	if err != nil {
		return err
	}
	now := effective(ctx, w)
	rows := make([]spaceRow, len(spaces))
	table := [][]string{{"name", "targeted"}}
	for i, s := range spaces {
		rows[i] = spaceRow{GUID: s.GUID, Name: s.Name, Org: o.Name, Targeted: s.GUID == now.SpaceGUID}
		table = append(table, []string{s.Name, console.YesNo(rows[i].Targeted)})
	}
	if w.out.JSON {
		return w.out.Encode(rows)
	}
	if len(rows) == 0 {
		w.out.Say("There are no spaces in org %s that you may see; dew create-space makes one", o.Name)
		return nil
	}
	return w.out.Table(table)
}

// spaceView is what `dew space` shows.
type spaceView struct {
	GUID    string     `json:"guid"`
	Name    string     `json:"name"`
	Org     string     `json:"org"`
	Apps    []string   `json:"apps"`
	Quota   string     `json:"quota,omitempty"`
	Segment string     `json:"isolation_segment,omitempty"`
	Running []ruleList `json:"running_security_groups"`
	Staging []ruleList `json:"staging_security_groups"`
}

// ruleList is a security group of a space.
type ruleList struct {
	Name  string            `json:"name"`
	Rules []v3.SecurityRule `json:"rules"`
}

func ruleLists(groups []v3.SecurityGroup) []ruleList {
	out := make([]ruleList, len(groups))
	for i, g := range groups {
		out[i] = ruleList{g.Name, g.Rules}
	}
	return out
}

// readSpace asks for everything that a view has.
func readSpace(ctx context.Context, org v3.Organization, s v3.Space, w where) (spaceView, error) {
	v := spaceView{GUID: s.GUID, Name: s.Name, Org: org.Name}
	apps, err := w.ask.Apps().ListIn(ctx, s.GUID)
	if err != nil {
		return v, err
	}
	v.Apps = console.Names(apps, func(a v3.App) string { return a.Name })
	if v.Quota, err = quotaOf(ctx, client.SpaceQuotas.Where("space_guids", s.GUID), w); err != nil {
		return v, err
	}
	if v.Segment, err = segmentAt(ctx, client.SpaceSegment(s.GUID), w); err != nil {
		return v, err
	}
	for phase, to := range map[phase]*[]ruleList{running: &v.Running, staging: &v.Staging} {
		groups, err := w.ask.Orgs().SpaceGroups(ctx, s.GUID, string(phase))
		if err != nil {
			return v, err
		}
		*to = ruleLists(groups)
	}
	return v, nil
}

func (v spaceView) print(out *console.Console, rules bool) error {
	names := func(all []ruleList) string {
		return strings.Join(console.Names(all, func(l ruleList) string { return l.Name }), ", ")
	}
	err := out.Facts([][]string{
		{"name:", v.Name},
		{"org:", v.Org},
		{"apps:", strings.Join(v.Apps, ", ")},
		{"quota:", v.Quota},
		{"isolation segment:", v.Segment},
		{"running security groups:", names(v.Running)},
		{"staging security groups:", names(v.Staging)},
	})
	if err != nil || !rules {
		return err
	}
	table := [][]string{{"security group", "protocol", "destination", "ports", "lifecycle", "description"}}
	for phase, all := range map[phase][]ruleList{running: v.Running, staging: v.Staging} {
		for _, l := range all {
			for _, r := range l.Rules {
				table = append(table, []string{l.Name, r.Protocol, r.Destination, r.Ports, string(phase), r.Description})
			}
		}
	}
	slices.SortFunc(table[1:], slices.Compare)
	fmt.Fprintln(out.Out)
	return out.Table(table)
}

func runSpace(ctx context.Context, o spaceOptions, w where) error {
	org, s, err := o.find(ctx, w)
	if err != nil {
		return err
	}
	if o.GUID {
		fmt.Fprintln(w.out.Out, s.GUID)
		return nil
	}
	v, err := readSpace(ctx, org, s, w)
	if err != nil {
		return err
	}
	if w.out.JSON {
		return w.out.Encode(v)
	}
	return v.print(w.out, o.Rules)
}

// runCreateSpace creates a space and gives whoever made it the roles to work in
// it, as cf does. Over the socket one is the administrator and needs none.
func runCreateSpace(ctx context.Context, o spaceOptions, w where) error {
	org, err := findOrg(ctx, w, o.Org)
	if err != nil {
		return err
	}
	quota := quotaOptions{of: quotasOfSpaces, Place: o.Name, Name: o.Quota, Org: o.Org}
	if o.Quota != "" { // before anything is made
		if _, _, err := quota.find(ctx, w); err != nil {
			return err
		}
	}
	s, err := w.ask.Orgs().CreateSpace(ctx, org.GUID, o.Name)
	if isTaken(err) {
		w.out.Say("Space %s exists already in org %s", o.Name, org.Name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot create space %s: %w", o.Name, err)
	}
	w.out.Say("Created space %s in org %s; dew target -o %s -s %s works in it", o.Name, org.Name, org.Name, o.Name)
	if o.Quota != "" {
		if err := runAssignQuota(ctx, quota, w); err != nil {
			return err
		}
	}
	if w.url == "" {
		return nil
	}
	who := v3.UserName{Username: w.past.User, Origin: origin}
	if w.past.Client != "" {
		who = v3.UserName{GUID: w.past.Client}
	}
	for _, role := range []string{"space_manager", "space_developer"} {
		if err := giveSpaceRole(ctx, w, role, who, placeOf(org, s)); err != nil && !hasAlready(err) {
			return fmt.Errorf("the space is there; cannot make you its %s: %w", roleName(role), err)
		}
	}
	return nil
}

func runRenameSpace(ctx context.Context, o spaceOptions, to string, w where) error {
	_, s, err := o.find(ctx, w)
	if err != nil {
		return err
	}
	if err := w.ask.Orgs().RenameSpace(ctx, s.GUID, to); err != nil {
		return fmt.Errorf("cannot rename space %s: %w", o.Name, err)
	}
	if w.target.SpaceGUID == s.GUID {
		w.target.Space = to
		if err := w.remember(ctx, w.target); err != nil {
			return err
		}
	}
	w.out.Say("Renamed space %s to %s", o.Name, to)
	return nil
}

// runDeleteSpace deletes a space; one that is not there is fine.
func runDeleteSpace(ctx context.Context, o spaceOptions, w where) error {
	if !o.Force {
		if yes, err := w.out.Confirm(ctx, "Delete space "+o.Name+" with all its apps"); err != nil || !yes {
			return err
		}
	}
	_, s, err := o.find(ctx, w)
	if isMissing(err) {
		w.out.Say("There is no space %s", o.Name)
		return nil
	}
	if err != nil {
		return err
	}
	defer w.out.Wait("Deleting space %s", o.Name).End()
	if err := w.ask.Orgs().DeleteSpace(ctx, s.GUID); err != nil {
		return fmt.Errorf("cannot delete space %s: %w", o.Name, err)
	}
	w.out.Say("Deleted space %s", o.Name)
	return w.forget(ctx, func(p place) bool { return p.SpaceGUID == s.GUID })
}
