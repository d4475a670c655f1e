package platform

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// policyOptions are the arguments of the commands for network policies.
type policyOptions struct {
	Source, Destination string // names of apps
	Org, Space          string // of the destination
	Protocol, Port      string
}

const policyNote = "dew refuses connections between apps that no network policy allows, if dewd runs with --network-policies on. The policy takes effect at once."

// NetworkPolicyCommands are the commands for network policies.
func NetworkPolicyCommands(g *command.Set) []*cli.Command {
	run := func(v command.Verb, fn func(context.Context, policyOptions, command.Env) error) *cli.Command {
		v.Category = "Network policies"
		return g.CommandWithEnv(v, func(c *cli.Context, w command.Env) error {
			o := policyOptions{Source: c.Args().First(), Destination: c.Args().Get(1), Org: c.String("o"), Space: c.String("s"), Protocol: c.String("protocol"), Port: c.String("port")}
			if c.IsSet("source") {
				o.Source = c.String("source")
			}
			return fn(c.Context, o, w)
		})
	}
	flags := []cli.Flag{
		&cli.StringFlag{Name: "protocol", Value: "tcp", Usage: "Protocol of the connections: `tcp|udp`"},
		&cli.StringFlag{Name: "port", Value: "8080", Usage: "Port or `range` of ports of the destination app, such as 8080-8090"},
		&cli.StringFlag{Name: "s", Usage: "Space of the destination app (default: the targeted `space`)"},
		&cli.StringFlag{Name: "o", Usage: "Org of the destination app, together with -s (default: the targeted `org`)"},
	}
	return []*cli.Command{
		run(command.Verb{
			Name: "network-policies", Usage: "List the network policies of the apps in the targeted space",
			Flags: []cli.Flag{command.JSONFlag(), &cli.StringFlag{Name: "source", Usage: "List only the policies of this source `app`"}},
		}, runPolicies),
		run(command.Verb{
			Name: "add-network-policy", Args: "SOURCE_APP DESTINATION_APP", Usage: "Allow connections from one app to another", Flags: flags,
			About: policyNote + "\n\nExample:\n   dew add-network-policy frontend backend --protocol tcp --port 8080-8090",
		}, runAddPolicy),
		run(command.Verb{Name: "remove-network-policy", Args: "SOURCE_APP DESTINATION_APP", Usage: "Remove a network policy between two apps", Flags: flags, About: "Connections that are already open stay open."}, runRemovePolicy),
	}
}

// policyRow is a network policy in the list.
type policyRow struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
	Protocol    string `json:"protocol"`
	Ports       string `json:"ports"`
	Space       string `json:"destination_space"`
	Org         string `json:"destination_org"`
}

func runPolicies(ctx context.Context, o policyOptions, w command.Env) error {
	apps, err := w.Client.Apps().List(ctx)
	if err != nil {
		return err
	}
	if o.Source != "" {
		a, err := command.FindApp(ctx, w.Client, o.Source)
		if err != nil {
			return err
		}
		apps = []v3.App{a}
	}
	name := map[string]string{}
	for _, a := range apps {
		name[a.GUID] = a.Name
	}
	all, err := w.Client.Routes().Policies(ctx)
	if err != nil {
		return err
	}
	places, err := command.ReadPlaces(ctx, w.Client)
	if err != nil {
		return err
	}
	rows, table := []policyRow{}, [][]string{{"source", "destination", "protocol", "ports", "destination space", "destination org"}}
	all = slices.DeleteFunc(all, func(p v3.NetworkPolicy) bool { return name[p.Source.ID] == "" })
	targets, err := destinationsOf(ctx, all, w.Client)
	if err != nil {
		return err
	}
	for _, p := range all {
		to := targets[p.Destination.ID]
		at := places.Spaces[to.Relationships.Space.Data.GUID]
		r := policyRow{name[p.Source.ID], to.Name, p.Destination.Protocol, portText(p.Destination.Ports), at.Space, at.Org}
		rows, table = append(rows, r), append(table, []string{r.Source, r.Destination, r.Protocol, r.Ports, r.Space, r.Org})
	}
	return console.List{Rows: rows, Table: table, Empty: "No network policies found"}.Show(w.Out)
}

// destinationsOf returns the destination apps of policies by guid.
func destinationsOf(ctx context.Context, ps []v3.NetworkPolicy, api *client.Client) (map[string]v3.App, error) {
	var guids []string
	for _, p := range ps {
		guids = append(guids, p.Destination.ID)
	}
	out := map[string]v3.App{}
	apps, err := api.Apps().ByGUID(ctx, guids...)
	for _, a := range apps {
		out[a.GUID] = a
	}
	return out, err
}

func portText(p v3.NetworkPolicyPorts) string {
	if p.Start == p.End {
		return strconv.Itoa(p.Start)
	}
	return fmt.Sprintf("%d-%d", p.Start, p.End)
}

func runAddPolicy(ctx context.Context, o policyOptions, w command.Env) error {
	p, err := o.policy(ctx, w)
	if err != nil {
		return err
	}
	if err := w.Client.Routes().AddPolicy(ctx, p); err != nil {
		return fmt.Errorf("cannot add the network policy: %w", err)
	}
	w.Out.Say("App %s can connect to app %s, %s port %s", o.Source, o.Destination, o.Protocol, portText(p.Destination.Ports))
	return nil
}

func runRemovePolicy(ctx context.Context, o policyOptions, w command.Env) error {
	p, err := o.policy(ctx, w)
	if err != nil {
		return err
	}
	all, err := w.Client.Routes().Policies(ctx)
	if err != nil {
		return err
	}
	for _, one := range all {
		if one != p {
			continue
		}
		if err := w.Client.Routes().RemovePolicy(ctx, p); err != nil {
			return fmt.Errorf("cannot remove the network policy: %w", err)
		}
		w.Out.Say("Removed the network policy from app %s to app %s, %s port %s", o.Source, o.Destination, o.Protocol, portText(p.Destination.Ports))
		return nil
	}
	return &console.Failure{
		Status: console.StatusFailed,
		Err:    fmt.Errorf("there is no network policy from app %s to app %s, %s port %s", o.Source, o.Destination, o.Protocol, portText(p.Destination.Ports)),
		Advice: "List the network policies: dew network-policies",
	}
}

// policy resolves the names of the apps.
func (o policyOptions) policy(ctx context.Context, w command.Env) (p v3.NetworkPolicy, err error) {
	if p.Destination.Ports, err = parsePortRange(o.Port); err != nil {
		return p, err
	}
	if o.Protocol != "tcp" && o.Protocol != "udp" {
		return p, console.UsageError("--protocol must be tcp or udp, not %q", o.Protocol)
	}
	if o.Org != "" && o.Space == "" {
		return p, console.UsageError("-o needs -s: pass the space of the destination app")
	}
	from, err := command.FindApp(ctx, w.Client, o.Source)
	if err != nil {
		return p, err
	}
	to, err := o.destination(ctx, w)
	if err != nil {
		return p, err
	}
	p.Source.ID, p.Destination.ID, p.Destination.Protocol = from.GUID, to.GUID, o.Protocol
	return p, nil
}

// destination finds the destination app, in another space if one is given.
func (o policyOptions) destination(ctx context.Context, w command.Env) (v3.App, error) {
	if o.Space == "" {
		return command.FindApp(ctx, w.Client, o.Destination)
	}
	org, err := command.FindOrg(ctx, w, o.Org)
	if err != nil {
		return v3.App{}, err
	}
	space, err := w.Client.Orgs().SpaceByName(ctx, org.GUID, o.Space)
	if err != nil {
		return v3.App{}, err
	}
	apps, err := w.Client.Apps().ListIn(ctx, space.GUID)
	if err != nil {
		return v3.App{}, err
	}
	for _, a := range apps {
		if a.Name == o.Destination {
			return a, nil
		}
	}
	return v3.App{}, command.SuggestNearest(&client.NoApp{Name: o.Destination}, o.Destination, apps, func(a v3.App) string { return a.Name })
}

func parsePortRange(text string) (p v3.NetworkPolicyPorts, err error) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	start, err1 := strconv.ParseUint(from, 10, 16)
	end, err2 := strconv.ParseUint(to, 10, 16)
	if err1 != nil || err2 != nil || start == 0 || start > end {
		return p, console.UsageError("--port %q is not a port or a range of ports, such as 8080 or 8080-8090", text)
	}
	return v3.NetworkPolicyPorts{Start: int(start), End: int(end)}, nil
}
