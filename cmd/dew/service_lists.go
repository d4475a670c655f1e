package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
)

type marketOptions struct {
	Query   client.MarketplaceQuery
	NoPlans bool
}

// offer is a plan in the list.
type offer struct {
	Offering    string `json:"offering"`
	Plan        string `json:"plan"`
	Description string `json:"description"`
	About       string `json:"offering_description"`
	Free        bool   `json:"free"`
	Costs       string `json:"costs,omitempty"`
	Available   bool   `json:"available"`
	Broker      string `json:"broker"`
}

func runMarketplace(ctx context.Context, o marketOptions, ask *client.Client, out *console) error {
	m, err := ask.Marketplace(ctx, o.Query)
	if err != nil {
		return err
	}
	offers := []offer{}
	for _, p := range m.Plans {
		f := m.Offerings[p.Relationships.ServiceOffering.Data.GUID]
		offers = append(offers, offer{
			Offering: f.Name, Plan: p.Name, Description: p.Description, About: f.Description, Free: p.Free, Costs: costs(p.Costs),
			Available: p.Available, Broker: m.Brokers[f.Relationships.ServiceBroker.Data.GUID],
		})
	}
	slices.SortStableFunc(offers, func(a, b offer) int {
		return cmp.Or(cmp.Compare(a.Offering, b.Offering), cmp.Compare(a.Broker, b.Broker))
	})
	if out.json {
		return out.encode(offers)
	}
	if len(offers) == 0 {
		out.say("There is nothing to be had here")
		return nil
	}
	if o.Query.Offering != "" {
		return out.table(planRows(offers))
	}
	return out.table(offeringRows(offers, o.NoPlans))
}

func costs(all []v3.ServiceCost) string {
	var out []string
	for _, c := range all {
		out = append(out, fmt.Sprintf("%s %.2f/%s", strings.ToUpper(c.Currency), c.Amount, strings.ToLower(c.Unit)))
	}
	return strings.Join(out, ", ")
}

func planRows(offers []offer) [][]string {
	rows := [][]string{{"plan", "description", "free or paid", "costs", "available", "broker"}}
	for _, o := range offers {
		rows = append(rows, []string{o.Plan, shown(o.Description), paid(o.Free), o.Costs, yesNo(o.Available), o.Broker})
	}
	return rows
}

func paid(free bool) string {
	if free {
		return "free"
	}
	return "paid"
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

func offeringRows(offers []offer, noPlans bool) [][]string {
	rows := [][]string{{"offering", "plans", "description", "broker"}}
	for i, o := range offers {
		plan := o.Plan
		if !o.Free {
			plan += "*" // somebody is to pay for it
		}
		if i > 0 && offers[i-1].Offering == o.Offering && offers[i-1].Broker == o.Broker {
			rows[len(rows)-1][1] += ", " + plan
			continue
		}
		rows = append(rows, []string{o.Offering, plan, shown(o.About), o.Broker})
	}
	if noPlans {
		for i, r := range rows {
			rows[i] = []string{r[0], r[2], r[3]}
		}
	}
	return rows
}

// serviceRow is a service instance in the list.
type serviceRow struct {
	GUID     string   `json:"guid"`
	Name     string   `json:"name"`
	Offering string   `json:"offering"` // "user-provided" where there is none
	Plan     string   `json:"plan,omitempty"`
	Apps     []string `json:"bound_apps"`
	Last     string   `json:"last_operation"`
	About    string   `json:"description,omitempty"`
	Tags     []string `json:"tags,omitempty"`
}

func runServices(ctx context.Context, noApps bool, ask *client.Client, out *console) error {
	all, err := ask.Services(ctx)
	if err != nil {
		return err
	}
	names, err := readNames(ctx, noApps || len(all) == 0, ask)
	if err != nil {
		return err
	}
	views := []serviceRow{}
	for _, i := range all {
		v, err := names.row(ctx, i)
		if err != nil {
			return err
		}
		views = append(views, v)
	}
	if out.json {
		return out.encode(views)
	}
	if len(views) == 0 {
		out.say("There are no service instances: dew marketplace lists what can be had")
		return nil
	}
	rows := [][]string{{"name", "offering", "plan", "bound apps", "last operation", "description"}}
	for _, v := range views {
		about := ""
		if !strings.HasSuffix(v.Last, "succeeded") {
			about = shown(v.About)
		}
		rows = append(rows, []string{v.Name, v.Offering, v.Plan, strings.Join(v.Apps, ", "), v.Last, about})
	}
	return out.table(rows)
}

// serviceNames finds the names that stand behind guids, each once.
type serviceNames struct {
	ask       *client.Client
	apps      map[string]string
	plans     map[string]v3.ServicePlan
	offerings map[string]v3.ServiceOffering
	noApps    bool
}

func readNames(ctx context.Context, noApps bool, ask *client.Client) (*serviceNames, error) {
	n := &serviceNames{ask: ask, apps: map[string]string{}, plans: map[string]v3.ServicePlan{}, offerings: map[string]v3.ServiceOffering{}, noApps: noApps}
	if noApps {
		return n, nil
	}
	apps, err := ask.Apps(ctx)
	for _, a := range apps {
		n.apps[a.GUID] = a.Name
	}
	return n, err
}

// plan reads the plan of an instance and its offering; false: it has none.
func (n *serviceNames) plan(ctx context.Context, i v3.ServiceInstance) (p v3.ServicePlan, o v3.ServiceOffering, ok bool, err error) {
	if i.Relationships.ServicePlan == nil || i.Relationships.ServicePlan.Data == nil {
		return p, o, false, nil
	}
	guid := i.Relationships.ServicePlan.Data.GUID
	if _, known := n.plans[guid]; !known {
		p, err = n.ask.ServicePlan(ctx, guid)
		if client.NotFound(err) {
			return p, o, false, nil // nobody who looks from here may see it
		}
		if err != nil {
			return p, o, false, err
		}
		if o, err = n.ask.ServiceOffering(ctx, p.Relationships.ServiceOffering.Data.GUID); err != nil {
			return p, o, false, err
		}
		n.plans[guid], n.offerings[guid] = p, o
	}
	return n.plans[guid], n.offerings[guid], true, nil
}

func (n *serviceNames) row(ctx context.Context, i v3.ServiceInstance) (serviceRow, error) {
	v := serviceRow{GUID: i.GUID, Name: i.Name, Offering: i.Type, Apps: []string{}, Tags: i.Tags, Last: lastOperation(i.LastOperation), About: i.LastOperation.Description}
	p, o, ok, err := n.plan(ctx, i)
	if err != nil {
		return v, err
	}
	if ok {
		v.Offering, v.Plan = o.Name, p.Name
	}
	if n.noApps {
		return v, nil
	}
	bound, err := n.ask.Bindings(ctx, client.BindingQuery{Type: v3.BindingApp, Instance: i.GUID})
	for _, b := range bound {
		if b.Relationships.App == nil || b.Relationships.App.Data == nil {
			continue
		}
		v.Apps = append(v.Apps, cmp.Or(n.apps[b.Relationships.App.Data.GUID], "an app of another space"))
	}
	slices.Sort(v.Apps)
	return v, err
}

func lastOperation(l v3.LastOperation) string { return strings.TrimSpace(l.Type + " " + l.State) }

// serviceView is how a service instance does.
type serviceView struct {
	serviceRow
	Type      string          `json:"type"`
	Dashboard string          `json:"dashboard_url,omitempty"`
	Drain     string          `json:"syslog_drain_url,omitempty"`
	Route     string          `json:"route_service_url,omitempty"`
	Upgrade   bool            `json:"upgrade_available,omitempty"`
	Keys      []string        `json:"keys"`
	Started   v3.Time         `json:"started"`
	Updated   v3.Time         `json:"updated"`
	Params    json.RawMessage `json:"parameters,omitempty"`
}

func runService(ctx context.Context, o serviceOptions, ask *client.Client, out *console) error {
	i, err := findService(ctx, ask, o.Name)
	switch {
	case err != nil:
		return err
	case o.GUID:
		_, err := fmt.Fprintln(out.out, i.GUID)
		return err
	case o.Params:
		p, err := ask.ServiceParameters(ctx, i.GUID)
		if err != nil {
			return fmt.Errorf("cannot read the parameters of %s: %w", o.Name, err)
		}
		return out.encode(p)
	}
	names, err := readNames(ctx, false, ask)
	if err != nil {
		return err
	}
	row, err := names.row(ctx, i)
	if err != nil {
		return err
	}
	keys, err := ask.Bindings(ctx, client.BindingQuery{Type: v3.BindingKey, Instance: i.GUID})
	if err != nil {
		return err
	}
	v := serviceView{
		serviceRow: row, Type: i.Type, Dashboard: i.DashboardURL.Value, Drain: i.SyslogDrainURL.Value, Route: i.RouteServiceURL.Value,
		Upgrade: i.UpgradeAvailable != nil && *i.UpgradeAvailable, Started: i.LastOperation.CreatedAt, Updated: i.LastOperation.UpdatedAt,
		Keys: namesOf(keys, bindingName),
	}
	if out.json {
		return out.encode(v)
	}
	return out.table(v.rows())
}

func (v serviceView) rows() [][]string {
	rows := [][]string{{"name:", v.Name}, {"guid:", v.GUID}, {"type:", v.Type}}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name + ":", shown(value)})
		}
	}
	if v.Type == v3.ServiceManaged {
		add("offering", v.Offering)
		add("plan", v.Plan)
	}
	add("tags", strings.Join(v.Tags, ", "))
	add("dashboard", v.Dashboard)
	add("log drain", v.Drain)
	add("route service", v.Route)
	add("bound apps", strings.Join(v.Apps, ", "))
	add("keys", strings.Join(v.Keys, ", "))
	add("last operation", v.Last)
	add("message", v.About)
	if v.Upgrade {
		add("upgrade", "dew upgrade-service "+v.Name)
	}
	return rows
}
