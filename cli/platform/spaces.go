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

// SpaceCommands are the commands for spaces.
func SpaceCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{
		g.CommandWithEnv(command.Verb{Name: "spaces", Category: "Orgs and spaces", Usage: "List the spaces of an org", Labels: "/v3/spaces", Flags: []cli.Flag{command.OrgFlag(), command.JSONFlag()}},
			func(c *cli.Context, w command.Env) error { return runSpaces(c.Context, c.String("o"), w) }),
		g.CommandWithEnv(command.Verb{
			Name: "space", Args: "SPACE", Category: "Orgs and spaces", Usage: "Show a space with its org and apps",
			Flags: []cli.Flag{command.OrgFlag(), command.BoolFlag("guid", "Print only the guid of the space"), command.BoolFlag("security-group-rules", "Show the rules of the security groups of the space"), command.JSONFlag()},
		}, func(c *cli.Context, w command.Env) error {
			return runSpace(c.Context, command.SpaceOptions{Name: c.Args().First(), Org: c.String("o"), GUID: c.Bool("guid"), Rules: c.Bool("security-group-rules")}, w)
		}),
		g.CommandWithEnv(command.Verb{
			Name: "create-space", Alias: "csp", Args: "NAME", Category: "Orgs and spaces", Usage: "Create a space, with yourself as its SpaceManager and SpaceDeveloper",
			About: "If the space already exists, the command succeeds.\n\nExample:\n   dew create-space test -o shop", Flags: []cli.Flag{command.OrgFlag(), quotaFlag()},
		}, func(c *cli.Context, w command.Env) error {
			return runCreateSpace(c.Context, command.SpaceOptions{Name: c.Args().First(), Org: c.String("o"), Quota: c.String("quota")}, w)
		}),
		g.CommandWithEnv(command.Verb{Name: "rename-space", Args: "SPACE NEW_NAME", Category: "Orgs and spaces", Usage: "Rename a space", Flags: []cli.Flag{command.OrgFlag()}},
			func(c *cli.Context, w command.Env) error {
				return runRenameSpace(c.Context, command.SpaceOptions{Name: c.Args().First(), Org: c.String("o")}, c.Args().Get(1), w)
			}),
		g.CommandWithEnv(command.Verb{
			Name: "delete-space", Args: "SPACE", Category: "Orgs and spaces", Usage: "Delete a space with all its apps and routes",
			Flags: []cli.Flag{command.OrgFlag(), command.BoolFlag("f", "Do not ask for confirmation")},
		}, func(c *cli.Context, w command.Env) error {
			return runDeleteSpace(c.Context, command.SpaceOptions{Name: c.Args().First(), Org: c.String("o"), Force: c.Bool("f")}, w)
		}),
	}
}

// spaceRow is a space in the list.
type spaceRow struct {
	GUID     string `json:"guid"`
	Name     string `json:"name"`
	Org      string `json:"org"`
	Targeted bool   `json:"targeted"`
}

func runSpaces(ctx context.Context, org string, w command.Env) error {
	o, err := command.FindOrg(ctx, w, org)
	if err != nil {
		return err
	}
	spaces, err := w.Client.Orgs().SpacesOf(ctx, o.GUID)
	if err != nil {
		return err
	}
	now := command.CurrentTarget(ctx, w)
	rows := make([]spaceRow, len(spaces))
	table := [][]string{{"name", "targeted"}}
	for i, s := range spaces {
		rows[i] = spaceRow{GUID: s.GUID, Name: s.Name, Org: o.Name, Targeted: s.GUID == now.SpaceGUID}
		table = append(table, []string{s.Name, console.YesNo(rows[i].Targeted)})
	}
	if w.Out.JSON {
		return w.Out.Encode(rows)
	}
	if len(rows) == 0 {
		w.Out.Say("No spaces of org %s are visible to you. To create one: dew create-space NAME -o %s", o.Name, o.Name)
		return nil
	}
	return w.Out.Table(table)
}

// spaceView is the output of `dew space`.
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

// readSpace reads everything that a spaceView shows.
func readSpace(ctx context.Context, org v3.Organization, s v3.Space, w command.Env) (spaceView, error) {
	v := spaceView{GUID: s.GUID, Name: s.Name, Org: org.Name}
	apps, err := w.Client.Apps().ListIn(ctx, s.GUID)
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
		groups, err := w.Client.Orgs().SpaceGroups(ctx, s.GUID, string(phase))
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

func runSpace(ctx context.Context, o command.SpaceOptions, w command.Env) error {
	org, s, err := o.Find(ctx, w)
	if err != nil {
		return err
	}
	if o.GUID {
		fmt.Fprintln(w.Out.Out, s.GUID)
		return nil
	}
	v, err := readSpace(ctx, org, s, w)
	if err != nil {
		return err
	}
	if w.Out.JSON {
		return w.Out.Encode(v)
	}
	return v.print(w.Out, o.Rules)
}

// runCreateSpace creates a space and assigns its creator the roles to work in it, as cf
// does. Over the socket the creator is the administrator, who needs no roles.
func runCreateSpace(ctx context.Context, o command.SpaceOptions, w command.Env) error {
	org, err := command.FindOrg(ctx, w, o.Org)
	if err != nil {
		return err
	}
	quota := quotaOptions{of: QuotasOfSpaces, Place: o.Name, Name: o.Quota, Org: o.Org}
	if o.Quota != "" { // fail before the space is created
		if _, _, err := quota.find(ctx, w); err != nil {
			return err
		}
	}
	s, err := w.Client.Orgs().CreateSpace(ctx, org.GUID, o.Name)
	if command.AlreadyExists(err) {
		w.Out.Say("Space %s already exists in org %s", o.Name, org.Name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot create space %s: %w", o.Name, err)
	}
	w.Out.Say("Created space %s in org %s. To target it: dew target -o %s -s %s", o.Name, org.Name, org.Name, o.Name)
	if o.Quota != "" {
		if err := runAssignQuota(ctx, quota, w); err != nil {
			return err
		}
	}
	if w.URL == "" {
		return nil
	}
	user := v3.UserName{Username: w.Session.User, Origin: origin}
	if w.Session.Client != "" {
		user = v3.UserName{GUID: w.Session.Client}
	}
	for _, role := range []string{"space_manager", "space_developer"} {
		if err := assignSpaceRole(ctx, w, role, user, command.TargetOf(org, s)); err != nil && !alreadyHasRole(err) {
			return fmt.Errorf("created the space, but cannot assign you role %s: %w", roleName(role), err)
		}
	}
	return nil
}

func runRenameSpace(ctx context.Context, o command.SpaceOptions, to string, w command.Env) error {
	_, s, err := o.Find(ctx, w)
	if err != nil {
		return err
	}
	if err := w.Client.Orgs().RenameSpace(ctx, s.GUID, to); err != nil {
		return fmt.Errorf("cannot rename space %s: %w", o.Name, err)
	}
	if w.Target.SpaceGUID == s.GUID {
		w.Target.Space = to
		if err := w.SaveTarget(ctx, w.Target); err != nil {
			return err
		}
	}
	w.Out.Say("Renamed space %s to %s", o.Name, to)
	return nil
}

// runDeleteSpace deletes a space. It succeeds if the space does not exist.
func runDeleteSpace(ctx context.Context, o command.SpaceOptions, w command.Env) error {
	if !o.Force {
		if yes, err := w.Out.Confirm(ctx, "Delete space "+o.Name+" with all its apps"); err != nil || !yes {
			return err
		}
	}
	_, s, err := o.Find(ctx, w)
	if command.IsMissing(err) {
		w.Out.Say("Space %s does not exist", o.Name)
		return nil
	}
	if err != nil {
		return err
	}
	defer w.Out.Wait("Deleting space %s", o.Name).End()
	if err := w.Client.Orgs().DeleteSpace(ctx, s.GUID); err != nil {
		return fmt.Errorf("cannot delete space %s: %w", o.Name, err)
	}
	w.Out.Say("Deleted space %s", o.Name)
	return w.ForgetTarget(ctx, func(p command.Target) bool { return p.SpaceGUID == s.GUID })
}
