package services

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// BrokersCategory is the heading of the broker commands in the help.
const BrokersCategory = "Service brokers"

type brokerOptions struct {
	Name, Username, Password, URL string
	NewName                       string
	Scoped, Update, Force, Stdin  bool
}

func brokerCommands(g *command.Set) []*cli.Command {
	about := func(v command.Verb, fn func(context.Context, brokerOptions, *client.Client, *console.Console) error) *cli.Command {
		v.Category = BrokersCategory
		return g.Command(v, func(c *cli.Context, api *client.Client, out *console.Console) error {
			a := c.Args()
			o := brokerOptions{Name: a.First(), Username: a.Get(1), Scoped: c.Bool("space-scoped"), Update: c.Bool("update-if-exists"), Force: c.Bool("f"), Stdin: c.Bool("password-stdin"), NewName: a.Get(1)}
			if o.URL = a.Get(2); a.Len() == 4 { // cf has the password before the URL
				o.Password, o.URL = a.Get(2), a.Get(3)
			}
			return fn(c.Context, o, api, out)
		})
	}
	return append([]*cli.Command{
		about(command.Verb{
			Name: "create-service-broker", Alias: "csb", Args: "BROKER USERNAME [PASSWORD] [URL]", Usage: "Create a service broker",
			About: "If you pass BROKER USERNAME URL, dew reads the password from CF_BROKER_PASSWORD or asks for it. Orgs can use the plans after dew enable-service-access. The plans of a space-scoped broker are available at once.\n\n" +
				"Example:\n   dew create-service-broker paper clerk https://broker.example.com",
			Flags: []cli.Flag{command.BoolFlag("space-scoped", "Make the service plans available only in the targeted space"), command.BoolFlag("update-if-exists", "Update the service broker if it already exists"), command.PasswordFlag()},
		}, runCreateBroker),
		about(command.Verb{
			Name: "update-service-broker", Args: "BROKER USERNAME [PASSWORD] [URL]", Usage: "Update a service broker and read its catalog again",
			About: "If you pass BROKER USERNAME URL, dew reads the password from CF_BROKER_PASSWORD or asks for it.", Flags: []cli.Flag{command.PasswordFlag()},
		}, runUpdateBroker),
		about(command.Verb{Name: "rename-service-broker", Args: "BROKER NEW_NAME", Usage: "Rename a service broker"}, runRenameBroker),
		about(command.Verb{Name: "delete-service-broker", Args: "BROKER", Usage: "Delete a service broker that has no service instances", About: "If the service broker does not exist, the command succeeds.", Flags: []cli.Flag{command.ForceFlag()}}, runDeleteBroker),
		g.Command(command.Verb{Name: "service-brokers", Category: BrokersCategory, Usage: "List service brokers", Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, api *client.Client, out *console.Console) error {
				return runBrokers(c.Context, api, out)
			}),
	}, accessCommands(g)...)
}

// secret reads the password if the command line does not have it.
func (o *brokerOptions) secret(ctx context.Context, out *console.Console) (err error) {
	if o.URL == "" {
		return console.UsageError("no broker URL given: pass BROKER USERNAME URL, or BROKER USERNAME PASSWORD URL")
	}
	if o.Password == "" {
		o.Password, err = out.Password(ctx, console.SecretOptions{Stdin: o.Stdin, Env: "CF_BROKER_PASSWORD", Prompt: "Broker password", Flag: "--password-stdin"})
	}
	return err
}

func (o brokerOptions) authentication() v3.BrokerAuthentication {
	return v3.BrokerAuthentication{Type: v3.AuthenticationBasic, Credentials: v3.BrokerCredentials{Username: o.Username, Password: o.Password}}
}

func runCreateBroker(ctx context.Context, o brokerOptions, api *client.Client, out *console.Console) error {
	if err := o.secret(ctx, out); err != nil {
		return err
	}
	if o.Update {
		_, err := api.Market().BrokerByName(ctx, o.Name)
		if err == nil {
			return runUpdateBroker(ctx, o, api, out)
		}
		if !command.IsMissing(err) {
			return err
		}
	}
	n := v3.CreateServiceBroker{Name: o.Name, URL: o.URL, Authentication: o.authentication()}
	if o.Scoped {
		here, err := command.SpaceGUID(ctx, api)
		if err != nil {
			return err
		}
		to := v3.To(here)
		n.Relationships.Space = &to
	}
	defer out.Wait("Reading the catalog of service broker %s", o.Name).End()
	if err := api.Market().CreateBroker(ctx, n); err != nil {
		return o.notCreated(ctx, api, fmt.Errorf("cannot create service broker %s: %w", o.Name, err))
	}
	out.Say("Created service broker %s", o.Name)
	return nil
}

// notCreated adds advice to the error of a failed creation. A broker whose catalog
// cannot be read still exists.
func (o brokerOptions) notCreated(ctx context.Context, api *client.Client, err error) error {
	if command.ErrorContains(err, "must be unique") {
		return &console.Failure{Status: console.StatusFailed, Err: err, Advice: "A service broker with this name already exists. To change it, use dew update-service-broker or --update-if-exists"}
	}
	if _, none := api.Market().BrokerByName(ctx, o.Name); none != nil {
		return err
	}
	return &console.Failure{
		Status: console.StatusFailed, Err: err,
		Advice: "The service broker was created without its offerings. To read its catalog again, use dew update-service-broker " + o.Name,
	}
}

func runUpdateBroker(ctx context.Context, o brokerOptions, api *client.Client, out *console.Console) error {
	if err := o.secret(ctx, out); err != nil {
		return err
	}
	b, err := findBroker(ctx, api, o.Name)
	if err != nil {
		return err
	}
	with := o.authentication()
	defer out.Wait("Reading the catalog of service broker %s", o.Name).End()
	if err := api.Market().UpdateBroker(ctx, b.GUID, v3.UpdateServiceBroker{URL: &o.URL, Authentication: &with}); err != nil {
		return fmt.Errorf("cannot update service broker %s: %w", o.Name, err)
	}
	out.Say("Updated service broker %s", o.Name)
	return nil
}

// findBroker finds a broker by name. If there is none, the error suggests the nearest
// name.
func findBroker(ctx context.Context, api *client.Client, name string) (v3.ServiceBroker, error) {
	b, err := api.Market().BrokerByName(ctx, name)
	if !command.IsMissing(err) {
		return b, err
	}
	all, lerr := api.Market().Brokers(ctx)
	if lerr != nil {
		return b, lerr
	}
	return b, command.SuggestNearest(err, name, all, func(b v3.ServiceBroker) string { return b.Name })
}

func runRenameBroker(ctx context.Context, o brokerOptions, api *client.Client, out *console.Console) error {
	b, err := findBroker(ctx, api, o.Name)
	if err != nil {
		return err
	}
	if err := api.Market().UpdateBroker(ctx, b.GUID, v3.UpdateServiceBroker{Name: &o.NewName}); err != nil {
		return fmt.Errorf("cannot rename service broker %s: %w", o.Name, err)
	}
	out.Say("Renamed service broker %s to %s", o.Name, o.NewName)
	return nil
}

func runDeleteBroker(ctx context.Context, o brokerOptions, api *client.Client, out *console.Console) error {
	if ok, err := console.ConfirmUnless(ctx, out, o.Force, "Delete service broker "+o.Name); err != nil || !ok {
		return err
	}
	b, err := api.Market().BrokerByName(ctx, o.Name)
	if command.IsMissing(err) {
		out.Say("Service broker %s does not exist", o.Name)
		return nil
	}
	if err != nil {
		return err
	}
	defer out.Wait("Deleting service broker %s", o.Name).End()
	if err := api.Market().DeleteBroker(ctx, b.GUID); err != nil {
		return fmt.Errorf("cannot delete service broker %s: %w", o.Name, err)
	}
	out.Say("Deleted service broker %s", o.Name)
	return nil
}

func runBrokers(ctx context.Context, api *client.Client, out *console.Console) error {
	all, err := api.Market().Brokers(ctx)
	if err != nil {
		return err
	}
	if out.JSON {
		return out.Encode(append([]v3.ServiceBroker{}, all...))
	}
	if len(all) == 0 {
		out.Say("No service brokers are visible to you")
		return nil
	}
	rows := [][]string{{"name", "url"}}
	for _, b := range all {
		rows = append(rows, []string{b.Name, b.URL})
	}
	return out.Table(rows)
}

type accessOptions struct{ Offering, Broker, Plan, Org string }

func accessCommands(g *command.Set) []*cli.Command {
	about := func(v command.Verb, fn func(context.Context, accessOptions, command.Env) error) *cli.Command {
		v.Category = BrokersCategory
		return g.CommandWithEnv(v, func(c *cli.Context, w command.Env) error {
			o := accessOptions{Offering: cmp.Or(c.Args().First(), c.String("e")), Broker: c.String("b"), Plan: c.String("p"), Org: c.String("o")}
			return fn(c.Context, o, w)
		})
	}
	flags := func() []cli.Flag {
		return []cli.Flag{
			brokerFlag(), &cli.StringFlag{Name: "p", Usage: "Change only this `plan` (default: all plans)"}, &cli.StringFlag{Name: "o", Usage: "Change only the access of this `org` (default: all orgs)"},
		}
	}
	return []*cli.Command{
		about(command.Verb{
			Name: "service-access", Usage: "Show which orgs can use which service plans",
			Flags: []cli.Flag{brokerFlag(), &cli.StringFlag{Name: "e", Usage: "Show only the plans of this `offering`"}, &cli.StringFlag{Name: "o", Usage: "Show only the plans that this `org` can use"}, command.JSONFlag()},
		}, runAccess),
		about(command.Verb{Name: "enable-service-access", Args: "OFFERING", Usage: "Allow all orgs, or one org, to use the plans of a service offering", Flags: flags()}, runEnableAccess),
		about(command.Verb{Name: "disable-service-access", Args: "OFFERING", Usage: "Stop all orgs, or one org, from using the plans of a service offering", Flags: flags()}, runDisableAccess),
		g.Command(command.Verb{
			Name: "purge-service-offering", Args: "OFFERING", Category: BrokersCategory, Usage: "Remove a service offering and all its instances without contacting the broker",
			Flags: []cli.Flag{brokerFlag(), command.ForceFlag()},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			o := accessOptions{Offering: c.Args().First(), Broker: c.String("b")}
			if ok, err := console.ConfirmUnless(c.Context, out, c.Bool("f"), "Remove service offering "+o.Offering+" and all its instances without contacting the broker"); err != nil || !ok {
				return err
			}
			return runPurgeOffering(c.Context, o, api, out)
		}),
	}
}

// offering finds the service offering that the options name.
func (o accessOptions) offering(ctx context.Context, api *client.Client) (v3.ServiceOffering, error) {
	all, err := api.Market().Offerings(ctx, o.Offering, o.Broker)
	switch {
	case err != nil:
		return v3.ServiceOffering{}, err
	case len(all) == 0:
		return v3.ServiceOffering{}, &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("service offering %q does not exist", o.Offering), Advice: "To list the service offerings: dew service-access"}
	case len(all) > 1:
		return v3.ServiceOffering{}, console.UsageError("several service brokers offer %s: choose one with -b", o.Offering)
	}
	return all[0], nil
}

// eachPlan calls fn with each service plan that the options name.
func (o accessOptions) eachPlan(ctx context.Context, api *client.Client, fn func(v3.ServicePlan) error) error {
	of, err := o.offering(ctx, api)
	if err != nil {
		return err
	}
	plans, err := api.Market().Plans(ctx, of.GUID)
	if err != nil {
		return err
	}
	found := false
	for _, p := range plans {
		if o.Plan != "" && p.Name != o.Plan {
			continue
		}
		found = true
		if err := fn(p); err != nil {
			return fmt.Errorf("service plan %s: %w", p.Name, err)
		}
	}
	if !found {
		names := console.Names(plans, func(p v3.ServicePlan) string { return p.Name })
		return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("service offering %s has no plan %q", o.Offering, o.Plan), Advice: "Its plans are: " + strings.Join(names, ", ")}
	}
	return nil
}

func runEnableAccess(ctx context.Context, o accessOptions, w command.Env) error {
	to := v3.PlanVisibility{Type: v3.VisibilityPublic}
	if o.Org != "" {
		org, err := command.FindOrg(ctx, w, o.Org)
		if err != nil {
			return err
		}
		to = v3.PlanVisibility{Type: v3.VisibilityOrganization, Organizations: []v3.NamedGUID{{GUID: org.GUID}}}
	}
	err := o.eachPlan(ctx, w.Client, func(p v3.ServicePlan) error {
		if o.Org != "" && p.VisibilityType == v3.VisibilityPublic {
			return nil // all orgs can use it already
		}
		return w.Client.Market().ShowPlan(ctx, p.GUID, to)
	})
	if err != nil {
		return fmt.Errorf("cannot enable access to %s: %w", o.Offering, err)
	}
	w.Out.Say("Enabled access to %s", o.Offering)
	return nil
}

func runDisableAccess(ctx context.Context, o accessOptions, w command.Env) error {
	org := v3.Organization{}
	if o.Org != "" {
		var err error
		if org, err = command.FindOrg(ctx, w, o.Org); err != nil {
			return err
		}
	}
	err := o.eachPlan(ctx, w.Client, func(p v3.ServicePlan) error {
		if o.Org == "" {
			return w.Client.Market().SetPlanVisibility(ctx, p.GUID, v3.PlanVisibility{Type: v3.VisibilityAdmin})
		}
		if p.VisibilityType == v3.VisibilityPublic {
			return console.UsageError("it is enabled for all orgs: disable it for all orgs first, then enable it for the orgs you choose")
		}
		if p.VisibilityType != v3.VisibilityOrganization {
			return nil
		}
		return w.Client.Market().HidePlan(ctx, p.GUID, org.GUID)
	})
	if err != nil {
		return fmt.Errorf("cannot disable access to %s: %w", o.Offering, err)
	}
	w.Out.Say("Disabled access to %s", o.Offering)
	return nil
}

// AccessRow is a service plan and the orgs that can use it.
type AccessRow struct {
	Broker   string   `json:"broker"`
	Offering string   `json:"offering"`
	Plan     string   `json:"plan"`
	Access   string   `json:"access"`
	Orgs     []string `json:"orgs,omitempty"`
}

func runAccess(ctx context.Context, o accessOptions, w command.Env) error {
	org := v3.Organization{}
	if o.Org != "" {
		var err error
		if org, err = command.FindOrg(ctx, w, o.Org); err != nil {
			return err
		}
	}
	m, err := w.Client.Market().Search(ctx, client.MarketplaceQuery{Offering: o.Offering, Broker: o.Broker, All: true})
	if err != nil {
		return err
	}
	if len(m.Plans) == 0 && (o.Offering != "" || o.Broker != "") {
		return &console.Failure{Status: console.StatusFailed, Err: errors.New("no matching service offering found"), Advice: "To list all service offerings: dew service-access"}
	}
	all := []AccessRow{}
	for _, p := range m.Plans {
		f := m.Offerings[p.Relationships.ServiceOffering.ID()]
		r := AccessRow{Broker: m.Brokers[f.Relationships.ServiceBroker.ID()], Offering: f.Name, Plan: p.Name, Access: p.VisibilityType}
		matches, err := r.readOrgs(ctx, p, org.GUID, w.Client)
		if err != nil {
			return err
		}
		if matches {
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b AccessRow) int {
		return cmp.Or(cmp.Compare(a.Broker, b.Broker), cmp.Compare(a.Offering, b.Offering))
	})
	if w.Out.JSON {
		return w.Out.Encode(all)
	}
	rows := [][]string{{"broker", "offering", "plan", "access", "orgs"}}
	for _, r := range all {
		rows = append(rows, []string{r.Broker, r.Offering, r.Plan, r.Access, strings.Join(r.Orgs, ", ")})
	}
	return w.Out.Table(rows)
}

// readOrgs fills in the orgs that can use a plan, and reports whether the org with the
// guid can use it. An empty guid matches all plans.
func (r *AccessRow) readOrgs(ctx context.Context, p v3.ServicePlan, guid string, api *client.Client) (bool, error) {
	if p.VisibilityType != v3.VisibilityOrganization {
		return guid == "" || p.VisibilityType == v3.VisibilityPublic, nil
	}
	v, err := api.Market().PlanVisibility(ctx, p.GUID)
	r.Orgs = console.Names(v.Organizations, func(n v3.NamedGUID) string { return n.Name })
	return guid == "" || slices.ContainsFunc(v.Organizations, func(n v3.NamedGUID) bool { return n.GUID == guid }), err
}

func runPurgeOffering(ctx context.Context, o accessOptions, api *client.Client, out *console.Console) error {
	of, err := o.offering(ctx, api)
	if err != nil {
		return err
	}
	defer out.Wait("Purging service offering %s", of.Name).End()
	if err := api.Market().PurgeOffering(ctx, of.GUID); err != nil {
		return fmt.Errorf("cannot purge service offering %s: %w", o.Offering, err)
	}
	out.Say("Purged service offering %s", o.Offering)
	return nil
}
