package apps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// DeployOptions say how new instances replace old ones. Without a strategy all old
// instances stop before new ones start.
type DeployOptions struct {
	Strategy    string
	MaxInFlight *int
	Steps       string
	NoWait      bool
}

// StrategyFlags say how new instances replace old ones.
func StrategyFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "strategy", Usage: "Deployment strategy, `rolling|canary`: replace instances a few at a time, without downtime"},
		&cli.IntFlag{Name: "max-in-flight", DefaultText: "1", Usage: "Maximum `count` of new instances that start at the same time; needs --strategy"},
		&cli.StringFlag{Name: "instance-steps", Usage: "Percentages of new instances at which a canary deployment pauses: a `list` such as 20,50"},
		command.BoolFlag("no-wait", "Wait only until the first new instance runs; needs --strategy"),
	}
}

// DeployOptionsOf reads the flags of StrategyFlags.
func DeployOptionsOf(c *cli.Context) DeployOptions {
	o := DeployOptions{Strategy: c.String("strategy"), Steps: c.String("instance-steps"), NoWait: c.Bool("no-wait")}
	if c.IsSet("max-in-flight") {
		n := c.Int("max-in-flight")
		o.MaxInFlight = &n
	}
	return o
}

// Gradual reports whether new instances replace old ones a few at a time.
func (o DeployOptions) Gradual() bool { return o.Strategy != "" && o.Strategy != "null" }

// Check reports options that contradict each other.
func (o DeployOptions) Check() error {
	_, err := o.options()
	return err
}

// options are the options of the deployment request; nil: none.
func (o DeployOptions) options() (*v3.DeploymentOptions, error) {
	switch {
	case o.Gradual() && o.Strategy != v3.StrategyRolling && o.Strategy != v3.StrategyCanary:
		return nil, console.UsageError("--strategy: %q is not one of rolling, canary", o.Strategy)
	case o.Steps != "" && o.Strategy != v3.StrategyCanary:
		return nil, console.UsageError("--instance-steps needs --strategy canary")
	case o.MaxInFlight != nil && !o.Gradual():
		return nil, console.UsageError("--max-in-flight needs --strategy")
	case o.MaxInFlight != nil && *o.MaxInFlight < 1:
		return nil, console.UsageError("--max-in-flight: %d is less than 1", *o.MaxInFlight)
	case o.MaxInFlight == nil && o.Steps == "":
		return nil, nil
	}
	out := &v3.DeploymentOptions{}
	if o.MaxInFlight != nil {
		n := v3.Int(*o.MaxInFlight)
		out.MaxInFlight = &n
	}
	if o.Steps == "" {
		return out, nil
	}
	out.Canary = &v3.CanaryOptions{}
	for text := range strings.SplitSeq(o.Steps, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 || n > 100 {
			return nil, console.UsageError("--instance-steps: %q is not a percentage from 1 to 100", text)
		}
		weight := v3.Int(n)
		out.Canary.Steps = append(out.Canary.Steps, v3.CanaryStep{InstanceWeight: &weight})
	}
	return out, nil
}

// DeploySpec is what a deployment starts.
type DeploySpec struct {
	Options  DeployOptions
	Droplet  string // guid, or empty for the current droplet
	revision string // guid of the revision to roll back to, or empty
	Size     v3.DeploymentOptions
}

// Deploy replaces the instances of an app a few at a time and returns its status.
func Deploy(ctx context.Context, a v3.App, o DeploySpec, api *client.Client, out *console.Console) (View, error) {
	body := v3.CreateDeployment{Strategy: &o.Options.Strategy, Relationships: v3.DeploymentRelationships{App: v3.To(a.GUID)}}
	var err error
	if body.Options, err = o.Options.options(); err != nil {
		return View{}, err
	}
	if size := o.Size; size.WebInstances != nil || size.MemoryInMB != nil || size.DiskInMB != nil || size.LogRateLimit != nil {
		if body.Options == nil {
			body.Options = &v3.DeploymentOptions{}
		}
		body.Options.WebInstances, body.Options.MemoryInMB, body.Options.DiskInMB = size.WebInstances, size.MemoryInMB, size.DiskInMB
		body.Options.LogRateLimit = size.LogRateLimit
	}
	if o.Droplet != "" {
		body.Droplet = &v3.GUID{GUID: o.Droplet}
	}
	if o.revision != "" {
		body.Revision = &v3.DeploymentRevision{GUID: o.revision}
	}
	out.Say("Deploying app %s (%s)…", a.Name, o.Options.Strategy)
	began := time.Now()
	d, err := api.Apps().CreateDeployment(ctx, body)
	if e := (*client.Error)(nil); errors.As(err, &e) && e.Status == http.StatusUnprocessableEntity {
		return View{}, &console.Failure{Status: console.StatusCrashed, Err: fmt.Errorf("cannot deploy %s: %w", a.Name, err)}
	}
	if err != nil {
		return View{}, err
	}
	return awaitRollout(ctx, a, rollout{d, o.Options.NoWait, began}, api, out)
}

// rollout is a deployment that a command waits for.
type rollout struct {
	deployment v3.Deployment
	noWait     bool
	began      time.Time
}

// awaitRollout waits until a deployment is finished or paused, and returns the status of
// the app. It cancels a deployment whose instances do not start: the old ones stay.
func awaitRollout(ctx context.Context, a v3.App, r rollout, api *client.Client, out *console.Console) (View, error) {
	err := waitDeployed(ctx, a, r, api, out)
	timeout := (*console.Failure)(nil)
	crashed := (*NotRunning)(nil)
	switch {
	case errors.As(err, &crashed):
		err = whyCrashed(ctx, failedStart{app: a, began: r.began, instances: crashed.instances}, api, out)
	case errors.As(err, &timeout) && timeout.Status == console.StatusTimeout && ctx.Err() == nil:
	case err != nil:
		return View{}, err
	default:
		return ReadView(ctx, api, a)
	}
	if cerr := api.Apps().CancelDeployment(ctx, r.deployment.GUID); cerr != nil {
		return View{}, errors.Join(err, cerr)
	}
	out.Say("Cancelled the deployment. The old instances of app %s keep running", a.Name)
	return View{}, err
}

func waitDeployed(ctx context.Context, a v3.App, r rollout, api *client.Client, out *console.Console) error {
	limit := console.MinutesFromEnv("CF_STARTUP_TIMEOUT", 5*time.Minute)
	bounded, cancel := context.WithTimeoutCause(ctx, limit, &console.Failure{
		Status: console.StatusTimeout, Err: fmt.Errorf("the deployment of %s did not finish within %s", a.Name, limit),
		Advice: startTimeoutAdvice(a.Name),
	})
	defer cancel()
	wait := out.Wait("Deploying app %s", a.Name)
	defer wait.End()
	done := false
	err := client.Poll(bounded, func() (bool, error) {
		d, err := api.Apps().Deployment(bounded, r.deployment.GUID)
		if err != nil {
			return false, err
		}
		if done, err = deploymentEnded(a, d); done || err != nil {
			return true, err
		}
		wait.Note("%s", deploymentNote(View{Deployment: &d}))
		running, err := firstRunning(bounded, d, api)
		return running && r.noWait, err
	})
	wait.End()
	if err != nil || !done || r.noWait {
		return console.TimeoutCause(bounded, err)
	}
	return WaitRunning(ctx, a, api, out)
}

// deploymentEnded reports whether the deployment is finished or paused.
func deploymentEnded(a v3.App, d v3.Deployment) (bool, error) {
	switch d.Status.Reason {
	case v3.DeploymentDeployed, v3.DeploymentPaused:
		return true, nil
	case v3.DeploymentCanceling, v3.DeploymentCanceled:
		return false, fmt.Errorf("the deployment of %s was cancelled", a.Name)
	case v3.DeploymentSuperseded:
		return false, fmt.Errorf("another deployment replaced the deployment of %s", a.Name)
	}
	return false, nil
}

// firstRunning reports whether a new instance runs. It fails if all of them crashed.
func firstRunning(ctx context.Context, d v3.Deployment, api *client.Client) (bool, error) {
	for _, p := range d.NewProcesses {
		stats, err := api.Processes().Stats(ctx, p.GUID)
		if client.NotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if stable, err := settled(p.Type, stats); !stable || err != nil || len(stats) == 0 {
			return false, err
		}
	}
	return true, nil
}

// DeployAndShow is deploy for commands that show one app.
func DeployAndShow(ctx context.Context, a v3.App, o DeploySpec, api *client.Client, out *console.Console) error {
	v, err := Deploy(ctx, a, o, api, out)
	if err != nil {
		return err
	}
	return v.show(out)
}

// show writes the view as text or as JSON.
func (v View) show(out *console.Console) error {
	if out.JSON {
		return out.Encode(v)
	}
	v.Print(out)
	return nil
}

// deploymentNote is the progress of the active deployment.
func deploymentNote(v View) string {
	if v.Deployment == nil {
		return ""
	}
	st := v.Deployment.Status
	note := v.Deployment.Strategy + ", " + strings.ToLower(st.Reason)
	if st.Canary != nil {
		note += fmt.Sprintf(", step %d of %d", st.Canary.Steps.Current, st.Canary.Steps.Total)
	}
	if st.Reason == v3.DeploymentPaused {
		note += " (to go on: dew continue-deployment " + v.Name + "; to cancel it: dew cancel-deployment " + v.Name + ")"
	}
	return note
}

// DeployCommands are about deployments and revisions.
func DeployCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{
		g.Command(command.Verb{Name: "cancel-deployment", Args: "APP", Category: "Apps", Usage: "Cancel the active deployment of an app and go back to its previous droplet"},
			func(c *cli.Context, api *client.Client, out *console.Console) error {
				return runCancel(c.Context, c.Args().First(), api, out)
			}),
		g.Command(command.Verb{
			Name: "continue-deployment", Args: "APP", Category: "Apps", Usage: "Continue a paused canary deployment",
			Flags: []cli.Flag{command.BoolFlag("no-wait", "Do not wait until the deployment is finished or paused again"), command.JSONFlag()},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			return runContinue(c.Context, continueOptions{Name: c.Args().First(), NoWait: c.Bool("no-wait")}, api, out)
		}),
		g.Command(command.Verb{Name: "revisions", Args: "APP", Category: "Apps", Usage: "List the revisions of an app", Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, api *client.Client, out *console.Console) error {
				return runRevisions(c.Context, c.Args().First(), api, out)
			}),
		g.Command(command.Verb{
			Name: "revision", Args: "APP", Category: "Apps", Usage: "Show a revision of an app, or the deployed ones",
			Flags: []cli.Flag{&cli.IntFlag{Name: "version", DefaultText: "the deployed revisions", Usage: "Revision `number`"}, command.JSONFlag()},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			return runRevision(c.Context, revisionOptions{Name: c.Args().First(), Version: c.Int("version")}, api, out)
		}),
		g.Command(command.Verb{
			Name: "rollback", Args: "APP", Category: "Apps", Usage: "Roll an app back to a revision: droplet, environment variables, commands and sidecars",
			About: "Example:\n   dew rollback shop --version 3",
			Flags: append(StrategyFlags(), &cli.IntFlag{Name: "version", DefaultText: "none", Usage: "Revision `number` to roll back to (required; dew revisions lists them)"}, command.BoolFlag("f", "Do not ask for confirmation"), command.JSONFlag()),
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			o := rollbackOptions{Name: c.Args().First(), Version: c.Int("version"), Force: c.Bool("f"), Deploy: DeployOptionsOf(c)}
			return runRollback(c.Context, o, api, out)
		}),
	}
}

// activeDeployment finds an app and its active deployment.
func activeDeployment(ctx context.Context, name string, api *client.Client) (v3.App, v3.Deployment, error) {
	a, err := command.FindApp(ctx, api, name)
	if err != nil {
		return a, v3.Deployment{}, err
	}
	d, found, err := api.Apps().ActiveDeployment(ctx, a.GUID)
	if err == nil && !found {
		err = fmt.Errorf("app %s has no active deployment", a.Name)
	}
	return a, d, err
}

func runCancel(ctx context.Context, name string, api *client.Client, out *console.Console) error {
	a, d, err := activeDeployment(ctx, name, api)
	if err != nil {
		return err
	}
	if err := api.Apps().CancelDeployment(ctx, d.GUID); err != nil {
		return err
	}
	out.Say("Cancelling the deployment of app %s", a.Name)
	return nil
}

type continueOptions struct {
	Name   string
	NoWait bool
}

func runContinue(ctx context.Context, o continueOptions, api *client.Client, out *console.Console) error {
	a, d, err := activeDeployment(ctx, o.Name, api)
	if err != nil {
		return err
	}
	if err := api.Apps().ContinueDeployment(ctx, d.GUID); err != nil {
		return err
	}
	out.Say("Continuing the deployment of app %s…", a.Name)
	if o.NoWait {
		return nil
	}
	v, err := awaitRollout(ctx, a, rollout{d, false, time.Now()}, api, out)
	if err != nil {
		return err
	}
	return v.show(out)
}

func runRevisions(ctx context.Context, name string, api *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, api, name)
	if err != nil {
		return err
	}
	all, err := api.Apps().Revisions(ctx, a.GUID)
	if err != nil {
		return err
	}
	if out.JSON {
		return out.Encode(all)
	}
	deployed, err := api.Apps().DeployedRevisions(ctx, a.GUID)
	if err != nil {
		return err
	}
	rows := [][]string{{"revision", "description", "deployable", "created", ""}}
	for _, v := range all {
		rows = append(rows, []string{
			strconv.Itoa(v.Version), v.Description, strconv.FormatBool(v.Deployable), v.CreatedAt.Local().Format(time.DateTime), deployedNote(v, deployed),
		})
	}
	return out.Table(rows)
}

func deployedNote(v v3.Revision, deployed []v3.Revision) string {
	if slices.ContainsFunc(deployed, func(d v3.Revision) bool { return d.GUID == v.GUID }) {
		return "deployed"
	}
	return ""
}

type revisionOptions struct {
	Name    string
	Version int // 0: the deployed ones
}

func runRevision(ctx context.Context, o revisionOptions, api *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, api, o.Name)
	if err != nil {
		return err
	}
	deployed, err := api.Apps().DeployedRevisions(ctx, a.GUID)
	if err != nil {
		return err
	}
	shown := deployed
	if o.Version != 0 {
		v, err := revisionOf(ctx, a, o.Version, api)
		if err != nil {
			return err
		}
		shown = []v3.Revision{v}
	}
	if out.JSON {
		return out.Encode(shown)
	}
	for _, v := range shown {
		env, err := api.Apps().RevisionEnv(ctx, v.GUID)
		if err != nil {
			return err
		}
		printRevision(out, v, env, deployedNote(v, deployed))
	}
	return nil
}

func revisionOf(ctx context.Context, a v3.App, version int, api *client.Client) (v3.Revision, error) {
	v, found, err := api.Apps().RevisionAt(ctx, a.GUID, version)
	if err == nil && !found {
		err = &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("app %s has no revision %d", a.Name, version), Advice: "To list the revisions: dew revisions " + a.Name}
	}
	return v, err
}

func printRevision(out *console.Console, v v3.Revision, env map[string]string, note string) {
	row := func(name, value string) { fmt.Fprintf(out.Out, "%-13s%s\n", name+":", value) }
	row("revision", strings.TrimSpace(strconv.Itoa(v.Version)+" "+note))
	row("description", v.Description)
	row("deployable", strconv.FormatBool(v.Deployable))
	row("droplet", v.Droplet.GUID)
	row("created", v.CreatedAt.Local().Format(time.DateTime))
	for _, s := range v.Sidecars {
		row("sidecar", s.Name+": "+s.Command)
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		row("env", name+"="+env[name])
	}
	fmt.Fprintln(out.Out)
}

type rollbackOptions struct {
	Name    string
	Version int
	Force   bool
	Deploy  DeployOptions
}

func runRollback(ctx context.Context, o rollbackOptions, api *client.Client, out *console.Console) error {
	if o.Version < 1 {
		return console.UsageError("rollback needs --version NUMBER (dew revisions lists them)")
	}
	if !o.Deploy.Gradual() {
		o.Deploy.Strategy = v3.StrategyRolling
	}
	if err := o.Deploy.Check(); err != nil {
		return err
	}
	a, err := command.FindApp(ctx, api, o.Name)
	if err != nil {
		return err
	}
	v, err := revisionOf(ctx, a, o.Version, api)
	if err != nil {
		return err
	}
	if !o.Force {
		if yes, err := out.Confirm(ctx, fmt.Sprintf("Roll app %s back to revision %d", a.Name, v.Version)); err != nil || !yes {
			return err
		}
	}
	return DeployAndShow(ctx, a, DeploySpec{Options: o.Deploy, revision: v.GUID}, api, out)
}
