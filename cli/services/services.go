package services

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// Category is the heading of these commands in the help.
const Category = "Services"

// Options are the arguments and flags of commands about one service instance.
type Options struct {
	Offering, Plan, Name string
	NewName              string
	Broker               string
	Parameters           string // JSON, or the name of a file with it
	Tags                 *[]string
	Wait, Force          bool
	GUID, Params         bool
}

func readService(c *cli.Context) Options {
	o := Options{
		Name: c.Args().First(), NewName: c.Args().Get(1), Broker: c.String("b"), Parameters: c.String("c"), Plan: c.String("p"),
		Wait: c.Bool("wait"), Force: c.Bool("f"), GUID: c.Bool("guid"), Params: c.Bool("params"),
	}
	if c.IsSet("t") {
		tags := splitList(c.String("t"))
		o.Tags = &tags
	}
	return o
}

// splitList reads names that stand between commas.
func splitList(text string) []string {
	out := []string{}
	for _, word := range strings.Split(text, ",") {
		if word = strings.TrimSpace(word); word != "" {
			out = append(out, word)
		}
	}
	return out
}

func paramsFlag() cli.Flag {
	return &cli.StringFlag{Name: "c", Usage: "parameters for the broker: a `JSON` object, or a file with one"}
}

func waitFlag() cli.Flag {
	return &cli.BoolFlag{Name: "wait", Aliases: []string{"w"}, Usage: "wait until the operation has ended", DisableDefaultText: true}
}

func tagsFlag() cli.Flag { return &cli.StringFlag{Name: "t", Usage: "`tags`, with commas between"} }

func brokerFlag() cli.Flag {
	return &cli.StringFlag{Name: "b", Usage: "`name` of the broker, where several have such an offering"}
}

// Commands are all commands about services.
func Commands(g *command.Set) []*cli.Command {
	about := func(v command.Verb, fn func(context.Context, Options, *client.Client, *console.Console) error) *cli.Command {
		v.Category = Category
		return g.Command(v, func(c *cli.Context, ask *client.Client, out *console.Console) error {
			return fn(c.Context, readService(c), ask, out)
		})
	}
	return slices.Concat([]*cli.Command{
		g.Command(command.Verb{
			Name: "marketplace", Alias: "m", Category: Category, Usage: "list what services can be had",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "e", Usage: "the plans of one `offering`"}, brokerFlag(),
				command.BoolFlag("no-plans", "only the offerings"), command.BoolFlag("show-unavailable", "also what cannot be had"), command.JSONFlag(),
			},
		}, func(c *cli.Context, ask *client.Client, out *console.Console) error {
			o := marketOptions{NoPlans: c.Bool("no-plans"), Query: client.MarketplaceQuery{Offering: c.String("e"), Broker: c.String("b"), All: c.Bool("show-unavailable")}}
			return runMarketplace(c.Context, o, ask, out)
		}),
		g.Command(command.Verb{
			Name: "create-service", Alias: "cs", Args: "OFFERING PLAN SERVICE_INSTANCE", Category: Category, Usage: "make a service instance",
			About: "It takes a while; dew services tells how far it is, --wait waits for it. One that has the name already is fine.\n\n" +
				"Example:\n   dew create-service postgres small db --wait",
			Flags: []cli.Flag{paramsFlag(), tagsFlag(), brokerFlag(), waitFlag()},
		}, func(c *cli.Context, ask *client.Client, out *console.Console) error {
			o := readService(c)
			o.Offering, o.Plan, o.Name = c.Args().Get(0), c.Args().Get(1), strings.TrimSpace(c.Args().Get(2))
			return Create(c.Context, o, ask, out)
		}),
		about(command.Verb{
			Name: "update-service", Args: "SERVICE_INSTANCE", Usage: "change the plan, parameters or tags of a service instance",
			Flags: []cli.Flag{&cli.StringFlag{Name: "p", Usage: "another `plan`"}, paramsFlag(), tagsFlag(), waitFlag()},
		}, runUpdateService),
		about(command.Verb{
			Name: "upgrade-service", Args: "SERVICE_INSTANCE", Usage: "give a service instance the newest version of its plan", Flags: []cli.Flag{command.ForceFlag(), waitFlag()},
		}, runUpgradeService),
		about(command.Verb{Name: "rename-service", Args: "SERVICE_INSTANCE NEW_NAME", Usage: "rename a service instance"}, runRenameService),
		about(command.Verb{
			Name: "delete-service", Alias: "ds", Args: "SERVICE_INSTANCE", Usage: "delete a service instance with its data",
			About: "What is bound to it is unbound first. One that is not there is fine.", Flags: []cli.Flag{command.ForceFlag(), waitFlag()},
		}, runDeleteService),
		g.Command(command.Verb{
			Name: "services", Alias: "s", Category: Category, Usage: "list the service instances of the space",
			Flags: []cli.Flag{command.BoolFlag("no-apps", "without the apps that are bound"), command.JSONFlag()},
		}, func(c *cli.Context, ask *client.Client, out *console.Console) error {
			return runServices(c.Context, c.Bool("no-apps"), ask, out)
		}),
		about(command.Verb{
			Name: "service", Args: "SERVICE_INSTANCE", Usage: "tell how a service instance does",
			Flags: []cli.Flag{command.BoolFlag("guid", "only its guid"), command.BoolFlag("params", "its parameters, as the broker knows them"), command.JSONFlag()},
		}, runService),
		about(command.Verb{
			Name: "purge-service-instance", Args: "SERVICE_INSTANCE", Usage: "forget a service instance without asking its broker",
			About: "For instances whose broker is gone for good: whatever the broker has of it stays there.", Flags: []cli.Flag{command.ForceFlag()},
		}, runPurgeService),
	}, bindingCommands(g), keyCommands(g), providedCommands(g), brokerCommands(g), snapshotCommands(g))
}

// Create creates a service instance, and waits for it if the options say so.
func Create(ctx context.Context, o Options, ask *client.Client, out *console.Console) error {
	params, err := command.ReadJSONObject("-c", o.Parameters)
	if err != nil {
		return err
	}
	m, err := ask.Market().Search(ctx, client.MarketplaceQuery{Offering: o.Offering, Plan: o.Plan, Broker: o.Broker})
	if err != nil {
		return err
	}
	switch {
	case len(m.Plans) == 0:
		return noPlan(ctx, o, ask)
	case len(m.Plans) > 1:
		return console.UsageError("several brokers offer %s: say which with -b (%s)", o.Offering, strings.Join(brokerNames(m), ", "))
	}
	n := v3.CreateServiceInstance{Type: v3.ServiceManaged, Name: o.Name, Parameters: params}
	if o.Tags != nil {
		n.Tags = *o.Tags
	}
	plan := v3.To(m.Plans[0].GUID)
	n.Relationships.ServicePlan = &plan
	out.Say("Creating service instance %s ...", o.Name)
	job, err := ask.Services().Create(ctx, n)
	if command.ErrorContains(err, "name is taken") {
		return alreadyExists(ctx, o, ask, out)
	}
	if err != nil {
		return fmt.Errorf("cannot create service instance %s: %w", o.Name, err)
	}
	return waitService(ctx, o, operation{job, "Created", "create"}, ask, out)
}

// alreadyExists is the end of creating what has the name already. That is fine,
// unless it came to nothing.
func alreadyExists(ctx context.Context, o Options, ask *client.Client, out *console.Console) error {
	i, err := ask.Services().ByName(ctx, o.Name)
	if err != nil {
		return err
	}
	if i.LastOperation.State == inProgress && o.Wait {
		out.Say("Service instance %s is there already, %s", o.Name, lastOperation(i.LastOperation))
		told := progress{name: o.Name, ask: ask, out: out}
		defer out.Wait("Waiting: service instance %s is being created", o.Name).End()
		err := client.Poll(ctx, func() (bool, error) {
			i, err = told.look(ctx)
			return i.LastOperation.State != inProgress, err
		})
		if err != nil {
			return err
		}
	}
	if last := lastOperation(i.LastOperation); last == "create failed" {
		return &console.Failure{
			Status: console.StatusFailed, Err: fmt.Errorf("service instance %s is there already, and %s: %s", o.Name, last, i.LastOperation.Description),
			Advice: "dew delete-service " + o.Name + " removes it",
		}
	}
	out.Say("Service instance %s is there already", o.Name)
	return nil
}

// operation is something that a broker does with an instance.
type operation struct {
	job        client.Job
	done, verb string // "Created", "create"
}

// doing is the operation as something that goes on: "Creating".
func (op operation) doing() string {
	return strings.ToUpper(op.verb[:1]) + strings.TrimSuffix(op.verb[1:], "e") + "ing"
}

// failed says what did not work. What could not be made is there all the same, and
// has the name.
func (op operation) failed(name string, err error) error {
	told := fmt.Errorf("cannot %s service instance %s: %w", op.verb, name, err)
	if e := (*client.Error)(nil); op.verb == "create" && errors.As(err, &e) {
		return &console.Failure{Status: console.StatusFailed, Err: told, Advice: "dew delete-service " + name + " removes what is left of it"}
	}
	return told
}

// waitService waits for an operation, or says how to look after it.
func waitService(ctx context.Context, o Options, op operation, ask *client.Client, out *console.Console) error {
	defer out.Wait("%s service instance %s", op.doing(), o.Name).End()
	job, err := ask.Services().Accepted(ctx, op.job)
	if err != nil {
		return op.failed(o.Name, err)
	}
	if job.Ended() {
		out.Say("%s service instance %s", op.done, o.Name)
		return nil
	}
	if !o.Wait {
		out.Say("%s in progress: dew service %s tells how far it is", strings.ToUpper(op.verb[:1])+op.verb[1:], o.Name)
		return nil
	}
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	told := make(chan struct{})
	go func() {
		defer close(told)
		reportProgress(watch, &progress{name: o.Name, ask: ask, out: out})
	}()
	err = ask.Services().Wait(ctx, job)
	cancel()
	<-told
	if err != nil {
		return op.failed(o.Name, err)
	}
	out.Say("%s service instance %s", op.done, o.Name)
	return nil
}

const (
	inProgress   = "in progress"
	progressLook = 200 * time.Millisecond
)

// progress tells what the broker says while it works, each sentence once.
type progress struct {
	name string
	ask  *client.Client
	out  *console.Console
	last string
}

func (p *progress) look(ctx context.Context) (v3.ServiceInstance, error) {
	i, err := p.ask.Services().ByName(ctx, p.name)
	if d := i.LastOperation.Description; err == nil && d != "" && d != p.last && i.LastOperation.State == inProgress {
		p.last = d
		p.out.Say("   %s", console.Printable(d))
	}
	return i, err
}

// reportProgress looks again and again until ctx ends.
func reportProgress(ctx context.Context, p *progress) {
	tick := time.NewTicker(progressLook)
	defer tick.Stop()
	for {
		_, _ = p.look(ctx) // whoever waits for the job hears of what fails
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func runUpdateService(ctx context.Context, o Options, ask *client.Client, out *console.Console) error {
	params, err := command.ReadJSONObject("-c", o.Parameters)
	if err != nil {
		return err
	}
	if o.Plan == "" && params == nil && o.Tags == nil {
		return console.UsageError("update-service needs -p, -c or -t")
	}
	i, err := command.FindService(ctx, ask, o.Name)
	if err != nil {
		return err
	}
	u := v3.UpdateServiceInstance{Parameters: params, Tags: o.Tags}
	if o.Plan != "" {
		plan, err := siblingPlan(ctx, i, o.Plan, ask)
		if err != nil {
			return err
		}
		u.Relationships = &v3.UpdateServiceInstanceRelationships{ServicePlan: v3.To(plan)}
	}
	out.Say("Updating service instance %s ...", o.Name)
	job, err := ask.Services().Update(ctx, i.GUID, u)
	if err != nil {
		return fmt.Errorf("cannot update service instance %s: %w", o.Name, err)
	}
	return waitService(ctx, o, operation{job, "Updated", "update"}, ask, out)
}

// siblingPlan finds a plan of the offering that the instance has.
func siblingPlan(ctx context.Context, i v3.ServiceInstance, name string, ask *client.Client) (string, error) {
	if i.Relationships.ServicePlan == nil {
		return "", console.UsageError("%s is user-provided and has no plan: use update-user-provided-service", i.Name)
	}
	now, err := ask.Market().Plan(ctx, i.Relationships.ServicePlan.ID())
	if err != nil {
		return "", err
	}
	all, err := ask.Market().Plans(ctx, now.Relationships.ServiceOffering.ID())
	if err != nil {
		return "", err
	}
	for _, p := range all {
		if p.Name == name {
			return p.GUID, nil
		}
	}
	names := console.Names(all, func(p v3.ServicePlan) string { return p.Name })
	return "", &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("its offering has no plan %q", name), Advice: "its plans are: " + strings.Join(names, ", ")}
}

func runUpgradeService(ctx context.Context, o Options, ask *client.Client, out *console.Console) error {
	i, err := command.FindService(ctx, ask, o.Name)
	if err != nil {
		return err
	}
	if i.UpgradeAvailable == nil || !*i.UpgradeAvailable || i.Relationships.ServicePlan == nil {
		out.Say("No upgrade is available for service instance %s", o.Name)
		return nil
	}
	if ok, err := console.ConfirmUnless(ctx, out, o.Force, "Really upgrade service instance "+o.Name+" (it may be away meanwhile)"); err != nil || !ok {
		return err
	}
	p, err := ask.Market().Plan(ctx, i.Relationships.ServicePlan.ID())
	if err != nil {
		return err
	}
	job, err := ask.Services().Update(ctx, i.GUID, v3.UpdateServiceInstance{MaintenanceInfo: &v3.MaintenanceInfo{Version: p.MaintenanceInfo.Version}})
	if err != nil {
		return fmt.Errorf("cannot upgrade service instance %s: %w", o.Name, err)
	}
	return waitService(ctx, o, operation{job, "Upgraded", "upgrade"}, ask, out)
}

func runRenameService(ctx context.Context, o Options, ask *client.Client, out *console.Console) error {
	i, err := command.FindService(ctx, ask, o.Name)
	if err != nil {
		return err
	}
	job, err := ask.Services().Update(ctx, i.GUID, v3.UpdateServiceInstance{Name: &o.NewName})
	if err == nil {
		err = ask.Services().Wait(ctx, job)
	}
	if err != nil {
		return fmt.Errorf("cannot rename service instance %s: %w", o.Name, err)
	}
	out.Say("Renamed service instance %s to %s", o.Name, o.NewName)
	return nil
}

func runDeleteService(ctx context.Context, o Options, ask *client.Client, out *console.Console) error {
	if ok, err := console.ConfirmUnless(ctx, out, o.Force, "Really delete service instance "+o.Name+" and its data"); err != nil || !ok {
		return err
	}
	i, err := ask.Services().ByName(ctx, o.Name)
	if command.IsMissing(err) {
		out.Say("Service instance %s is not there", o.Name)
		return nil
	}
	if err != nil {
		return err
	}
	job, err := ask.Services().Delete(ctx, i.GUID)
	if err != nil {
		return fmt.Errorf("cannot delete service instance %s: %w", o.Name, err)
	}
	return waitService(ctx, o, operation{job, "Deleted", "delete"}, ask, out)
}

func runPurgeService(ctx context.Context, o Options, ask *client.Client, out *console.Console) error {
	i, err := command.FindService(ctx, ask, o.Name)
	if err != nil {
		return err
	}
	if ok, err := console.ConfirmUnless(ctx, out, o.Force, "Really forget service instance "+o.Name+" without asking its broker"); err != nil || !ok {
		return err
	}
	if err := ask.Services().Purge(ctx, i.GUID); err != nil {
		return fmt.Errorf("cannot purge service instance %s: %w", o.Name, err)
	}
	out.Say("Purged service instance %s", o.Name)
	return nil
}
