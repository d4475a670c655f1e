package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
)

const brokersCategory = "Service brokers"

type brokerOptions struct {
	Name, Username, Password, URL string
	Scoped, Update, Force         bool
}

func brokerCommands(g *global) []*cli.Command {
	about := func(v verb, fn func(context.Context, brokerOptions, *client.Client, *console) error) *cli.Command {
		v.category = brokersCategory
		return g.command(v, func(c *cli.Context, ask *client.Client, out *console) error {
			a := c.Args()
			o := brokerOptions{Name: a.First(), Username: a.Get(1), Scoped: c.Bool("space-scoped"), Update: c.Bool("update-if-exists"), Force: c.Bool("f")}
			if o.URL = a.Get(2); a.Len() == 4 { // cf has the password before the URL
				o.Password, o.URL = a.Get(2), a.Get(3)
			}
			return fn(c.Context, o, ask, out)
		})
	}
	return append([]*cli.Command{
		about(verb{
			name: "create-service-broker", alias: "csb", args: "BROKER USERNAME [PASSWORD] [URL]", usage: "make a broker's offerings known",
			about: "With BROKER USERNAME URL the password is asked for, or read from CF_BROKER_PASSWORD. Its plans can be had after dew enable-service-access.",
			flags: []cli.Flag{boolFlag("space-scoped", "only for the space"), boolFlag("update-if-exists", "one that has the name is changed")},
		}, runCreateBroker),
		about(verb{
			name: "update-service-broker", args: "BROKER USERNAME [PASSWORD] [URL]", usage: "change a broker, and read its catalog again",
		}, runUpdateBroker),
		about(verb{name: "delete-service-broker", args: "BROKER", usage: "forget a broker that has no instances", about: "One that is not there is fine.", flags: []cli.Flag{forceFlag()}}, runDeleteBroker),
		g.command(verb{name: "service-brokers", category: brokersCategory, usage: "list the brokers", flags: []cli.Flag{jsonFlag()}},
			func(c *cli.Context, ask *client.Client, out *console) error { return runBrokers(c.Context, ask, out) }),
	}, accessCommands(g)...)
}

// secret fills in the password that the command line does not have.
func (o *brokerOptions) secret(ctx context.Context, out *console) (err error) {
	if o.URL == "" {
		return usage("the broker needs a URL: BROKER USERNAME URL, or BROKER USERNAME PASSWORD URL")
	}
	if o.Password == "" {
		o.Password, err = out.password(ctx, secretOptions{Env: "CF_BROKER_PASSWORD", Prompt: "Password of the broker", Flag: "PASSWORD on the command line"})
	}
	return err
}

func (o brokerOptions) authentication() v3.BrokerAuthentication {
	return v3.BrokerAuthentication{Type: v3.AuthenticationBasic, Credentials: v3.BrokerCredentials{Username: o.Username, Password: o.Password}}
}

func runCreateBroker(ctx context.Context, o brokerOptions, ask *client.Client, out *console) error {
	if err := o.secret(ctx, out); err != nil {
		return err
	}
	if o.Update {
		_, err := ask.ServiceBrokerByName(ctx, o.Name)
		if err == nil {
			return runUpdateBroker(ctx, o, ask, out)
		}
		if missing := (*client.Missing)(nil); !errors.As(err, &missing) {
			return err
		}
	}
	n := v3.CreateServiceBroker{Name: o.Name, URL: o.URL, Authentication: o.authentication()}
	if o.Scoped {
		here, err := space(ctx, ask)
		if err != nil {
			return err
		}
		to := v3.To(here)
		n.Relationships.Space = &to
	}
	if err := ask.CreateServiceBroker(ctx, n); err != nil {
		return fmt.Errorf("cannot create service broker %s: %w", o.Name, err)
	}
	out.say("Created service broker %s", o.Name)
	return nil
}

func runUpdateBroker(ctx context.Context, o brokerOptions, ask *client.Client, out *console) error {
	if err := o.secret(ctx, out); err != nil {
		return err
	}
	b, err := ask.ServiceBrokerByName(ctx, o.Name)
	if err != nil {
		return err
	}
	with := o.authentication()
	if err := ask.UpdateServiceBroker(ctx, b.GUID, v3.UpdateServiceBroker{URL: &o.URL, Authentication: &with}); err != nil {
		return fmt.Errorf("cannot update service broker %s: %w", o.Name, err)
	}
	out.say("Updated service broker %s", o.Name)
	return nil
}

func runDeleteBroker(ctx context.Context, o brokerOptions, ask *client.Client, out *console) error {
	if ok, err := (serviceOptions{Force: o.Force}).sure(ctx, out, "Really delete service broker "+o.Name); err != nil || !ok {
		return err
	}
	b, err := ask.ServiceBrokerByName(ctx, o.Name)
	if missing := (*client.Missing)(nil); errors.As(err, &missing) {
		out.say("Service broker %s is not there", o.Name)
		return nil
	}
	if err != nil {
		return err
	}
	if err := ask.DeleteServiceBroker(ctx, b.GUID); err != nil {
		return fmt.Errorf("cannot delete service broker %s: %w", o.Name, err)
	}
	out.say("Deleted service broker %s", o.Name)
	return nil
}

func runBrokers(ctx context.Context, ask *client.Client, out *console) error {
	all, err := ask.ServiceBrokers(ctx)
	if err != nil {
		return err
	}
	if out.json {
		return out.encode(all)
	}
	rows := [][]string{{"name", "url"}}
	for _, b := range all {
		rows = append(rows, []string{b.Name, b.URL})
	}
	return out.table(rows)
}

type accessOptions struct{ Offering, Broker, Plan, Org string }

func accessCommands(g *global) []*cli.Command {
	about := func(v verb, fn func(context.Context, accessOptions, where) error) *cli.Command {
		v.category = brokersCategory
		return g.commandAt(v, func(c *cli.Context, w where) error {
			o := accessOptions{Offering: cmp.Or(c.Args().First(), c.String("e")), Broker: c.String("b"), Plan: c.String("p"), Org: c.String("o")}
			return fn(c.Context, o, w)
		})
	}
	flags := func() []cli.Flag {
		return []cli.Flag{
			brokerFlag(), &cli.StringFlag{Name: "p", Usage: "only the `plan`"}, &cli.StringFlag{Name: "o", Usage: "only for the `org`"},
		}
	}
	return []*cli.Command{
		about(verb{
			name: "service-access", usage: "list who may have which plan",
			flags: []cli.Flag{brokerFlag(), &cli.StringFlag{Name: "e", Usage: "of one `offering`"}, jsonFlag()},
		}, runAccess),
		about(verb{name: "enable-service-access", args: "OFFERING", usage: "let everybody, or an org, have the plans of an offering", flags: flags()}, runEnableAccess),
		about(verb{name: "disable-service-access", args: "OFFERING", usage: "take that back", flags: flags()}, runDisableAccess),
		g.command(verb{
			name: "purge-service-offering", args: "OFFERING", category: brokersCategory, usage: "forget an offering and all its instances without asking the broker",
			flags: []cli.Flag{brokerFlag(), forceFlag()},
		}, func(c *cli.Context, ask *client.Client, out *console) error {
			o := accessOptions{Offering: c.Args().First(), Broker: c.String("b")}
			if ok, err := (serviceOptions{Force: c.Bool("f")}).sure(c.Context, out, "Really forget offering "+o.Offering+" and all its instances"); err != nil || !ok {
				return err
			}
			return runPurgeOffering(c.Context, o, ask, out)
		}),
	}
}

// offering finds the one that is meant.
func (o accessOptions) offering(ctx context.Context, ask *client.Client) (v3.ServiceOffering, error) {
	all, err := ask.ServiceOfferings(ctx, o.Offering, o.Broker)
	switch {
	case err != nil:
		return v3.ServiceOffering{}, err
	case len(all) == 0:
		return v3.ServiceOffering{}, &failure{status: statusFailed, err: fmt.Errorf("there is no offering %q", o.Offering), todo: "dew service-access lists them"}
	case len(all) > 1:
		return v3.ServiceOffering{}, usage("several brokers offer %s: say which with -b", o.Offering)
	}
	return all[0], nil
}

// eachPlan calls fn with the plans that are meant.
func (o accessOptions) eachPlan(ctx context.Context, ask *client.Client, fn func(v3.ServicePlan) error) error {
	of, err := o.offering(ctx, ask)
	if err != nil {
		return err
	}
	plans, err := ask.ServicePlans(ctx, of.GUID)
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
			return fmt.Errorf("plan %s: %w", p.Name, err)
		}
	}
	if !found {
		names := namesOf(plans, func(p v3.ServicePlan) string { return p.Name })
		return &failure{status: statusFailed, err: fmt.Errorf("offering %s has no plan %q", o.Offering, o.Plan), todo: "its plans are: " + strings.Join(names, ", ")}
	}
	return nil
}

func runEnableAccess(ctx context.Context, o accessOptions, w where) error {
	to := v3.PlanVisibility{Type: v3.VisibilityPublic}
	if o.Org != "" {
		org, err := findOrg(ctx, w, o.Org)
		if err != nil {
			return err
		}
		to = v3.PlanVisibility{Type: v3.VisibilityOrganization, Organizations: []v3.NamedGUID{{GUID: org.GUID}}}
	}
	err := o.eachPlan(ctx, w.ask, func(p v3.ServicePlan) error {
		if o.Org != "" && p.VisibilityType == v3.VisibilityPublic {
			return nil // the org has it with everybody
		}
		return w.ask.ShowPlan(ctx, p.GUID, to)
	})
	if err != nil {
		return fmt.Errorf("cannot enable access to %s: %w", o.Offering, err)
	}
	w.out.say("Enabled access to %s", o.Offering)
	return nil
}

func runDisableAccess(ctx context.Context, o accessOptions, w where) error {
	org := v3.Organization{}
	if o.Org != "" {
		var err error
		if org, err = findOrg(ctx, w, o.Org); err != nil {
			return err
		}
	}
	err := o.eachPlan(ctx, w.ask, func(p v3.ServicePlan) error {
		if o.Org == "" {
			return w.ask.SetPlanVisibility(ctx, p.GUID, v3.PlanVisibility{Type: v3.VisibilityAdmin})
		}
		if p.VisibilityType == v3.VisibilityPublic {
			return usage("everybody has it: disable it for all first, then enable it for those who shall have it")
		}
		if p.VisibilityType != v3.VisibilityOrganization {
			return nil
		}
		return w.ask.HidePlan(ctx, p.GUID, org.GUID)
	})
	if err != nil {
		return fmt.Errorf("cannot disable access to %s: %w", o.Offering, err)
	}
	w.out.say("Disabled access to %s", o.Offering)
	return nil
}

// accessRow is a plan and who may have it.
type accessRow struct {
	Offering string   `json:"offering"`
	Plan     string   `json:"plan"`
	Access   string   `json:"access"`
	Orgs     []string `json:"orgs,omitempty"`
}

func runAccess(ctx context.Context, o accessOptions, w where) error {
	offerings, err := w.ask.ServiceOfferings(ctx, o.Offering, o.Broker)
	if err != nil {
		return err
	}
	all, rows := []accessRow{}, [][]string{{"offering", "plan", "access", "orgs"}}
	for _, of := range offerings {
		plans, err := w.ask.ServicePlans(ctx, of.GUID)
		if err != nil {
			return err
		}
		for _, p := range plans {
			r := accessRow{Offering: of.Name, Plan: p.Name, Access: p.VisibilityType}
			if p.VisibilityType == v3.VisibilityOrganization {
				v, err := w.ask.PlanVisibility(ctx, p.GUID)
				if err != nil {
					return err
				}
				r.Orgs = namesOf(v.Organizations, func(n v3.NamedGUID) string { return n.Name })
			}
			all, rows = append(all, r), append(rows, []string{r.Offering, r.Plan, r.Access, strings.Join(r.Orgs, ", ")})
		}
	}
	if w.out.json {
		return w.out.encode(all)
	}
	return w.out.table(rows)
}

func runPurgeOffering(ctx context.Context, o accessOptions, ask *client.Client, out *console) error {
	of, err := o.offering(ctx, ask)
	if err != nil {
		return err
	}
	if err := ask.PurgeServiceOffering(ctx, of.GUID); err != nil {
		return fmt.Errorf("cannot purge offering %s: %w", o.Offering, err)
	}
	out.say("Purged offering %s", o.Offering)
	return nil
}
