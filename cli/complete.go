package cli

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
	"github.com/dewrun/dew/cli/kubernetes"
	"github.com/dewrun/dew/cli/platform"
	"github.com/dewrun/dew/cli/services"
	"github.com/dewrun/dew/cli/top"
)

// completer suggests words for shell completion.
type completer struct{ *command.Set }

// words suggests flags, and names for the next argument or for the value of the last
// flag. The name of the argument says which kind of names.
func (g completer) words(v command.Verb) cli.BashCompleteFunc {
	words := strings.Fields(v.Args)
	return func(c *cli.Context) {
		kind := g.flagAtEnd(v)
		n := c.NArg()
		if strings.HasSuffix(v.Args, "...") {
			n = min(n, len(words)-1)
		}
		if kind == "" && n < len(words) {
			kind = strings.Trim(words[n], "[].")
		}
		if kind == "RESOURCE_NAME" {
			kind = strings.ToUpper(c.Args().First())
		}
		names := g.names(c.Context, v, kind)
		if kind == "KEY" || kind == "SNAPSHOT" {
			names = g.ofService(c.Context, c.Args().First(), kind)
		}
		for _, name := range names {
			fmt.Fprintln(c.App.Writer, name)
		}
		cli.DefaultCompleteWithFlags(c.Command)(c)
	}
}

// flagAtEnd is the kind of value that the last word of the command line needs. It is
// empty if that is not a flag with a value.
func (g completer) flagAtEnd(v command.Verb) string {
	if len(g.Typed) < 2 {
		return ""
	}
	last := g.Typed[len(g.Typed)-2]
	if v.Category == platform.LabelsCategory {
		return map[string]string{"-s": "STACK", "--stack": "STACK", "-b": "BROKER", "--broker": "BROKER", "-e": "OFFERING", "--offering": "OFFERING"}[last]
	}
	if v.Category == services.Category || v.Category == services.BrokersCategory {
		if kind := map[string]string{"-b": "BROKER", "-e": "OFFERING", "--service-instance": "SERVICE_INSTANCE"}[last]; kind != "" {
			return kind
		}
	}
	return map[string]string{"-o": "ORG", "-s": "SPACE", "--org": "ORG", "--space": "SPACE", "--service": "SERVICE_INSTANCE", "--sort": "SORT", "--source": "SOURCE_APP"}[last]
}

// names lists the names of a kind. It is empty if the daemon cannot be reached.
func (g completer) names(ctx context.Context, v command.Verb, kind string) []string {
	if kind == "ROLE" {
		return platform.RoleNames(strings.Contains(v.Args, "SPACE"))
	}
	if kind == "SORT" {
		return top.SortNames()
	}
	if kind == "ACTION" && v.Name == "kubernetes" {
		return kubernetes.Actions
	}
	d, err := g.Endpoint()
	if err != nil {
		return nil
	}
	api, err := g.Client(d)
	if err != nil {
		return nil
	}
	w := command.Env{Endpoint: d, Client: api, Out: g.Out}
	switch kind {
	case "OFFERING", "PLAN":
		return g.offered(ctx, api, kind)
	case "ORG_QUOTA", "SPACE_QUOTA":
		k := platform.QuotasOfOrgs
		if kind == "SPACE_QUOTA" {
			k = platform.QuotasOfSpaces
		}
		quotas, err := k.Kind(ctx, "", w)
		if err != nil {
			return nil
		}
		all, _ := quotas.List(ctx, api)
		return console.Names(all, quotas.Name)
	case "SOURCE_APP", "DESTINATION_APP":
		all, _ := api.Apps().List(ctx)
		return console.Names(all, func(a v3.App) string { return a.Name })
	case "SECURITY_GROUP":
		all, _ := client.SecurityGroups.List(ctx, api)
		return console.Names(all, client.SecurityGroups.Name)
	case "RESOURCE":
		return console.Names(platform.LabelKinds, func(k platform.LabelKind) string { return k.Name })
	case "MAIL_ID":
		all, _ := api.Daemon().QueuedMails(ctx, "", 0)
		return console.Names(all.Mails, func(m v3.QueuedMail) string { return m.ID })
	case "FLAG":
		all, _ := api.Daemon().FeatureFlags(ctx)
		return console.Names(all, func(f v3.FeatureFlag) string { return f.Name })
	}
	k, err := platform.LabelOptions{Kind: labelledAs(kind)}.FindKind()
	if err != nil {
		return nil
	}
	all, _ := k.List(ctx, platform.LabelOptions{}, w)
	return console.Names(all, func(t platform.LabelledResource) string { return t.Name })
}

// labelledAs is the kind of labelled resource that an argument names.
func labelledAs(argument string) string {
	switch argument {
	case "BROKER":
		return "service-broker"
	case "SEGMENT":
		return "isolation-segment"
	}
	return strings.ReplaceAll(argument, "_", "-")
}

// ofService lists the service keys or the snapshots of a service instance.
func (g completer) ofService(ctx context.Context, name, kind string) []string {
	d, err := g.Endpoint()
	if err != nil {
		return nil
	}
	api, err := g.Client(d)
	if err != nil {
		return nil
	}
	i, err := api.Services().ByName(ctx, name)
	if err != nil {
		return nil
	}
	if kind == "KEY" {
		keys, _ := api.Services().Bindings(ctx, client.BindingQuery{Type: v3.BindingKey, Instance: i.GUID})
		return console.Names(keys, services.BindingName)
	}
	all, _ := api.Services().Snapshots(ctx, i.GUID)
	return console.Names(all, func(s v3.ServiceSnapshot) string { return s.GUID })
}

// offered lists service offerings, or the plans of the offering on the command line.
func (g completer) offered(ctx context.Context, api *client.Client, kind string) []string {
	m, err := api.Market().Search(ctx, client.MarketplaceQuery{})
	if err != nil {
		return nil
	}
	var names []string
	for _, p := range m.Plans {
		offering := m.Offerings[p.Relationships.ServiceOffering.ID()].Name
		switch {
		case kind == "OFFERING":
			names = append(names, offering)
		case slices.Contains(g.Typed, offering):
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
