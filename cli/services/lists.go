package services

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

type marketOptions struct {
	Query   client.MarketplaceQuery
	NoPlans bool
}

// Offer is a service plan in the list.
type Offer struct {
	Offering    string `json:"offering"`
	Plan        string `json:"plan"`
	Description string `json:"description"`
	About       string `json:"offering_description"`
	Free        bool   `json:"free"`
	Costs       string `json:"costs,omitempty"`
	Available   bool   `json:"available"`
	Broker      string `json:"broker"`
}

func runMarketplace(ctx context.Context, o marketOptions, api *client.Client, out *console.Console) error {
	m, err := api.Market().Search(ctx, o.Query)
	if err != nil {
		return err
	}
	offers := []Offer{}
	for _, p := range m.Plans {
		f := m.Offerings[p.Relationships.ServiceOffering.ID()]
		offers = append(offers, Offer{
			Offering: f.Name, Plan: p.Name, Description: p.Description, About: f.Description, Free: p.Free, Costs: costs(p.Costs),
			Available: p.Available, Broker: m.Brokers[f.Relationships.ServiceBroker.ID()],
		})
	}
	slices.SortStableFunc(offers, func(a, b Offer) int {
		return cmp.Or(cmp.Compare(a.Offering, b.Offering), cmp.Compare(a.Broker, b.Broker))
	})
	if out.JSON {
		return out.Encode(offers)
	}
	if len(offers) == 0 && (o.Query.Offering != "" || o.Query.Broker != "") {
		return noPlan(ctx, Options{Offering: o.Query.Offering, Broker: o.Query.Broker}, api)
	}
	if len(offers) == 0 {
		out.Say("No service offerings are available in this space")
		return nil
	}
	if o.Query.Offering != "" {
		return out.Table(planRows(offers))
	}
	if err := out.Table(offeringRows(offers, o.NoPlans)); err != nil {
		return err
	}
	if !o.NoPlans && slices.ContainsFunc(offers, func(o Offer) bool { return !o.Free }) {
		out.Say("* Paid plan. To show the costs: dew marketplace -e OFFERING")
	}
	return nil
}

func costs(all []v3.ServiceCost) string {
	var out []string
	for _, c := range all {
		out = append(out, fmt.Sprintf("%s %.2f/%s", strings.ToUpper(c.Currency), c.Amount, strings.ToLower(c.Unit)))
	}
	return strings.Join(out, ", ")
}

func planRows(offers []Offer) [][]string {
	rows := [][]string{{"plan", "description", "free or paid", "costs", "available", "broker"}}
	for _, o := range offers {
		rows = append(rows, []string{o.Plan, console.Printable(o.Description), freeOrPaid(o.Free), o.Costs, console.YesNo(o.Available), o.Broker})
	}
	return rows
}

func freeOrPaid(free bool) string {
	if free {
		return "free"
	}
	return "paid"
}

func offeringRows(offers []Offer, noPlans bool) [][]string {
	rows := [][]string{{"offering", "plans", "description", "broker"}}
	for i, o := range offers {
		plan := o.Plan
		if !o.Free {
			plan += "*" // a paid plan, see below the table
		}
		if i > 0 && offers[i-1].Offering == o.Offering && offers[i-1].Broker == o.Broker {
			rows[len(rows)-1][1] += ", " + plan
			continue
		}
		rows = append(rows, []string{o.Offering, plan, console.Printable(o.About), o.Broker})
	}
	if noPlans {
		for i, r := range rows {
			rows[i] = []string{r[0], r[2], r[3]}
		}
	}
	return rows
}

// noPlan is the error for an unknown service offering or plan. It lists the available
// ones.
func noPlan(ctx context.Context, o Options, api *client.Client) error {
	m, err := api.Market().Search(ctx, client.MarketplaceQuery{Broker: o.Broker})
	if err != nil {
		return err
	}
	var offerings, plans []string
	for _, p := range m.Plans {
		name := m.Offerings[p.Relationships.ServiceOffering.ID()].Name
		offerings = append(offerings, name)
		if name == o.Offering {
			plans = append(plans, p.Name)
		}
	}
	slices.Sort(offerings)
	of := ""
	if o.Broker != "" {
		of = fmt.Sprintf(" of service broker %q", o.Broker)
	}
	switch {
	case len(offerings) == 0:
		return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("no service offering%s is available in this space", of), Advice: "To list all service offerings that you can see: dew marketplace --show-unavailable"}
	case len(plans) == 0:
		return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("service offering %q%s does not exist", o.Offering, of), Advice: "The service offerings are: " + strings.Join(slices.Compact(offerings), ", ")}
	}
	return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("service offering %s has no plan %q", o.Offering, o.Plan), Advice: "Its plans are: " + strings.Join(plans, ", ")}
}

func brokerNames(m client.Marketplace) []string {
	var names []string
	for _, p := range m.Plans {
		names = append(names, m.Brokers[m.Offerings[p.Relationships.ServiceOffering.ID()].Relationships.ServiceBroker.ID()])
	}
	slices.Sort(names)
	return names
}

// boundView is an app that is bound to a service instance.
type boundView struct {
	GUID  string `json:"guid"`
	App   string `json:"app"`
	Name  string `json:"binding_name,omitempty"`
	Last  string `json:"last_operation"`
	About string `json:"description,omitempty"`
}

// text is the name of the app and of the binding, and an operation that did not
// succeed. If there are several bindings, it also has the guid.
func (b boundView) text(alone bool) string {
	var notes []string
	if b.Name != "" {
		notes = append(notes, "as "+b.Name)
	}
	if b.Last != "create succeeded" {
		notes = append(notes, strings.TrimSuffix(b.Last+": "+b.About, ": "))
	}
	if !alone {
		notes = append(notes, "guid "+b.GUID)
	}
	if len(notes) == 0 {
		return b.App
	}
	return b.App + " (" + strings.Join(notes, ", ") + ")"
}

// Row is a service instance in the list.
type Row struct {
	GUID     string   `json:"guid"`
	Name     string   `json:"name"`
	Offering string   `json:"offering"` // "user-provided" where there is none
	Plan     string   `json:"plan,omitempty"`
	Broker   string   `json:"broker,omitempty"`
	Apps     []string `json:"bound_apps"`
	Last     string   `json:"last_operation"`
	About    string   `json:"description,omitempty"`
	Tags     []string `json:"tags,omitempty"`
	Upgrade  bool     `json:"upgrade_available,omitempty"`
	bindings []boundView
}

func runServices(ctx context.Context, noApps bool, api *client.Client, out *console.Console) error {
	all, err := api.Services().List(ctx)
	if err != nil {
		return err
	}
	views, names := []Row{}, &serviceNames{}
	if len(all) > 0 {
		if names, err = readNames(ctx, noApps, api); err != nil {
			return err
		}
	}
	for _, i := range all {
		v, err := names.row(ctx, i)
		if err != nil {
			return err
		}
		views = append(views, v)
	}
	if out.JSON {
		return out.Encode(views)
	}
	if len(views) == 0 {
		out.Say("There are no service instances. To list the available services: dew marketplace")
		return nil
	}
	rows := [][]string{{"name", "offering", "plan", "bound apps", "last operation", "broker", "upgrade", "description"}}
	for _, v := range views {
		about := ""
		if !strings.HasSuffix(v.Last, "succeeded") {
			about = console.Printable(v.About)
		}
		rows = append(rows, []string{v.Name, v.Offering, v.Plan, strings.Join(v.Apps, ", "), v.Last, v.Broker, console.YesNo(v.Upgrade), about})
	}
	return out.Table(rows)
}

// serviceNames finds the names of apps, plans, offerings and brokers by guid.
type serviceNames struct {
	api    *client.Client
	apps   map[string]string
	plans  map[string]v3.ServicePlan
	market client.Marketplace
	noApps bool
}

func readNames(ctx context.Context, noApps bool, api *client.Client) (*serviceNames, error) {
	n := &serviceNames{api: api, apps: map[string]string{}, plans: map[string]v3.ServicePlan{}, noApps: noApps}
	var err error
	if n.market, err = api.Market().Search(ctx, client.MarketplaceQuery{All: true}); err != nil {
		return n, err
	}
	for _, p := range n.market.Plans {
		n.plans[p.GUID] = p
	}
	if noApps {
		return n, nil
	}
	apps, err := api.Apps().List(ctx)
	for _, a := range apps {
		n.apps[a.GUID] = a.Name
	}
	return n, err
}

// offering is the service offering of an instance; empty if the user cannot see it.
func (n *serviceNames) offering(i v3.ServiceInstance) v3.ServiceOffering {
	if i.Relationships.ServicePlan == nil {
		return v3.ServiceOffering{}
	}
	return n.market.Offerings[n.plans[i.Relationships.ServicePlan.ID()].Relationships.ServiceOffering.ID()]
}

func (n *serviceNames) row(ctx context.Context, i v3.ServiceInstance) (Row, error) {
	v := Row{
		GUID: i.GUID, Name: i.Name, Offering: i.Type, Apps: []string{}, Tags: i.Tags, Last: lastOperation(i.LastOperation), About: i.LastOperation.Description,
		Upgrade: i.UpgradeAvailable != nil && *i.UpgradeAvailable, bindings: []boundView{},
	}
	if o := n.offering(i); o.GUID != "" {
		v.Offering, v.Plan, v.Broker = o.Name, n.plans[i.Relationships.ServicePlan.ID()].Name, n.market.Brokers[o.Relationships.ServiceBroker.ID()]
	}
	if n.noApps {
		return v, nil
	}
	bound, err := n.api.Services().Bindings(ctx, client.BindingQuery{Type: v3.BindingApp, Instance: i.GUID})
	for _, b := range bound {
		if b.Relationships.App == nil {
			continue
		}
		app := cmp.Or(n.apps[b.Relationships.App.ID()], "an app in another space")
		v.Apps = append(v.Apps, app)
		v.bindings = append(v.bindings, boundView{GUID: b.GUID, App: app, Name: BindingName(b), Last: lastOperation(b.LastOperation), About: b.LastOperation.Description})
	}
	slices.Sort(v.Apps)
	v.Apps = slices.Compact(v.Apps)
	return v, err
}

func lastOperation(l v3.LastOperation) string { return strings.TrimSpace(l.Type + " " + l.State) }

// View is the output of `dew service`.
type View struct {
	Row
	Type      string      `json:"type"`
	Offers    string      `json:"offering_description,omitempty"`
	Docs      string      `json:"documentation_url,omitempty"`
	Dashboard string      `json:"dashboard_url,omitempty"`
	Drain     string      `json:"syslog_drain_url,omitempty"`
	Route     string      `json:"route_service_url,omitempty"`
	Bindings  []boundView `json:"bindings"`
	Keys      []string    `json:"keys"`
	From      string      `json:"shared_from,omitempty"` // space, or empty for the targeted space
	Shared    []string    `json:"shared_with,omitempty"` // spaces
	Started   v3.Time     `json:"started"`
	Updated   v3.Time     `json:"updated"`
}

func runService(ctx context.Context, o Options, api *client.Client, out *console.Console) error {
	i, err := command.FindService(ctx, api, o.Name)
	switch {
	case err != nil:
		return err
	case o.GUID:
		_, err := fmt.Fprintln(out.Out, i.GUID)
		return err
	case o.Params:
		p, err := api.Services().Parameters(ctx, i.GUID)
		if err != nil {
			return fmt.Errorf("cannot read the parameters of %s: %w", o.Name, err)
		}
		return out.Encode(p)
	}
	v, err := viewService(ctx, i, api)
	switch {
	case err != nil:
		return err
	case out.JSON:
		return out.Encode(v)
	}
	return out.Table(v.rows())
}

func viewService(ctx context.Context, i v3.ServiceInstance, api *client.Client) (View, error) {
	v := View{
		Type: i.Type, Dashboard: i.DashboardURL.Value, Drain: i.SyslogDrainURL.Value, Route: i.RouteServiceURL.Value,
		Started: i.LastOperation.CreatedAt, Updated: i.LastOperation.UpdatedAt,
	}
	names, err := readNames(ctx, false, api)
	if err != nil {
		return v, err
	}
	if v.Row, err = names.row(ctx, i); err != nil {
		return v, err
	}
	v.Bindings = v.bindings
	keys, err := api.Services().Bindings(ctx, client.BindingQuery{Type: v3.BindingKey, Instance: i.GUID})
	if err != nil {
		return v, err
	}
	v.Keys = console.Names(keys, BindingName)
	if i.Type != v3.ServiceManaged {
		return v, nil
	}
	o := names.offering(i)
	if v.Offers = o.Description; o.DocumentationURL != nil {
		v.Docs = *o.DocumentationURL
	}
	if v.From, err = sharingSpace(ctx, i, api); err != nil || v.From != "" {
		return v, err
	}
	v.Shared, err = api.Services().SharedWith(ctx, i.GUID)
	return v, err
}

// sharingSpace is the space that shares an instance with the targeted space; empty if
// the instance belongs to the targeted space.
func sharingSpace(ctx context.Context, i v3.ServiceInstance, api *client.Client) (string, error) {
	here, err := command.SpaceGUID(ctx, api)
	if owner := i.Relationships.Space.ID(); err != nil || owner == "" || owner == here {
		return "", err
	}
	s, err := api.Orgs().Space(ctx, i.Relationships.Space.ID())
	if command.IsMissing(err) {
		return "a space that you cannot see", nil
	}
	return s.Name, err
}

func (v View) rows() [][]string {
	rows := [][]string{{"name:", v.Name}, {"guid:", v.GUID}, {"type:", v.Type}}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name + ":", console.Printable(value)})
		}
	}
	if v.Type == v3.ServiceManaged {
		add("offering", v.Offering)
		add("plan", v.Plan)
		add("broker", v.Broker)
		add("description", v.Offers)
		add("documentation", v.Docs)
	}
	add("tags", strings.Join(v.Tags, ", "))
	add("dashboard", v.Dashboard)
	add("log drain", v.Drain)
	add("route service", v.Route)
	var bound []string
	for _, b := range v.Bindings {
		bound = append(bound, b.text(len(v.Bindings) == len(v.Apps)))
	}
	add("bound apps", strings.Join(bound, ", "))
	add("keys", strings.Join(v.Keys, ", "))
	add("shared from", v.From)
	add("shared with", strings.Join(v.Shared, ", "))
	add("last operation", v.Last)
	add("message", v.About)
	add("started", timeText(v.Started))
	add("updated", timeText(v.Updated))
	if v.Upgrade {
		add("upgrade", "dew upgrade-service "+v.Name)
	}
	return rows
}

// timeText formats a time in the local time zone; empty if there is none.
func timeText(t v3.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateTime)
}
