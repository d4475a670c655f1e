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

const groupsCategory = "Security groups"

// phase is when a group is for the containers of a space: while apps run, or while
// they are staged.
type phase string

const (
	running phase = "running"
	staging phase = "staging"
)

func phaseFlag() cli.Flag {
	return &cli.StringFlag{Name: "lifecycle", Value: string(running), Usage: "`running|staging`: for the containers that apps run in, or those that they are staged in"}
}

// rulesHelp shows what is in a file of rules.
const rulesHelp = `FILE has a JSON array of rules:
   [
     {
       "protocol": "tcp",
       "destination": "10.0.11.0/24",
       "ports": "80,443",
       "description": "http and https of zone A"
     }
   ]`

// groupOptions are the arguments of commands about a security group.
type groupOptions struct {
	Name, File, Org, Space string
	Phase                  phase
	Global                 bool // for all spaces
	Force                  bool
}

// SecurityGroupCommands are about security groups.
func SecurityGroupCommands(g *command.Set) []*cli.Command {
	run := func(v command.Verb, fn func(context.Context, groupOptions, command.Env) error) *cli.Command {
		v.Category = groupsCategory
		return g.CommandWithEnv(v, func(c *cli.Context, w command.Env) error {
			o := groupOptions{Name: c.Args().First(), File: c.Args().Get(1), Org: c.Args().Get(1), Space: cmp.Or(c.Args().Get(2), c.String("space")), Phase: phase(c.String("lifecycle")), Force: c.Bool("f")}
			if c.IsSet("lifecycle") && o.Phase != running && o.Phase != staging {
				return console.UsageError("--lifecycle must be running or staging, not %q", o.Phase)
			}
			if c.IsSet("space") && o.Space == "" { // a variable that is not set is not "all of them"
				return console.UsageError("--space is empty: name a space, or leave it out for all spaces of the org")
			}
			return fn(c.Context, o, w)
		})
	}
	out := []*cli.Command{
		run(command.Verb{Name: "security-groups", Usage: "list the security groups, and which spaces they are for", Flags: []cli.Flag{command.JSONFlag()}}, runGroups),
		run(command.Verb{Name: "security-group", Args: "SECURITY_GROUP", Usage: "show a security group: its rules and the spaces that it is for", Flags: []cli.Flag{command.JSONFlag()}}, runGroup),
		run(command.Verb{Name: "create-security-group", Args: "NAME FILE", Usage: "make a security group of the rules in a file", About: noEffectNote + " One that is there already is fine.\n\n" + rulesHelp}, runCreateGroup),
		run(command.Verb{Name: "update-security-group", Args: "SECURITY_GROUP FILE", Usage: "give a security group the rules in a file", About: noEffectNote + "\n\n" + rulesHelp}, runUpdateGroup),
		run(command.Verb{Name: "delete-security-group", Args: "SECURITY_GROUP", Usage: "delete a security group", Flags: []cli.Flag{command.ForceFlag()}}, func(ctx context.Context, o groupOptions, w command.Env) error {
			return deleteOne(ctx, client.SecurityGroups, command.DeleteOptions{Name: o.Name, Force: o.Force}, w)
		}),
		run(command.Verb{
			Name: "bind-security-group", Args: "SECURITY_GROUP ORG", Usage: "give a security group to a space, or to all that an org has now", About: noEffectNote,
			Flags: []cli.Flag{phaseFlag(), &cli.StringFlag{Name: "space", Usage: "`space` (default: all of the org)"}},
		}, runBindGroup),
		run(command.Verb{Name: "unbind-security-group", Args: "SECURITY_GROUP ORG SPACE", Usage: "take a security group from a space", Flags: []cli.Flag{phaseFlag()}}, runUnbindGroup),
	}
	for _, p := range []phase{running, staging} {
		out = append(out, globalGroups(run, p)...)
	}
	return out
}

// globalGroups are the commands about groups that are for all spaces.
func globalGroups(run func(command.Verb, func(context.Context, groupOptions, command.Env) error) *cli.Command, p phase) []*cli.Command {
	set := func(on bool) func(context.Context, groupOptions, command.Env) error {
		return func(ctx context.Context, o groupOptions, w command.Env) error {
			o.Phase, o.Global = p, on
			return runGlobalGroup(ctx, o, w)
		}
	}
	containers := map[phase]string{running: "for apps that run", staging: "for apps that are staged"}[p]
	return []*cli.Command{
		run(command.Verb{Name: string(p) + "-security-groups", Usage: "list the security groups of all spaces " + containers, Flags: []cli.Flag{command.JSONFlag()}}, func(ctx context.Context, _ groupOptions, w command.Env) error {
			return listGroups(ctx, client.SecurityGroups.Where("globally_enabled_"+string(p), "true"), w)
		}),
		run(command.Verb{Name: "bind-" + string(p) + "-security-group", Args: "SECURITY_GROUP", Usage: "give a security group to all spaces, " + containers, About: noEffectNote}, set(true)),
		run(command.Verb{Name: "unbind-" + string(p) + "-security-group", Args: "SECURITY_GROUP", Usage: "no longer give a security group to all spaces, " + containers}, set(false)),
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

// boundSpace is a space that a group is for.
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

// lines are the spaces of a group for a table.
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
	return console.List{Rows: rows, Table: table, Empty: "There are no such security groups; dew create-security-group makes one"}.Show(w.Out)
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
		w.Out.Say("No space has it; dew bind-security-group gives it to one")
		return nil
	}
	fmt.Fprintln(w.Out.Out)
	return w.Out.Table(append([][]string{{"org", "space", "lifecycle"}}, lines...))
}

// readRules reads a file of rules.
func readRules(file string) ([]v3.SecurityRule, error) {
	b, err := command.ReadSmallFile(file)
	if err != nil {
		return nil, console.UsageError("cannot read the rules in %s: %w", file, err)
	}
	rules, err := parseRules(b)
	if err != nil {
		return nil, console.UsageError("%s must have a JSON array of rules such as [{\"protocol\":\"tcp\",\"destination\":\"10.0.0.0/8\",\"ports\":\"443\"}]: %w", file, err)
	}
	return rules, nil
}

// parseRules reads rules. A key that is misspelt would be a rule that says less than
// was meant.
func parseRules(b []byte) ([]v3.SecurityRule, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var rules []v3.SecurityRule
	if err := dec.Decode(&rules); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is something behind it")
	}
	if rules == nil {
		return nil, errors.New("it is none")
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
		return fmt.Errorf("cannot change security group %s: %w", o.Name, err)
	}
	w.Out.Say("Changed security group %s", o.Name)
	return nil
}

// runGlobalGroup makes a group one of all spaces, or no longer.
func runGlobalGroup(ctx context.Context, o groupOptions, w command.Env) error {
	on := v3.ChangeGloballyEnabled{Running: &o.Global}
	if o.Phase == staging {
		on = v3.ChangeGloballyEnabled{Staging: &o.Global}
	}
	return updateGroup(ctx, o, v3.ChangeSecurityGroup{GloballyEnabled: &on}, w)
}

// find finds the group and the spaces that the options name.
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

// bound are the spaces that have the group.
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
		return fmt.Errorf("cannot give security group %s to spaces of org %s: %w", o.Name, o.Org, err)
	}
	names := console.Names(spaces, func(s v3.Space) string { return s.Name })
	w.Out.Say("Security group %s is for %s of org %s now (%s)", o.Name, strings.Join(names, ", "), o.Org, o.Phase)
	return nil
}

func runUnbindGroup(ctx context.Context, o groupOptions, w command.Env) error {
	g, spaces, err := o.find(ctx, w)
	if err != nil {
		return err
	}
	if !slices.Contains(o.bound(g), v3.GUID{GUID: spaces[0].GUID}) {
		w.Out.Say("Security group %s is not for space %s of org %s (%s)", o.Name, o.Space, o.Org, o.Phase)
		return nil
	}
	to := client.Relation{Name: string(o.Phase) + "_spaces", GUIDs: []string{spaces[0].GUID}}
	if err := client.SecurityGroups.Unrelate(ctx, w.Client, g.GUID, to); err != nil {
		return fmt.Errorf("cannot take security group %s from space %s: %w", o.Name, o.Space, err)
	}
	w.Out.Say("Security group %s is not for space %s of org %s any more (%s)", o.Name, o.Space, o.Org, o.Phase)
	return nil
}
