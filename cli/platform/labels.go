package platform

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// LabelsCategory is the heading of the label commands in the help.
const LabelsCategory = "Labels"

// LabelledResource is a resource that can have labels.
type LabelledResource struct{ Name, guid string }

// LabelKind is a type of resource that can have labels, with its name in cf and its
// path in the API.
type LabelKind struct {
	Name, path string
	List       func(ctx context.Context, o LabelOptions, w command.Env) ([]LabelledResource, error)
}

// LabelKinds are all types of resources that can have labels and have names.
var LabelKinds = []LabelKind{
	{"app", "apps", func(ctx context.Context, _ LabelOptions, w command.Env) ([]LabelledResource, error) {
		all, err := w.Client.Apps().List(ctx)
		return resources(all, func(a v3.App) LabelledResource { return LabelledResource{a.Name, a.GUID} }), err
	}},
	{"buildpack", "buildpacks", labelledBuildpacks},
	{"domain", "domains", func(ctx context.Context, _ LabelOptions, w command.Env) ([]LabelledResource, error) {
		all, err := w.Client.Routes().Domains(ctx)
		return resources(all, func(d v3.Domain) LabelledResource { return LabelledResource{d.Name, d.GUID} }), err
	}},
	{"isolation-segment", "isolation_segments", func(ctx context.Context, _ LabelOptions, w command.Env) ([]LabelledResource, error) {
		all, err := client.IsolationSegments.List(ctx, w.Client)
		return resources(all, func(s v3.IsolationSegment) LabelledResource { return LabelledResource{s.Name, s.GUID} }), err
	}},
	{"org", "organizations", func(ctx context.Context, _ LabelOptions, w command.Env) ([]LabelledResource, error) {
		all, err := w.Client.Orgs().List(ctx)
		return resources(all, func(o v3.Organization) LabelledResource { return LabelledResource{o.Name, o.GUID} }), err
	}},
	{"route", "routes", func(ctx context.Context, _ LabelOptions, w command.Env) ([]LabelledResource, error) {
		all, err := w.Client.Routes().List(ctx)
		return resources(all, func(r v3.Route) LabelledResource { return LabelledResource{r.URL, r.GUID} }), err
	}},
	{"service-broker", "service_brokers", func(ctx context.Context, _ LabelOptions, w command.Env) ([]LabelledResource, error) {
		all, err := w.Client.Market().Brokers(ctx)
		return resources(all, func(b v3.ServiceBroker) LabelledResource { return LabelledResource{b.Name, b.GUID} }), err
	}},
	{"service-instance", "service_instances", func(ctx context.Context, _ LabelOptions, w command.Env) ([]LabelledResource, error) {
		all, err := w.Client.Services().List(ctx)
		return resources(all, func(i v3.ServiceInstance) LabelledResource { return LabelledResource{i.Name, i.GUID} }), err
	}},
	{"service-offering", "service_offerings", func(ctx context.Context, o LabelOptions, w command.Env) ([]LabelledResource, error) {
		all, err := w.Client.Market().Offerings(ctx, "", o.Broker)
		return resources(all, func(f v3.ServiceOffering) LabelledResource { return LabelledResource{f.Name, f.GUID} }), err
	}},
	{"service-plan", "service_plans", labelledPlans},
	{"space", "spaces", func(ctx context.Context, _ LabelOptions, w command.Env) ([]LabelledResource, error) {
		org, err := command.FindOrg(ctx, w, "")
		if err != nil {
			return nil, err
		}
		all, err := w.Client.Orgs().SpacesOf(ctx, org.GUID)
		return resources(all, func(s v3.Space) LabelledResource { return LabelledResource{s.Name, s.GUID} }), err
	}},
	{"stack", "stacks", func(ctx context.Context, _ LabelOptions, w command.Env) ([]LabelledResource, error) {
		all, err := w.Client.Bits().Stacks(ctx)
		return resources(all, func(s v3.Stack) LabelledResource { return LabelledResource{s.Name, s.GUID} }), err
	}},
	{"user", "users", func(ctx context.Context, _ LabelOptions, w command.Env) ([]LabelledResource, error) {
		all, err := w.Client.Users().List(ctx)
		return resources(all, func(u v3.User) LabelledResource { return LabelledResource{userName(u), u.GUID} }), err
	}},
}

func resources[T any](all []T, of func(T) LabelledResource) []LabelledResource {
	out := make([]LabelledResource, len(all))
	for i, one := range all {
		out[i] = of(one)
	}
	return out
}

func labelledBuildpacks(ctx context.Context, o LabelOptions, w command.Env) ([]LabelledResource, error) {
	all, err := w.Client.Bits().Buildpacks(ctx)
	all = slices.DeleteFunc(all, func(b v3.Buildpack) bool {
		return o.Stack != "" && (b.Stack == nil || *b.Stack != o.Stack) || o.Lifecycle != "" && b.Lifecycle != o.Lifecycle
	})
	return resources(all, func(b v3.Buildpack) LabelledResource { return LabelledResource{b.Name, b.GUID} }), err
}

func labelledPlans(ctx context.Context, o LabelOptions, w command.Env) ([]LabelledResource, error) {
	offerings, err := w.Client.Market().Offerings(ctx, o.Offering, o.Broker)
	if err != nil {
		return nil, err
	}
	plans, err := w.Client.Market().Plans(ctx, "")
	plans = slices.DeleteFunc(plans, func(p v3.ServicePlan) bool {
		return !slices.ContainsFunc(offerings, func(f v3.ServiceOffering) bool { return f.GUID == p.Relationships.ServiceOffering.ID() })
	})
	return resources(plans, func(p v3.ServicePlan) LabelledResource { return LabelledResource{p.Name, p.GUID} }), err
}

// LabelOptions are the arguments of the label commands.
type LabelOptions struct {
	Kind, Name                         string
	Labels                             []string // KEY=VALUE, or KEY
	Stack, Lifecycle, Broker, Offering string   // distinguish resources that have the same name
}

// LabelCommands are the commands for labels.
func LabelCommands(g *command.Set) []*cli.Command {
	run := func(v command.Verb, fn func(context.Context, LabelOptions, command.Env) error) *cli.Command {
		v.Category = LabelsCategory
		v.About = "RESOURCE is one of " + strings.Join(console.Names(LabelKinds, func(k LabelKind) string { return k.Name }), ", ") + ".\n\n" + v.About
		v.Flags = append(v.Flags,
			&cli.StringFlag{Name: "stack", Aliases: []string{"s"}, Usage: "Buildpack with this `stack`, if several have the same name"},
			&cli.StringFlag{Name: "lifecycle", Aliases: []string{"l"}, Usage: "Buildpack with this `lifecycle`, if several have the same name"},
			&cli.StringFlag{Name: "broker", Aliases: []string{"b"}, Usage: "Service offering or plan of this `broker`, if several have the same name"},
			&cli.StringFlag{Name: "offering", Aliases: []string{"e"}, Usage: "Service plan of this `offering`, if several have the same name"})
		return g.CommandWithEnv(v, func(c *cli.Context, w command.Env) error {
			o := LabelOptions{
				Kind: c.Args().First(), Name: c.Args().Get(1), Stack: c.String("stack"), Lifecycle: c.String("lifecycle"), Broker: c.String("broker"), Offering: c.String("offering"),
			}
			if c.NArg() > 2 {
				o.Labels = c.Args().Slice()[2:]
			}
			return fn(c.Context, o, w)
		})
	}
	return []*cli.Command{
		run(command.Verb{Name: "labels", Args: "RESOURCE RESOURCE_NAME", Usage: "List the labels of a resource", About: "Examples:\n   dew labels app shop\n   dew labels route shop.dew.localhost/api", Flags: []cli.Flag{command.JSONFlag()}}, runLabels),
		run(command.Verb{Name: "set-label", Args: "RESOURCE RESOURCE_NAME KEY=VALUE...", Usage: "Set labels on a resource", About: "Examples:\n   dew set-label app shop env=production team=checkout\n   dew set-label buildpack go_buildpack go=1.25 -s host"}, runSetLabel),
		run(command.Verb{Name: "unset-label", Args: "RESOURCE RESOURCE_NAME KEY...", Usage: "Remove labels from a resource", About: "Example:\n   dew unset-label app shop env team"}, runUnsetLabel),
	}
}

// FindKind is the type of resource that the options name.
func (o LabelOptions) FindKind() (LabelKind, error) {
	names := console.Names(LabelKinds, func(k LabelKind) string { return k.Name })
	if i := slices.Index(names, strings.ToLower(o.Kind)); i >= 0 {
		return LabelKinds[i], nil
	}
	text := fmt.Sprintf("RESOURCE must be one of %s, not %q", strings.Join(names, ", "), o.Kind)
	if near := command.Nearest(o.Kind, names); near != "" {
		text += fmt.Sprintf("; did you mean %s?", near)
	}
	return LabelKind{}, console.UsageError("%s", text)
}

// find is the API path of the resource that the options name.
func (o LabelOptions) find(ctx context.Context, w command.Env) (string, error) {
	k, err := o.FindKind()
	if err != nil {
		return "", err
	}
	all, err := k.List(ctx, o, w)
	if err != nil {
		return "", err
	}
	found := slices.DeleteFunc(slices.Clone(all), func(t LabelledResource) bool { return t.Name != o.Name })
	noun := strings.ReplaceAll(k.Name, "-", " ")
	switch len(found) {
	case 0:
		return "", command.SuggestNearest(&client.Missing{Kind: noun, Name: o.Name}, o.Name, all, func(t LabelledResource) string { return t.Name })
	case 1:
		return "/v3/" + k.path + "/" + found[0].guid, nil
	default:
		flags := map[string]string{"buildpack": "--stack or --lifecycle", "service-offering": "--broker", "service-plan": "--offering and --broker"}[k.Name]
		return "", console.UsageError("%d %ss have the name %s: choose one with %s", len(found), noun, o.Name, cmp.Or(flags, "a unique name"))
	}
}

func runLabels(ctx context.Context, o LabelOptions, w command.Env) error {
	path, err := o.find(ctx, w)
	if err != nil {
		return err
	}
	labels, err := w.Client.Daemon().Labels(ctx, path)
	if err != nil {
		return err
	}
	table := [][]string{{"key", "value"}}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		table = append(table, []string{key, *labels[key]})
	}
	return console.List{Rows: labels, Table: table, Empty: console.Capitalize(o.Kind) + " " + o.Name + " has no labels"}.Show(w.Out)
}

func runSetLabel(ctx context.Context, o LabelOptions, w command.Env) error {
	labels := map[string]*string{}
	for _, text := range o.Labels {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return console.UsageError("a label is KEY=VALUE, not %q", text)
		}
		labels[key] = &value
	}
	return changeLabels(ctx, o, labels, w)
}

func runUnsetLabel(ctx context.Context, o LabelOptions, w command.Env) error {
	labels := map[string]*string{}
	for _, key := range o.Labels {
		labels[key] = nil
	}
	return changeLabels(ctx, o, labels, w)
}

func changeLabels(ctx context.Context, o LabelOptions, labels map[string]*string, w command.Env) error {
	path, err := o.find(ctx, w)
	if err != nil {
		return err
	}
	if err := w.Client.Daemon().SetLabels(ctx, path, labels); err != nil {
		return fmt.Errorf("cannot change the labels of %s %s: %w", o.Kind, o.Name, err)
	}
	w.Out.Say("Changed the labels of %s %s", o.Kind, o.Name)
	return nil
}
