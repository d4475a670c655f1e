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

// Category is the heading of the service commands in the help.
const Category = "Services"

// Options are the arguments and flags of the commands for service instances.
type Options struct {
	Offering, Plan, Name string
	NewName              string
	Broker               string
	Parameters           string // JSON, or the name of a file that contains it
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

// splitList reads a comma-separated list.
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
	return &cli.StringFlag{Name: "c", Usage: "Parameters for the service broker: a `JSON` object, or a file that contains one"}
}

func waitFlag() cli.Flag {
	return &cli.BoolFlag{Name: "wait", Aliases: []string{"w"}, Usage: "Wait for the operation to complete", DisableDefaultText: true}
}

func tagsFlag() cli.Flag { return &cli.StringFlag{Name: "t", Usage: "Comma-separated `tags`"} }

func brokerFlag() cli.Flag {
	return &cli.StringFlag{Name: "b", Usage: "Service broker `name`, if several brokers have the offering"}
}

// Commands are all commands for services.
func Commands(g *command.Set) []*cli.Command {
	about := func(v command.Verb, fn func(context.Context, Options, *client.Client, *console.Console) error) *cli.Command {
		v.Category = Category
		return g.Command(v, func(c *cli.Context, api *client.Client, out *console.Console) error {
			return fn(c.Context, readService(c), api, out)
		})
	}
	return slices.Concat([]*cli.Command{
		g.Command(command.Verb{
			Name: "marketplace", Alias: "m", Category: Category, Usage: "List available services",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "e", Usage: "Show the plans of this `offering`"}, brokerFlag(),
				command.BoolFlag("no-plans", "Show only the service offerings, without plans"), command.BoolFlag("show-unavailable", "Include plans that are not available"), command.JSONFlag(),
			},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			o := marketOptions{NoPlans: c.Bool("no-plans"), Query: client.MarketplaceQuery{Offering: c.String("e"), Broker: c.String("b"), All: c.Bool("show-unavailable")}}
			return runMarketplace(c.Context, o, api, out)
		}),
		g.Command(command.Verb{
			Name: "create-service", Alias: "cs", Args: "OFFERING PLAN SERVICE_INSTANCE", Category: Category, Usage: "Create a service instance",
			About: "This can take a while: dew services shows the progress, and --wait waits until it is complete. If a service instance with this name already exists, the command succeeds.\n\n" +
				"Example:\n   dew create-service postgres small db --wait",
			Flags: []cli.Flag{paramsFlag(), tagsFlag(), brokerFlag(), waitFlag()},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			o := readService(c)
			o.Offering, o.Plan, o.Name = c.Args().Get(0), c.Args().Get(1), strings.TrimSpace(c.Args().Get(2))
			return Create(c.Context, o, api, out)
		}),
		about(command.Verb{
			Name: "update-service", Args: "SERVICE_INSTANCE", Usage: "Change the plan, parameters or tags of a service instance",
			Flags: []cli.Flag{&cli.StringFlag{Name: "p", Usage: "New `plan`"}, paramsFlag(), tagsFlag(), waitFlag()},
		}, runUpdateService),
		about(command.Verb{
			Name: "upgrade-service", Args: "SERVICE_INSTANCE", Usage: "Upgrade a service instance to the newest version of its plan", Flags: []cli.Flag{command.ForceFlag(), waitFlag()},
		}, runUpgradeService),
		about(command.Verb{Name: "rename-service", Args: "SERVICE_INSTANCE NEW_NAME", Usage: "Rename a service instance"}, runRenameService),
		about(command.Verb{
			Name: "delete-service", Alias: "ds", Args: "SERVICE_INSTANCE", Usage: "Delete a service instance and its data",
			About: "dew deletes its bindings first. If the service instance does not exist, the command succeeds.", Flags: []cli.Flag{command.ForceFlag(), waitFlag()},
		}, runDeleteService),
		g.Command(command.Verb{
			Name: "services", Alias: "s", Category: Category, Usage: "List the service instances of the targeted space",
			Flags: []cli.Flag{command.BoolFlag("no-apps", "Do not show the bound apps"), command.JSONFlag()},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			return runServices(c.Context, c.Bool("no-apps"), api, out)
		}),
		about(command.Verb{
			Name: "service", Args: "SERVICE_INSTANCE", Usage: "Show a service instance",
			Flags: []cli.Flag{command.BoolFlag("guid", "Print only the guid of the service instance"), command.BoolFlag("params", "Show the parameters that the service broker reports"), command.JSONFlag()},
		}, runService),
		about(command.Verb{
			Name: "purge-service-instance", Args: "SERVICE_INSTANCE", Usage: "Remove a service instance without contacting its broker",
			About: "For service instances whose broker no longer exists. Data that the broker stores is not deleted.", Flags: []cli.Flag{command.ForceFlag()},
		}, runPurgeService),
	}, bindingCommands(g), keyCommands(g), providedCommands(g), brokerCommands(g), snapshotCommands(g), []*cli.Command{connectCommand(g)}, sharingCommands(g))
}

// Create creates a service instance. If o.Wait is set, it waits until the operation is
// complete.
func Create(ctx context.Context, o Options, api *client.Client, out *console.Console) error {
	params, err := command.ReadJSONObject("-c", o.Parameters)
	if err != nil {
		return err
	}
	m, err := api.Market().Search(ctx, client.MarketplaceQuery{Offering: o.Offering, Plan: o.Plan, Broker: o.Broker})
	if err != nil {
		return err
	}
	switch {
	case len(m.Plans) == 0:
		return noPlan(ctx, o, api)
	case len(m.Plans) > 1:
		return console.UsageError("several service brokers offer %s: choose one with -b (%s)", o.Offering, strings.Join(brokerNames(m), ", "))
	}
	n := v3.CreateServiceInstance{Type: v3.ServiceManaged, Name: o.Name, Parameters: params}
	if o.Tags != nil {
		n.Tags = *o.Tags
	}
	plan := v3.To(m.Plans[0].GUID)
	n.Relationships.ServicePlan = &plan
	out.Say("Creating service instance %s ...", o.Name)
	job, err := api.Services().Create(ctx, n)
	if command.ErrorContains(err, "name is taken") {
		return alreadyExists(ctx, o, api, out)
	}
	if err != nil {
		return fmt.Errorf("cannot create service instance %s: %w", o.Name, err)
	}
	return waitService(ctx, o, operation{job, "Created", "create"}, api, out)
}

// alreadyExists handles a new service instance whose name is taken. It fails only if the
// creation of the existing instance failed.
func alreadyExists(ctx context.Context, o Options, api *client.Client, out *console.Console) error {
	i, err := api.Services().ByName(ctx, o.Name)
	if err != nil {
		return err
	}
	if i.LastOperation.State == inProgress && o.Wait {
		out.Say("Service instance %s already exists (%s)", o.Name, lastOperation(i.LastOperation))
		report := progress{name: o.Name, api: api, out: out}
		defer out.Wait("Waiting for service instance %s to be created", o.Name).End()
		err := client.Poll(ctx, func() (bool, error) {
			i, err = report.poll(ctx)
			return i.LastOperation.State != inProgress, err
		})
		if err != nil {
			return err
		}
	}
	if lastOperation(i.LastOperation) == "create failed" {
		return &console.Failure{
			Status: console.StatusFailed, Err: fmt.Errorf("service instance %s already exists, and its creation failed: %s", o.Name, i.LastOperation.Description),
			Advice: "Delete the failed service instance, or choose another name",
		}
	}
	out.Say("Service instance %s already exists", o.Name)
	return nil
}

// operation is an operation of a service broker on a service instance.
type operation struct {
	job        client.Job
	done, verb string // "Created", "create"
}

// doing is the verb in its -ing form: "Creating".
func (op operation) doing() string {
	return strings.ToUpper(op.verb[:1]) + strings.TrimSuffix(op.verb[1:], "e") + "ing"
}

// failed is the error of a failed operation. A service instance whose creation failed
// still exists and keeps its name.
func (op operation) failed(name string, err error) error {
	err = fmt.Errorf("cannot %s service instance %s: %w", op.verb, name, err)
	if e := (*client.Error)(nil); op.verb == "create" && errors.As(err, &e) {
		return &console.Failure{Status: console.StatusFailed, Err: err, Advice: "The failed service instance keeps its name. Delete it, or choose another name"}
	}
	return err
}

// waitService waits for an operation, or prints the command that shows its status.
func waitService(ctx context.Context, o Options, op operation, api *client.Client, out *console.Console) error {
	defer out.Wait("%s service instance %s", op.doing(), o.Name).End()
	job, err := api.Services().Accepted(ctx, op.job)
	if err != nil {
		return op.failed(o.Name, err)
	}
	if job.Ended() {
		out.Say("%s service instance %s", op.done, o.Name)
		return nil
	}
	if !o.Wait {
		out.Say("%s in progress. To check its status: dew service %s", strings.ToUpper(op.verb[:1])+op.verb[1:], o.Name)
		return nil
	}
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		reportProgress(watch, &progress{name: o.Name, api: api, out: out})
	}()
	err = api.Services().Wait(ctx, job)
	cancel()
	<-reported
	if err != nil {
		return op.failed(o.Name, err)
	}
	out.Say("%s service instance %s", op.done, o.Name)
	return nil
}

const (
	inProgress       = "in progress"
	progressInterval = 200 * time.Millisecond
)

// progress prints the status messages of the broker during an operation, each message
// once.
type progress struct {
	name string
	api  *client.Client
	out  *console.Console
	last string
}

func (p *progress) poll(ctx context.Context) (v3.ServiceInstance, error) {
	i, err := p.api.Services().ByName(ctx, p.name)
	if d := i.LastOperation.Description; err == nil && d != "" && d != p.last && i.LastOperation.State == inProgress {
		p.last = d
		p.out.Say("   %s", console.Printable(d))
	}
	return i, err
}

// reportProgress polls the service instance until ctx is done.
func reportProgress(ctx context.Context, p *progress) {
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for {
		_, _ = p.poll(ctx) // waitService reports errors of the job
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// finished reports whether an operation is complete. If wait is set, it waits first.
func finished(ctx context.Context, job client.Job, wait bool, api *client.Client) (bool, error) {
	job, err := api.Services().Accepted(ctx, job)
	if err != nil || job.Ended() || !wait {
		return job.Ended(), err
	}
	return true, api.Services().Wait(ctx, job)
}

func runUpdateService(ctx context.Context, o Options, api *client.Client, out *console.Console) error {
	params, err := command.ReadJSONObject("-c", o.Parameters)
	if err != nil {
		return err
	}
	if o.Plan == "" && params == nil && o.Tags == nil {
		return console.UsageError("update-service needs -p, -c or -t")
	}
	i, err := command.FindService(ctx, api, o.Name)
	if err != nil {
		return err
	}
	u := v3.UpdateServiceInstance{Parameters: params, Tags: o.Tags}
	if o.Plan != "" {
		plan, err := siblingPlan(ctx, i, o.Plan, api)
		if err != nil {
			return err
		}
		u.Relationships = &v3.UpdateServiceInstanceRelationships{ServicePlan: v3.To(plan)}
	}
	out.Say("Updating service instance %s ...", o.Name)
	job, err := api.Services().Update(ctx, i.GUID, u)
	if err != nil {
		return fmt.Errorf("cannot update service instance %s: %w", o.Name, err)
	}
	return waitService(ctx, o, operation{job, "Updated", "update"}, api, out)
}

// siblingPlan finds a plan of the service offering of an instance.
func siblingPlan(ctx context.Context, i v3.ServiceInstance, name string, api *client.Client) (string, error) {
	if i.Relationships.ServicePlan == nil {
		return "", console.UsageError("%s is user-provided and has no plan: use dew update-user-provided-service", i.Name)
	}
	now, err := api.Market().Plan(ctx, i.Relationships.ServicePlan.ID())
	if err != nil {
		return "", err
	}
	all, err := api.Market().Plans(ctx, now.Relationships.ServiceOffering.ID())
	if err != nil {
		return "", err
	}
	for _, p := range all {
		if p.Name == name {
			return p.GUID, nil
		}
	}
	names := console.Names(all, func(p v3.ServicePlan) string { return p.Name })
	return "", &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("the service offering of %s has no plan %q", i.Name, name), Advice: "Its plans are: " + strings.Join(names, ", ")}
}

func runUpgradeService(ctx context.Context, o Options, api *client.Client, out *console.Console) error {
	i, err := command.FindService(ctx, api, o.Name)
	if err != nil {
		return err
	}
	if i.UpgradeAvailable == nil || !*i.UpgradeAvailable || i.Relationships.ServicePlan == nil {
		out.Say("No upgrade is available for service instance %s", o.Name)
		return nil
	}
	if ok, err := console.ConfirmUnless(ctx, out, o.Force, "Upgrade service instance "+o.Name+" (it can be unavailable during the upgrade)"); err != nil || !ok {
		return err
	}
	p, err := api.Market().Plan(ctx, i.Relationships.ServicePlan.ID())
	if err != nil {
		return err
	}
	job, err := api.Services().Update(ctx, i.GUID, v3.UpdateServiceInstance{MaintenanceInfo: &v3.MaintenanceInfo{Version: p.MaintenanceInfo.Version}})
	if err != nil {
		return fmt.Errorf("cannot upgrade service instance %s: %w", o.Name, err)
	}
	return waitService(ctx, o, operation{job, "Upgraded", "upgrade"}, api, out)
}

func runRenameService(ctx context.Context, o Options, api *client.Client, out *console.Console) error {
	i, err := command.FindService(ctx, api, o.Name)
	if err != nil {
		return err
	}
	job, err := api.Services().Update(ctx, i.GUID, v3.UpdateServiceInstance{Name: &o.NewName})
	if err == nil {
		err = api.Services().Wait(ctx, job)
	}
	if err != nil {
		return fmt.Errorf("cannot rename service instance %s: %w", o.Name, err)
	}
	out.Say("Renamed service instance %s to %s", o.Name, o.NewName)
	return nil
}

func runDeleteService(ctx context.Context, o Options, api *client.Client, out *console.Console) error {
	if ok, err := console.ConfirmUnless(ctx, out, o.Force, "Delete service instance "+o.Name+" and its data"); err != nil || !ok {
		return err
	}
	i, err := api.Services().ByName(ctx, o.Name)
	if command.IsMissing(err) {
		out.Say("Service instance %s does not exist", o.Name)
		return nil
	}
	if err != nil {
		return err
	}
	job, err := api.Services().Delete(ctx, i.GUID)
	if err != nil {
		return fmt.Errorf("cannot delete service instance %s: %w", o.Name, err)
	}
	return waitService(ctx, o, operation{job, "Deleted", "delete"}, api, out)
}

func runPurgeService(ctx context.Context, o Options, api *client.Client, out *console.Console) error {
	i, err := command.FindService(ctx, api, o.Name)
	if err != nil {
		return err
	}
	if ok, err := console.ConfirmUnless(ctx, out, o.Force, "Remove service instance "+o.Name+" without contacting its broker"); err != nil || !ok {
		return err
	}
	if err := api.Services().Purge(ctx, i.GUID); err != nil {
		return fmt.Errorf("cannot purge service instance %s: %w", o.Name, err)
	}
	out.Say("Purged service instance %s", o.Name)
	return nil
}
