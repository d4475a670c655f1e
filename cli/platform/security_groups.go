package platform

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

const (
	groupsCategory = "Security groups"
	groupNote      = "Security groups allow connections of apps to other machines. Changes take effect at once, if dewd runs with --network-policies on."
)

// phase is when a security group applies to the containers of a space: while apps run,
// or while they are staged.
type phase string

const (
	running phase = "running"
	staging phase = "staging"
)

func phaseFlag() cli.Flag {
	return &cli.StringFlag{Name: "lifecycle", Value: string(running), Usage: "Phase of apps in which the group applies: `running|staging`"}
}

// rulesHelp shows the format of a file with rules.
const rulesHelp = `FILE contains a JSON array of rules:
   [
     {
       "protocol": "tcp",
       "destination": "10.0.11.0/24",
       "ports": "80,443",
       "description": "HTTP and HTTPS to zone A"
     }
   ]`

// groupOptions are the arguments of the commands for security groups.
type groupOptions struct {
	Name, File, Org, Space string
	Phase                  phase
	Global                 bool // apply the group to all spaces
	Force                  bool
}

// SecurityGroupCommands are the commands for security groups.
func SecurityGroupCommands(g *command.Set) []*cli.Command {
	run := func(v command.Verb, fn func(context.Context, groupOptions, command.Env) error) *cli.Command {
		v.Category = groupsCategory
		return g.CommandWithEnv(v, func(c *cli.Context, w command.Env) error {
			o := groupOptions{Name: c.Args().First(), File: c.Args().Get(1), Org: c.Args().Get(1), Space: cmp.Or(c.Args().Get(2), c.String("space")), Phase: phase(c.String("lifecycle")), Force: c.Bool("f")}
			if c.IsSet("lifecycle") && o.Phase != running && o.Phase != staging {
				return console.UsageError("--lifecycle must be running or staging, not %q", o.Phase)
			}
			if c.IsSet("space") && o.Space == "" { // an unset shell variable must not mean all spaces
				return console.UsageError("--space is empty: pass the name of a space, or omit --space to bind all spaces of the org")
			}
			return fn(c.Context, o, w)
		})
	}
	out := []*cli.Command{
		run(command.Verb{Name: "security-groups", Usage: "List security groups and the spaces they are bound to", Flags: []cli.Flag{command.JSONFlag()}}, runGroups),
		run(command.Verb{Name: "security-group", Args: "SECURITY_GROUP", Usage: "Show the rules of a security group and the spaces it is bound to", Flags: []cli.Flag{command.JSONFlag()}}, runGroup),
		run(command.Verb{Name: "create-security-group", Args: "NAME FILE", Usage: "Create a security group with the rules in a file", About: groupNote + " If the security group already exists, the command succeeds.\n\n" + rulesHelp}, runCreateGroup),
		run(command.Verb{Name: "update-security-group", Args: "SECURITY_GROUP FILE", Usage: "Replace the rules of a security group with the rules in a file", About: groupNote + "\n\n" + rulesHelp}, runUpdateGroup),
		run(command.Verb{Name: "delete-security-group", Args: "SECURITY_GROUP", Usage: "Delete a security group", Flags: []cli.Flag{command.ForceFlag()}}, func(ctx context.Context, o groupOptions, w command.Env) error {
			return deleteOne(ctx, client.SecurityGroups, command.DeleteOptions{Name: o.Name, Force: o.Force}, w)
		}),
		run(command.Verb{
			Name: "bind-security-group", Args: "SECURITY_GROUP ORG", Usage: "Bind a security group to a space, or to all existing spaces of an org", About: groupNote,
			Flags: []cli.Flag{phaseFlag(), &cli.StringFlag{Name: "space", Usage: "Bind only this `space` (default: all spaces of the org)"}},
		}, runBindGroup),
		run(command.Verb{Name: "unbind-security-group", Args: "SECURITY_GROUP ORG SPACE", Usage: "Unbind a security group from a space", Flags: []cli.Flag{phaseFlag()}}, runUnbindGroup),
	}
	for _, p := range []phase{running, staging} {
		out = append(out, globalGroups(run, p)...)
	}
	return out
}

// globalGroups are the commands for security groups that apply to all spaces.
func globalGroups(run func(command.Verb, func(context.Context, groupOptions, command.Env) error) *cli.Command, p phase) []*cli.Command {
	set := func(on bool) func(context.Context, groupOptions, command.Env) error {
		return func(ctx context.Context, o groupOptions, w command.Env) error {
			o.Phase, o.Global = p, on
			return runGlobalGroup(ctx, o, w)
		}
	}
	scope := map[phase]string{running: "running apps in all spaces", staging: "the staging of apps in all spaces"}[p]
	return []*cli.Command{
		run(command.Verb{Name: string(p) + "-security-groups", Usage: "List the security groups for " + scope, Flags: []cli.Flag{command.JSONFlag()}}, func(ctx context.Context, _ groupOptions, w command.Env) error {
			return listGroups(ctx, client.SecurityGroups.Where("globally_enabled_"+string(p), "true"), w)
		}),
		run(command.Verb{Name: "bind-" + string(p) + "-security-group", Args: "SECURITY_GROUP", Usage: "Bind a security group to " + scope, About: groupNote}, set(true)),
		run(command.Verb{Name: "unbind-" + string(p) + "-security-group", Args: "SECURITY_GROUP", Usage: "Unbind a security group from " + scope}, set(false)),
	}
}

// groupRow is a security group in the list.
type groupRow struct {
	GUID     string             `json:"guid"`
	Name     string             `json:"name"`
	Rules    []v3.SecurityRule  `json:"rules"`
	Globally v3.GloballyEnabled `json:"globally_enabled"`
	Spaces   []boundSpace       `json:"spaces"`
}

// boundSpace is a space that a security group is bound to.
type boundSpace struct {
	Org       string `json:"org"`
	Space     string `json:"space"`
	Lifecycle phase  `json:"lifecycle"`
}

func viewGroup(g v3.SecurityGroup, all command.Places) groupRow {
	r := groupRow{GUID: g.GUID, Name: g.Name, Rules: g.Rules, Globally: g.GloballyEnabled, Spaces: []boundSpace{}}
	add := func(to v3.ToMany, p phase) {
		for _, d := range to.Data {
			at := all.Spaces[d.GUID]
			r.Spaces = append(r.Spaces, boundSpace{at.Org, at.Space, p})
		}
	}
	add(g.Relationships.RunningSpaces, running)
	add(g.Relationships.StagingSpaces, staging)
	slices.SortFunc(r.Spaces, func(a, b boundSpace) int {
		return cmp.Or(cmp.Compare(a.Org, b.Org), cmp.Compare(a.Space, b.Space), cmp.Compare(a.Lifecycle, b.Lifecycle))
	})
	return r
}

// lines are the table rows of the spaces that the security group is bound to.
func (r groupRow) lines() [][]string {
	var out [][]string
	if r.Globally.Running {
		out = append(out, []string{"all", "all", string(running)})
	}
	if r.Globally.Staging {
		out = append(out, []string{"all", "all", string(staging)})
	}
	for _, s := range r.Spaces {
		out = append(out, []string{s.Org, s.Space, string(s.Lifecycle)})
	}
	return out
}

func runGroups(ctx context.Context, _ groupOptions, w command.Env) error {
	return listGroups(ctx, client.SecurityGroups, w)
}

func listGroups(ctx context.Context, k client.Kind[v3.SecurityGroup], w command.Env) error {
	groups, err := k.List(ctx, w.Client)
	if err != nil {
		return err
	}
	all, err := command.ReadPlaces(ctx, w.Client)
	if err != nil {
		return err
	}
	rows, table := []groupRow{}, [][]string{{"name", "org", "space", "lifecycle"}}
	for _, g := range groups {
		r := viewGroup(g, all)
		rows = append(rows, r)
		lines := r.lines()
		if len(lines) == 0 {
			lines = [][]string{nil}
		}
		for i, line := range lines {
			name := r.Name
			if i > 0 {
				name = ""
			}
			table = append(table, append([]string{name}, line...))
		}
	}
	return console.List{Rows: rows, Table: table, Empty: "No security groups found. To create one: dew create-security-group NAME FILE"}.Show(w.Out)
}

func runGroup(ctx context.Context, o groupOptions, w command.Env) error {
	g, err := findOne(ctx, client.SecurityGroups, o.Name, w.Client)
	if err != nil {
		return err
	}
	all, err := command.ReadPlaces(ctx, w.Client)
	if err != nil {
		return err
	}
	r := viewGroup(g, all)
	if w.Out.JSON {
		return w.Out.Encode(r)
	}
	fmt.Fprintf(w.Out.Out, "name:   %s\nrules:\n", r.Name)
	if err := w.Out.Encode(r.Rules); err != nil {
		return err
	}
	lines := r.lines()
	if len(lines) == 0 {
		w.Out.Say("The security group is not bound to any space. To bind it: dew bind-security-group %s ORG", r.Name)
		return nil
	}
	fmt.Fprintln(w.Out.Out)
	return w.Out.Table(append([][]string{{"org", "space", "lifecycle"}}, lines...))
}

// readRules reads a file with rules.
func readRules(file string) ([]v3.SecurityRule, error) {
	b, err := command.ReadSmallFile(file)
	if err != nil {
		return nil, console.UsageError("cannot read the rules in %s: %w", file, err)
	}
	rules, err := parseRules(b)
	if err != nil {
		return nil, console.UsageError("%s must contain a JSON array of rules, such as [{\"protocol\":\"tcp\",\"destination\":\"10.0.0.0/8\",\"ports\":\"443\"}]: %w", file, err)
	}
	return rules, nil
}

// parseRules reads rules. It rejects unknown keys, because a rule with a misspelt key
// would do less than its author intended.
func parseRules(b []byte) ([]v3.SecurityRule, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var rules []v3.SecurityRule
	if err := dec.Decode(&rules); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more data after the array")
	}
	if rules == nil {
		return nil, errors.New("it contains null")
	}
	return rules, nil
}

func runCreateGroup(ctx context.Context, o groupOptions, w command.Env) error {
	rules, err := readRules(o.File)
	if err != nil {
		return err
	}
	return createOne(ctx, client.SecurityGroups, o.Name, v3.ChangeSecurityGroup{Name: o.Name, Rules: &rules}, w)
}

func runUpdateGroup(ctx context.Context, o groupOptions, w command.Env) error {
	rules, err := readRules(o.File)
	if err != nil {
		return err
	}
	return updateGroup(ctx, o, v3.ChangeSecurityGroup{Rules: &rules}, w)
}

func updateGroup(ctx context.Context, o groupOptions, body v3.ChangeSecurityGroup, w command.Env) error {
	g, err := findOne(ctx, client.SecurityGroups, o.Name, w.Client)
	if err != nil {
		return err
	}
	if _, err := client.SecurityGroups.Update(ctx, w.Client, g.GUID, body); err != nil {
		return fmt.Errorf("cannot update security group %s: %w", o.Name, err)
	}
	w.Out.Say("Updated security group %s", o.Name)
	return nil
}

// runGlobalGroup binds a security group to all spaces, or unbinds it from all spaces.
func runGlobalGroup(ctx context.Context, o groupOptions, w command.Env) error {
	on := v3.ChangeGloballyEnabled{Running: &o.Global}
	if o.Phase == staging {
		on = v3.ChangeGloballyEnabled{Staging: &o.Global}
	}
	return updateGroup(ctx, o, v3.ChangeSecurityGroup{GloballyEnabled: &on}, w)
}

// find finds the security group and the spaces that the options name.
func (o groupOptions) find(ctx context.Context, w command.Env) (v3.SecurityGroup, []v3.Space, error) {
	g, err := findOne(ctx, client.SecurityGroups, o.Name, w.Client)
	if err != nil {
		return g, nil, err
	}
	spaces, err := o.spaces(ctx, w)
	return g, spaces, err
}

// spaces are the spaces that the options name.
func (o groupOptions) spaces(ctx context.Context, w command.Env) ([]v3.Space, error) {
	org, err := command.FindOrg(ctx, w, o.Org)
	if err != nil {
		return nil, err
	}
	if o.Space == "" {
		return w.Client.Orgs().SpacesOf(ctx, org.GUID)
	}
	s, err := command.FindSpace(ctx, w, org, o.Space)
	return []v3.Space{s}, err
}

// bound are the spaces that the security group is bound to.
func (o groupOptions) bound(g v3.SecurityGroup) []v3.GUID {
	if o.Phase == staging {
		return g.Relationships.StagingSpaces.Data
	}
	return g.Relationships.RunningSpaces.Data
}

func runBindGroup(ctx context.Context, o groupOptions, w command.Env) error {
	g, spaces, err := o.find(ctx, w)
	if err != nil {
		return err
	}
	if len(spaces) == 0 {
		w.Out.Say("Org %s has no spaces", o.Org)
		return nil
	}
	to := client.Relation{Name: string(o.Phase) + "_spaces", GUIDs: console.Names(spaces, func(s v3.Space) string { return s.GUID })}
	if err := client.SecurityGroups.Relate(ctx, w.Client, g.GUID, to); err != nil {
		return fmt.Errorf("cannot bind security group %s to spaces of org %s: %w", o.Name, o.Org, err)
	}
	names := console.Names(spaces, func(s v3.Space) string { return s.Name })
	noun := "space"
	if len(names) > 1 {
		noun = "spaces"
	}
	w.Out.Say("Bound security group %s to %s %s of org %s (%s)", o.Name, noun, strings.Join(names, ", "), o.Org, o.Phase)
	return nil
}

func runUnbindGroup(ctx context.Context, o groupOptions, w command.Env) error {
	g, spaces, err := o.find(ctx, w)
	if err != nil {
		return err
	}
	if !slices.Contains(o.bound(g), v3.GUID{GUID: spaces[0].GUID}) {
		w.Out.Say("Security group %s is not bound to space %s of org %s (%s)", o.Name, o.Space, o.Org, o.Phase)
		return nil
	}
	to := client.Relation{Name: string(o.Phase) + "_spaces", GUIDs: []string{spaces[0].GUID}}
	if err := client.SecurityGroups.Unrelate(ctx, w.Client, g.GUID, to); err != nil {
		return fmt.Errorf("cannot unbind security group %s from space %s: %w", o.Name, o.Space, err)
	}
	w.Out.Say("Unbound security group %s from space %s of org %s (%s)", o.Name, o.Space, o.Org, o.Phase)
	return nil
}
