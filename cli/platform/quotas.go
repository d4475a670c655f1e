package platform

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

const (
	quotasCategory = "Quotas"
	quotaNote      = "A request that exceeds a quota is refused. What already runs keeps running."
)

// unlimited is the value of a flag for no limit.
const unlimited = "-1"

// limit is one limit of a quota, with the flag that sets it and its heading in tables.
type limit struct {
	flag, head, usage string
	initial           string // default for a new quota
	amount            amount
	read              func(q v3.Quota) *int
	set               func(q *v3.ChangeQuota) *v3.Nullable[int]
}

// amount is the unit of a limit.
type amount int

const (
	counted amount = iota
	megabytes
	bytesPerSecond
)

// limits are all limits of a quota, in the order of the table.
var limits = []limit{
	{
		"m", "total memory", "Total `memory` of all processes, such as 10G; -1 for no limit", "0", megabytes,
		func(q v3.Quota) *int { return q.Apps.TotalMemory }, func(q *v3.ChangeQuota) *v3.Nullable[int] { return &q.Apps.TotalMemory },
	},
	{
		"i", "instance memory", "Maximum `memory` of one process, such as 1G; -1 for no limit", unlimited, megabytes,
		func(q v3.Quota) *int { return q.Apps.PerProcessMemory }, func(q *v3.ChangeQuota) *v3.Nullable[int] { return &q.Apps.PerProcessMemory },
	},
	{
		"r", "routes", "Maximum `number` of routes; -1 for no limit", "0", counted,
		func(q v3.Quota) *int { return q.Routes.TotalRoutes }, func(q *v3.ChangeQuota) *v3.Nullable[int] { return &q.Routes.TotalRoutes },
	},
	{
		"s", "service instances", "Maximum `number` of service instances; -1 for no limit", "0", counted,
		func(q v3.Quota) *int { return q.Services.TotalServiceInstances }, func(q *v3.ChangeQuota) *v3.Nullable[int] { return &q.Services.TotalServiceInstances },
	},
	{
		"a", "app instances", "Maximum `number` of app instances; -1 for no limit", unlimited, counted,
		func(q v3.Quota) *int { return q.Apps.TotalInstances }, func(q *v3.ChangeQuota) *v3.Nullable[int] { return &q.Apps.TotalInstances },
	},
	{
		"reserved-route-ports", "route ports", "Maximum `number` of routes with a port; -1 for no limit", "0", counted,
		func(q v3.Quota) *int { return q.Routes.TotalReservedPorts }, func(q *v3.ChangeQuota) *v3.Nullable[int] { return &q.Routes.TotalReservedPorts },
	},
	{
		"l", "log volume per second", "Maximum log rate of all processes in `bytes` per second, such as 16K; -1 for no limit", unlimited, bytesPerSecond,
		func(q v3.Quota) *int { return q.Apps.LogRateLimit }, func(q *v3.ChangeQuota) *v3.Nullable[int] { return &q.Apps.LogRateLimit },
	},
}

// quotaKind is one of the two types of quotas: of orgs or of spaces.
type quotaKind struct {
	noun string                                                                              // org or space
	has  string                                                                              // the relationship to the orgs or spaces that have it
	Kind func(ctx context.Context, org string, w command.Env) (client.Kind[v3.Quota], error) // org: only for quotas of spaces
	body func(ctx context.Context, w command.Env) (*v3.QuotaRelationships, error)            // relationships of a new quota
}

// QuotasOfOrgs are the quotas of orgs.
var QuotasOfOrgs = quotaKind{
	noun: "org", has: "organizations",
	Kind: func(context.Context, string, command.Env) (client.Kind[v3.Quota], error) {
		return client.OrgQuotas, nil
	},
	body: func(context.Context, command.Env) (*v3.QuotaRelationships, error) { return nil, nil },
}

// QuotasOfSpaces are the quotas of spaces. Each of them belongs to an org.
var QuotasOfSpaces = quotaKind{
	noun: "space", has: "spaces",
	Kind: func(ctx context.Context, org string, w command.Env) (client.Kind[v3.Quota], error) {
		o, err := command.FindOrg(ctx, w, org)
		return client.SpaceQuotas.Where("organization_guids", o.GUID), err
	},
	body: func(ctx context.Context, w command.Env) (*v3.QuotaRelationships, error) {
		o, err := command.FindOrg(ctx, w, "")
		to := v3.To(o.GUID)
		return &v3.QuotaRelationships{Organization: &to}, err
	},
}

// QuotaCommands are the commands for the quotas of orgs and spaces.
func QuotaCommands(g *command.Set) []*cli.Command {
	out := append(quotaVerbs(g, QuotasOfOrgs), quotaVerbs(g, QuotasOfSpaces)...)
	out = append(out, g.CommandWithEnv(command.Verb{Name: "unset-space-quota", Args: "SPACE SPACE_QUOTA", Category: quotasCategory, Usage: "Remove a quota from a space"},
		func(c *cli.Context, w command.Env) error {
			return runAssignQuota(c.Context, quotaOptions{of: QuotasOfSpaces, Place: c.Args().First(), Name: c.Args().Get(1), Unset: true}, w)
		}))
	for _, cmd := range out { // aliases with the older names, such as create-quota
		if strings.Contains(cmd.Name, "org-quota") {
			cmd.Aliases = []string{strings.Replace(cmd.Name, "org-quota", "quota", 1)}
		}
	}
	return out
}

func quotaVerbs(g *command.Set, k quotaKind) []*cli.Command {
	upper, one := strings.ToUpper(k.noun), "a "+k.noun
	if k.noun == "org" {
		one = "an org"
	}
	run := func(v command.Verb, fn func(context.Context, quotaOptions, command.Env) error) *cli.Command {
		v.Category = quotasCategory
		return g.CommandWithEnv(v, func(c *cli.Context, w command.Env) error {
			o := quotaOptions{of: k, Name: c.Args().First(), NewName: c.String("n"), Force: c.Bool("f"), flags: c}
			if c.NArg() == 2 {
				o.Place, o.Name = o.Name, c.Args().Get(1)
			}
			return fn(c.Context, o, w)
		})
	}
	name := func(format string) string { return fmt.Sprintf(format, k.noun) }
	return []*cli.Command{
		run(command.Verb{Name: name("%s-quotas"), Usage: name("List %s quotas"), Flags: []cli.Flag{command.JSONFlag()}}, runQuotas),
		run(command.Verb{Name: name("%s-quota"), Args: upper + "_QUOTA", Usage: "Show " + one + " quota", Flags: []cli.Flag{command.JSONFlag()}}, runQuota),
		run(command.Verb{
			Name: name("create-%s-quota"), Args: "NAME", Usage: "Create " + one + " quota", Flags: limitFlags(true, "allow-paid-service-plans"),
			About: quotaNote + " If the quota already exists, the command succeeds.\n\nExample:\n   dew create-" + k.noun + "-quota small -m 4G -r 20 -s 10",
		}, runCreateQuota),
		run(command.Verb{
			Name: name("update-%s-quota"), Args: upper + "_QUOTA", Usage: "Update " + one + " quota", About: "Limits without a flag stay the same.",
			Flags: append(limitFlags(false, "allow-paid-service-plans", "disallow-paid-service-plans"), &cli.StringFlag{Name: "n", Usage: "New `name`"}),
		}, runUpdateQuota),
		run(command.Verb{Name: name("delete-%s-quota"), Args: upper + "_QUOTA", Usage: "Delete " + one + " quota", Flags: []cli.Flag{command.ForceFlag()}}, runDeleteQuota),
		run(command.Verb{Name: name("set-%s-quota"), Args: upper + " " + upper + "_QUOTA", Usage: "Assign a quota to " + one, About: quotaNote}, runAssignQuota),
	}
}

func quotaFlag() cli.Flag {
	return &cli.StringFlag{Name: "quota", Aliases: []string{"q"}, Usage: "Assign this `quota`"}
}

// limitFlags are the flags of all limits, and flags without a value. The flags of a
// new quota show their defaults.
func limitFlags(isNew bool, others ...string) []cli.Flag {
	var out []cli.Flag
	for _, l := range limits {
		f := &cli.StringFlag{Name: l.flag, Usage: l.usage}
		if isNew {
			f.DefaultText = l.initial
		}
		out = append(out, f)
	}
	for _, name := range others {
		out = append(out, command.BoolFlag(name, console.Capitalize(strings.ReplaceAll(name, "-", " "))))
	}
	return out
}

type quotaOptions struct {
	of                   quotaKind
	Name, NewName, Place string // Place: org or space
	Org                  string // org of the space; empty: the targeted org
	Force, Unset         bool
	flags                *cli.Context
}

// find finds the quota that the options name.
func (o quotaOptions) find(ctx context.Context, w command.Env) (client.Kind[v3.Quota], v3.Quota, error) {
	k, err := o.of.Kind(ctx, o.Org, w)
	if err != nil {
		return k, v3.Quota{}, err
	}
	q, err := findOne(ctx, k, o.Name, w.Client)
	return k, q, err
}

func runQuotas(ctx context.Context, o quotaOptions, w command.Env) error {
	k, err := o.of.Kind(ctx, o.Org, w)
	if err != nil {
		return err
	}
	all, err := k.List(ctx, w.Client)
	if err != nil {
		return err
	}
	head := []string{"name"}
	for _, l := range limits {
		head = append(head, l.head)
	}
	table := [][]string{append(head, "paid service plans")}
	for _, q := range all {
		row := []string{q.Name}
		for _, l := range limits {
			row = append(row, l.show(q))
		}
		table = append(table, append(row, allowed(q.Services.PaidServicesAllowed)))
	}
	return console.List{Rows: append([]v3.Quota{}, all...), Table: table, Empty: "There are no " + o.of.noun + " quotas. To create one: dew create-" + o.of.noun + "-quota NAME"}.Show(w.Out)
}

func allowed(yes bool) string {
	if yes {
		return "allowed"
	}
	return "disallowed"
}

// show formats the limit of a quota in the format of its flag.
func (l limit) show(q v3.Quota) string {
	n := l.read(q)
	switch {
	case n == nil:
		return "unlimited"
	case l.amount == megabytes && *n != 0:
		return console.Mebibytes(*n)
	case l.amount == bytesPerSecond:
		return console.Bytes(int64(*n))
	}
	return strconv.Itoa(*n)
}

// quotaOf is the name of the quota that a filter finds; empty if there is none.
func quotaOf(ctx context.Context, k client.Kind[v3.Quota], w command.Env) (string, error) {
	all, err := k.List(ctx, w.Client)
	if err != nil || len(all) == 0 {
		return "", err
	}
	return all[0].Name, nil
}

func runQuota(ctx context.Context, o quotaOptions, w command.Env) error {
	_, q, err := o.find(ctx, w)
	if err != nil {
		return err
	}
	if w.Out.JSON {
		return w.Out.Encode(q)
	}
	table := [][]string{{"name:", q.Name}}
	for _, l := range limits {
		table = append(table, []string{l.head + ":", l.show(q)})
	}
	table = append(table, []string{"paid service plans:", allowed(q.Services.PaidServicesAllowed)})
	who, err := o.holders(ctx, q, w.Client)
	if err != nil {
		return err
	}
	return w.Out.Facts(append(table, []string{o.of.noun + "s:", strings.Join(who, ", ")}))
}

// holders are the names of the orgs or spaces that have a quota.
func (o quotaOptions) holders(ctx context.Context, q v3.Quota, api *client.Client) ([]string, error) {
	all, err := command.ReadPlaces(ctx, api)
	if err != nil {
		return nil, err
	}
	var names []string
	if to := q.Relationships.Organizations; to != nil {
		for _, d := range to.Data {
			names = append(names, cmp.Or(all.Orgs[d.GUID], d.GUID))
		}
	}
	if to := q.Relationships.Spaces; to != nil {
		for _, d := range to.Data {
			names = append(names, all.SpaceName(d.GUID))
		}
	}
	return names, nil
}

// change reads the flags. A limit without a flag gets its default in a new quota, and
// stays the same in an existing one.
func (o quotaOptions) change(isNew bool) (v3.ChangeQuota, error) {
	var q v3.ChangeQuota
	for _, l := range limits {
		text := o.flags.String(l.flag)
		switch {
		case o.flags.IsSet(l.flag):
		case isNew:
			text = l.initial
		default:
			continue
		}
		n, err := l.parse(text)
		if err != nil {
			return q, console.UsageError("%s: %w", command.Dashed(l.flag), err)
		}
		*l.set(&q) = n
	}
	allow, disallow := o.flags.Bool("allow-paid-service-plans"), o.flags.Bool("disallow-paid-service-plans")
	if allow && disallow {
		return q, console.UsageError("--allow-paid-service-plans and --disallow-paid-service-plans cannot be used together")
	}
	if isNew || allow || disallow {
		q.Services.PaidServicesAllowed = &allow
	}
	return q, nil
}

// parse reads a limit; -1 means no limit.
func (l limit) parse(text string) (v3.Nullable[int], error) {
	if text == unlimited {
		return v3.SetNull[int](), nil
	}
	if text == "0" {
		return v3.Set(0), nil
	}
	switch l.amount {
	case megabytes:
		n, err := app.ParseMB(text)
		return v3.Set(n), err
	case bytesPerSecond:
		n, err := app.ParseRate(text)
		return v3.Set(int(n)), err
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return v3.Set(0), fmt.Errorf("%q is not a valid number: use 0 or more, or -1 for no limit", text)
	}
	return v3.Set(n), nil
}

func runCreateQuota(ctx context.Context, o quotaOptions, w command.Env) error {
	body, err := o.change(true)
	if err != nil {
		return err
	}
	k, err := o.of.Kind(ctx, o.Org, w)
	if err != nil {
		return err
	}
	if body.Relationships, err = o.of.body(ctx, w); err != nil {
		return err
	}
	body.Name = o.Name
	return createOne(ctx, k, o.Name, body, w)
}

func runUpdateQuota(ctx context.Context, o quotaOptions, w command.Env) error {
	body, err := o.change(false)
	if err != nil {
		return err
	}
	k, q, err := o.find(ctx, w)
	if err != nil {
		return err
	}
	if body.Name = o.NewName; o.flags.NumFlags() == 0 {
		return console.UsageError("update-%s-quota needs at least one flag", o.of.noun)
	}
	if q, err = k.Update(ctx, w.Client, q.GUID, body); err != nil {
		return fmt.Errorf("cannot update %s %s: %w", k.Noun, o.Name, err)
	}
	w.Out.Say("Updated %s %s", k.Noun, q.Name)
	return nil
}

func runDeleteQuota(ctx context.Context, o quotaOptions, w command.Env) error {
	k, err := o.of.Kind(ctx, o.Org, w)
	if err != nil {
		return err
	}
	return deleteOne(ctx, k, command.DeleteOptions{Name: o.Name, Force: o.Force}, w)
}

// runAssignQuota assigns a quota to an org or a space, or removes it from a space.
func runAssignQuota(ctx context.Context, o quotaOptions, w command.Env) error {
	k, q, err := o.find(ctx, w)
	if err != nil {
		return err
	}
	guid, err := o.holder(ctx, w)
	if err != nil {
		return err
	}
	to := client.Relation{Name: o.of.has, GUIDs: []string{guid}}
	if o.Unset {
		if has := q.Relationships.Spaces; has != nil && !slices.Contains(has.Data, v3.GUID{GUID: guid}) {
			w.Out.Say("Space %s does not have quota %s", o.Place, o.Name)
			return nil
		}
		if err := k.Unrelate(ctx, w.Client, q.GUID, to); err != nil {
			return fmt.Errorf("cannot remove quota %s from %s %s: %w", o.Name, o.of.noun, o.Place, err)
		}
		w.Out.Say("Removed quota %s from %s %s", o.Name, o.of.noun, o.Place)
		return nil
	}
	if err := k.Relate(ctx, w.Client, q.GUID, to); err != nil {
		return fmt.Errorf("cannot assign quota %s to %s %s: %w", o.Name, o.of.noun, o.Place, err)
	}
	w.Out.Say("Assigned quota %s to %s %s", o.Name, o.of.noun, o.Place)
	return nil
}

// holder is the guid of the org or space that the options name.
func (o quotaOptions) holder(ctx context.Context, w command.Env) (string, error) {
	if o.of.noun == "org" {
		org, err := command.FindOrg(ctx, w, o.Place)
		return org.GUID, err
	}
	_, s, err := command.SpaceOptions{Name: o.Place, Org: o.Org}.Find(ctx, w)
	return s.GUID, err
}
