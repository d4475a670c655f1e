package smoke

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

// removeTime is the timeout for removing a test space, including services.
const removeTime = 3 * time.Minute

// SpaceClient has the commands and the client for one place of a daemon.
type SpaceClient struct {
	Client   *client.Client // client for the apps in that space
	Commands Commands
	Env      []string // environment that makes dew work in that space
	Close    func()   // releases the resources that Env names
}

// Config holds the settings of a run.
type Config struct {
	Client    *client.Client // client of the daemon, without a space
	Connect   func(ctx context.Context, p TestSpace) (SpaceClient, error)
	Variables map[string]any // variables of the command line
	Timeout   time.Duration  // timeout of each folder, 0 for the one in its smoke.yml
	Keep      bool           // keep apps, services and the test space after the run
	NoSkip    bool           // fail a folder that needs a missing program

	Progress func(format string, args ...any) // prints progress
	Line     func(app string, l *v3.Line)     // receives the lines of apps, without a name if there is one app. Can be nil.
	Script   io.Writer                        // receives the output of scripts. Can be nil.
	OnRetry  func(err error)                  // is called with the errors of failed attempts. Can be nil.
	Bundle   func(ctx context.Context, s Evidence) (file string, err error)
	// BundleAlways writes the bundle even if nothing failed.
	BundleAlways   bool
	CleanupContext context.Context // done when the user no longer waits for the removal

	// bound limits the tries of a check, instead of a clock.
	bound func(context.Context, time.Duration) (context.Context, context.CancelFunc)
}

// Evidence is the evidence after a folder has failed.
type Evidence struct {
	Folder      Folder
	TestSpace   TestSpace
	SpaceClient SpaceClient
	Result      Result
	Began       time.Time
}

// Run tests folders one after the other. After a failure it continues with the next
// folder, unless that would fail for the same reason.
func Run(ctx context.Context, cfg Config, folders []Folder) Report {
	r := Report{Began: time.Now()}
	for _, f := range folders {
		one := &run{Config: cfg, folder: f, result: Result{Folder: f.Name, Began: time.Now()}}
		one.do(ctx)
		one.result.Took = seconds(time.Since(one.result.Began))
		r.Folders = append(r.Folders, one.result)
		if r.Status == 0 {
			r.Status = one.result.Status
		}
		hopeless := one.result.Status == StatusUnreachable || one.result.Status == StatusInfrastructure && !one.missingProgram
		if ctx.Err() != nil || hopeless {
			break
		}
	}
	r.Took = seconds(time.Since(r.Began))
	return r
}

// run is the test of one folder.
type run struct {
	Config
	folder         Folder
	result         Result
	missingProgram bool // a program that the folder needs is missing
	testSpace      TestSpace
	spaceClient    SpaceClient
	tail           *tail
	began          time.Time // start of the push
	apps           []subject
	router         string
	mails          uint64 // newest mail before the push
}

// do runs the steps in order. After a failure, the other steps are skipped.
func (r *run) do(ctx context.Context) {
	limit := r.folder.Spec.Timeout
	if r.Timeout > 0 {
		limit = r.Timeout
	}
	whole, cancel := context.WithTimeoutCause(ctx, limit, &Failure{
		Status: StatusTimeout, Err: fmt.Errorf("the test of %s took longer than %s", r.folder.Name, limit),
		Todo: "to allow more time, set timeout: in smoke.yml or use --timeout",
	})
	defer cancel()
	defer r.cleanUp(ctx)
	r.checkNeeds()
	for _, s := range r.steps() {
		step := Step{Name: s.name, Kind: s.kind, App: s.app, Began: time.Now()}
		if r.result.Status != 0 || r.result.Skip != "" {
			step.State, step.Detail = StateSkipped, r.result.Skip
			r.add(step)
			continue
		}
		r.addResult(step, causeOf(whole, s.do(whole)))
	}
	if len(r.folder.Spec.Checks) == 0 && r.result.Status == 0 && r.result.Skip == "" {
		r.Progress("%s: all apps run; no checks are defined (dew smoke init %s creates a first %s)", r.folder.Name, r.folder.Name, File)
	}
}

// checkNeeds skips the folder if a program that it needs is not on this machine. With
// NoSkip, it fails the folder.
func (r *run) checkNeeds() {
	missing := slices.DeleteFunc(slices.Clone(r.folder.Spec.Needs), installed)
	if r.missingProgram = len(missing) > 0; !r.missingProgram {
		return
	}
	step := Step{Name: "needs", Kind: KindNeeds, Began: time.Now()}
	reason := "not installed on this machine: " + strings.Join(missing, ", ")
	if r.NoSkip {
		r.addResult(step, &Failure{Status: StatusInfrastructure, Err: errors.New(reason), Todo: "install the missing programs, or omit --no-skip to skip the folder"})
		return
	}
	step.State, step.Detail = StateSkipped, reason
	r.result.Skip = reason
	r.add(step)
	r.Progress("%s: skipped: %s", r.folder.Name, reason)
}

// installed reports whether a program is in PATH or, if it is a path, exists. A path
// can have * for parts that differ between versions.
func installed(program string) bool {
	if !strings.Contains(program, "/") {
		_, err := exec.LookPath(program)
		return err == nil
	}
	found, err := filepath.Glob(program)
	return err == nil && slices.ContainsFunc(found, func(file string) bool {
		_, err := exec.LookPath(file)
		return err == nil
	})
}

// addResult records the result of a step.
func (r *run) addResult(step Step, err error) {
	took := time.Since(step.Began)
	step.Took, step.State = seconds(took), StateOK
	if f := asFailure(err, StatusFailed); f != nil {
		step.State, step.Status, step.Detail, step.Todo, step.Output = StateFailed, f.Status, oneLine(f.Error()), f.Todo, f.Output
		r.result.Status = f.Status
	}
	if !r.add(step) {
		return
	}
	r.Progress("%s: %s: %s (%s)", r.folder.Name, step.Name, step.State, took.Round(10*time.Millisecond))
	if step.Output != "" {
		r.Progress("%s", strings.TrimRight(step.Output, "\n"))
	}
}

// add adds a step to the report. It leaves out the creation of the test space unless that
// failed.
func (r *run) add(step Step) bool {
	if step.Kind == KindPlace && step.State != StateFailed {
		return false
	}
	if step.Kind == KindCheck && step.App == "" && len(r.apps) > 0 {
		step.App = r.apps[0].name
	}
	r.result.Steps = append(r.result.Steps, step)
	return true
}

// step is one action of a run.
type step struct {
	name, kind, app string
	do              func(ctx context.Context) error
}

func (r *run) steps() []step {
	spec := r.folder.Spec
	var all []step
	if spec.Build != "" {
		all = append(all, step{name: "build", kind: KindBuild, do: r.build})
	}
	all = append(all, step{name: "place", kind: KindPlace, do: r.createSpace})
	for _, s := range spec.Services {
		all = append(all, step{name: "service " + s.Name, kind: KindService, do: func(ctx context.Context) error {
			return r.spaceClient.Commands.CreateService(ctx, s)
		}})
	}
	if spec.Before != "" {
		all = append(all, step{name: "before", kind: KindBefore, do: r.before})
	}
	all = append(all, step{name: "push", kind: KindPush, do: r.push}, step{name: "wait", kind: KindWait, do: r.wait})
	var c *checker
	for _, k := range spec.Checks {
		all = append(all, step{name: k.Name, kind: KindCheck, app: k.App, do: func(ctx context.Context) error {
			if c == nil {
				c = r.checker()
			}
			return c.check(ctx, k)
		}})
	}
	if len(spec.Checks) > 0 {
		all = append(all, step{name: "no crash", kind: KindWait, do: func(ctx context.Context) error { return c.watch.check(ctx) }})
	}
	return all
}

func (r *run) build(ctx context.Context) error {
	return Build{Commands: r.folder.Spec.Build, Dir: r.folder.Dir}.Run(ctx, r.Script)
}

func (r *run) before(ctx context.Context) error {
	return scriptFailed("before", script{text: r.folder.Spec.Before, dir: r.folder.Dir, env: r.spaceClient.Env, show: r.Script}.run(ctx))
}

func scriptFailed(key string, err error) error {
	f := (*Failure)(nil)
	if !errors.As(err, &f) {
		return err
	}
	return &Failure{Status: StatusFailed, Err: fmt.Errorf("%s failed: %w", key, f.Err), Todo: "see the output above", Output: f.Output}
}

// createSpace creates the test space and its client.
func (r *run) createSpace(ctx context.Context) (err error) {
	if r.testSpace, err = createTestSpace(ctx, r.Client); err != nil {
		return err
	}
	r.result.TestSpace = r.testSpace
	if r.spaceClient, err = r.Connect(ctx, r.testSpace); err != nil {
		return err
	}
	r.mails = newestMail(ctx, r.Client)
	status, err := r.Client.Daemon().Status(ctx)
	if u, perr := url.Parse(status.Router); err == nil && perr == nil {
		r.router = u.Host
	}
	if e := (*client.Error)(nil); errors.As(err, &e) {
		return nil // a remote daemon possibly does not say: the names of its routes resolve
	}
	return err
}

func (r *run) push(ctx context.Context) error {
	names, err := r.names()
	if err != nil {
		return err
	}
	for _, k := range r.folder.Spec.Checks {
		if k.App != "" && !slices.Contains(names, k.App) {
			return failed(StatusUsage, "%s, line %d: app: the manifests have no app %q; their apps are %s", File, k.Line, k.App, strings.Join(names, ", "))
		}
	}
	r.began = time.Now()
	show := r.Line
	if show != nil && len(names) == 1 {
		show = func(_ string, l *v3.Line) { r.Line("", l) }
	}
	r.tail = startTail(ctx, r.spaceClient.Client, r.testSpace.SpaceGUID, show)
	for _, m := range r.folder.Manifests {
		err := r.spaceClient.Commands.Push(ctx, Push{Manifest: m, Dir: r.folder.Dir, Variables: r.folder.Spec.Variables})
		if err != nil {
			return causeOf(ctx, err)
		}
	}
	there, err := r.spaceClient.Client.Apps().List(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		i := slices.IndexFunc(there, func(a v3.App) bool { return a.Name == name })
		if i < 0 {
			return fmt.Errorf("app %s was pushed but does not exist", name)
		}
		r.apps = append(r.apps, subject{name: name, guid: there[i].GUID})
	}
	return nil
}

// names returns the names of the apps, in the order of the manifests.
func (r *run) names() ([]string, error) {
	vars := map[string]any{}
	for _, more := range []map[string]any{r.folder.Spec.Variables, r.Variables} {
		for k, v := range more {
			vars[k] = v
		}
	}
	var out []string
	for _, file := range r.folder.Manifests {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("cannot read the manifest: %w", err)
		}
		m, _, err := app.ParseManifest(text, vars)
		if err != nil {
			return nil, &Failure{Status: StatusUsage, Err: fmt.Errorf("%s: %w", file, err)}
		}
		for i := range m.Applications {
			out = append(out, m.Applications[i].Name)
		}
	}
	return out, nil
}

// wait waits until every desired instance of every process of every app runs.
func (r *run) wait(ctx context.Context) error {
	w := newWatch(r.spaceClient.Client, r.apps)
	var missing string
	err := client.Poll(ctx, func() (bool, error) {
		if err := w.check(ctx); err != nil {
			return false, err
		}
		now, err := r.missing(ctx)
		if err != nil {
			return false, err
		}
		missing = now
		return missing == "", nil
	})
	if err != nil && ctx.Err() != nil && missing != "" {
		return &Failure{Status: StatusTimeout, Err: fmt.Errorf("%s was not running in time", missing), Todo: "see its log lines above; to allow more time, set timeout: in smoke.yml or use --timeout"}
	}
	return err
}

// missing returns the name of an instance that does not run yet, or an empty string.
func (r *run) missing(ctx context.Context) (string, error) {
	for _, a := range r.apps {
		ps, err := r.spaceClient.Client.Processes().List(ctx, a.guid)
		if err != nil {
			return "", err
		}
		for _, p := range ps {
			stats, err := r.spaceClient.Client.Processes().Stats(ctx, p.GUID)
			if err != nil {
				return "", err
			}
			if i := slices.IndexFunc(stats, func(s v3.InstanceStats) bool { return s.State != v3.StateRunning }); i >= 0 {
				return fmt.Sprintf("instance %d of process %s of app %s", stats[i].Index, p.Type, a.name), nil
			}
		}
	}
	return "", nil
}

func (r *run) checker() *checker {
	return &checker{
		client: r.spaceClient.Client, commands: r.spaceClient.Commands, router: r.router, env: r.spaceClient.Env, dir: r.folder.Dir, began: r.began,
		mails: r.mails, apps: r.apps, watch: newWatch(r.spaceClient.Client, r.apps), onRetry: r.OnRetry, bound: r.bound,
	}
}

// cleanUp collects the evidence, and removes the test space. It does so even if ctx is done.
func (r *run) cleanUp(ctx context.Context) {
	interrupted := ctx.Err() != nil
	ctx, cancel := cleanupContext(ctx, r.CleanupContext)
	defer cancel()
	if !interrupted && (r.result.Status != 0 || r.BundleAlways) && r.Bundle != nil && r.testSpace.SpaceGUID != "" && r.spaceClient.Client != nil {
		file, err := r.Bundle(ctx, Evidence{Folder: r.folder, TestSpace: r.testSpace, SpaceClient: r.spaceClient, Result: r.result, Began: r.began})
		if err != nil {
			r.Progress("warning: cannot write the bundle: %v", err)
		}
		r.result.Bundle = file
	}
	if r.tail != nil {
		r.tail.end(ctx)
		r.result.Log = r.tail.text()
		r.result.mask.learnEvidence(ctx, r.folder, r.spaceClient)
	}
	if r.Keep {
		return
	}
	if r.spaceClient.Close != nil {
		r.spaceClient.Close()
	}
	if err := r.testSpace.remove(ctx, r.Client); err != nil {
		r.Progress("warning: %v", err)
		f := asFailure(err, StatusInfrastructure)
		if r.result.Status == 0 {
			r.result.Status = f.Status
			r.result.Steps = append(r.result.Steps, Step{Name: "remove", Kind: KindPlace, State: StateFailed, Status: f.Status, Detail: oneLine(f.Error()), Todo: f.Todo, Began: time.Now()})
		}
	}
}

// cleanupContext returns a context that outlives ctx, but not patient.
func cleanupContext(ctx, patient context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	if patient == nil {
		return out, cancel
	}
	stop := context.AfterFunc(patient, cancel)
	return out, func() { stop(); cancel() }
}

func oneLine(s string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(s, "\n", " ; ")), " ")
}
