package top

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/apps"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
	"github.com/dewrun/dew/cli/logs"
)

// readTimeout bounds one request for the state of all apps.
const readTimeout = 5 * time.Second

// snapshot is one answer of the daemon.
type snapshot struct {
	live    v3.LiveApps
	machine machine
}

// machine is the memory and the number of cores of the machine that dewd runs on. They
// are 0 if dewd runs on another machine than dew.
type machine struct {
	used, total int64
	cores       int
}

// scope selects apps by name.
type scope struct {
	apps       []string // empty: all
	org, space string   // empty: all
}

// daemon reads from dewd, and acts on its apps.
type daemon struct {
	api   *client.Client
	scope scope
	local bool // dewd runs on this machine
}

// read reads the state of the apps in the scope.
func (d daemon) read(ctx context.Context) (snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	live, err := d.api.Processes().Live(ctx, "")
	if err != nil {
		return snapshot{}, withoutEndpoint(err)
	}
	live.Resources = d.scope.choose(live.Resources)
	s := snapshot{live: live}
	if d.local {
		s.machine = readMachine()
	}
	return s, nil
}

// withoutEndpoint explains the error of a daemon that is older than dew top. Other errors
// stay as they are.
func withoutEndpoint(err error) error {
	e := (*client.Error)(nil)
	if !errors.As(err, &e) || e.Status != http.StatusNotFound || e.Detail != v3.DetailUnknownRequest {
		return err
	}
	return &console.Failure{
		Status: console.StatusFailed, Err: errors.New("this dewd is too old for dew top: it does not have GET /dew/v1/live"),
		Advice: "Update dewd (dew status shows its version), or use dew ps",
	}
}

// choose returns the apps in the scope.
func (s scope) choose(all []v3.LiveApp) []v3.LiveApp {
	return slices.DeleteFunc(all, func(a v3.LiveApp) bool {
		return s.org != "" && a.Space.OrgName != s.org || s.space != "" && a.Space.Name != s.space ||
			len(s.apps) > 0 && !slices.Contains(s.apps, a.Name)
	})
}

// check reports names in the scope that do not exist. found are the apps in the scope.
func (d daemon) check(ctx context.Context, env command.Env, found []v3.LiveApp) error {
	if err := d.checkPlaces(ctx, env); err != nil {
		return err
	}
	for _, name := range d.scope.apps {
		if slices.ContainsFunc(found, func(a v3.LiveApp) bool { return a.Name == name }) {
			continue
		}
		place := d.scope
		place.apps = nil
		s, err := daemon{api: d.api, scope: place}.read(ctx)
		if err != nil {
			return err
		}
		missing := fmt.Errorf("app %s does not exist, or you cannot see it", name)
		return command.SuggestNearest(missing, name, s.live.Resources, func(a v3.LiveApp) string { return a.Name })
	}
	return nil
}

// checkPlaces reports an org or a space that does not exist.
func (d daemon) checkPlaces(ctx context.Context, env command.Env) error {
	if d.scope.org != "" {
		org, err := command.FindOrg(ctx, env, d.scope.org)
		if err == nil && d.scope.space != "" {
			_, err = command.FindSpace(ctx, env, org, d.scope.space)
		}
		return err
	}
	if d.scope.space == "" {
		return nil
	}
	all, err := d.api.Orgs().Spaces(ctx)
	if err != nil || slices.ContainsFunc(all, func(s v3.Space) bool { return s.Name == d.scope.space }) {
		return err
	}
	missing := fmt.Errorf("space %s does not exist, or you cannot see it", d.scope.space)
	return command.SuggestNearest(missing, d.scope.space, all, func(s v3.Space) string { return s.Name })
}

// restart restarts an app.
func (d daemon) restart(ctx context.Context, a v3.App) error {
	_, err := d.api.Apps().SetState(ctx, a.GUID, client.Restart)
	return err
}

// why is the text of dew why.
func (d daemon) why(ctx context.Context, a v3.App, color bool) (string, error) {
	var text bytes.Buffer
	err := apps.Why(ctx, a, d.api, &console.Console{Out: &text, Err: io.Discard, Color: color})
	return text.String(), err
}

// follow shows the log lines of an app.
func (d daemon) follow(ctx context.Context, a v3.App, out *console.Console) error {
	return logs.Follow(ctx, a, d.api, out)
}

// follower shows the log lines of an app in the terminal until the user presses Ctrl-C.
type follower struct {
	ctx     context.Context //nolint:containedctx // the interface of bubbletea has no context
	show    func(ctx context.Context, out *console.Console) error
	title   string
	color   bool
	current *atomic.Pointer[context.CancelFunc] // ends the follower; nil while none runs
	out     io.Writer
	err     io.Writer
}

// SetStdin does nothing: the log lines need no input.
func (f *follower) SetStdin(io.Reader) {}

// SetStdout sets the terminal.
func (f *follower) SetStdout(w io.Writer) { f.out = w }

// SetStderr sets the writer of messages.
func (f *follower) SetStderr(w io.Writer) { f.err = w }

// Run shows the lines.
func (f *follower) Run() error {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	f.current.Store(&cancel)
	defer f.current.Store(nil)
	fmt.Fprintln(f.out, f.title)
	err := f.show(ctx, &console.Console{Out: f.out, Err: f.err, Color: f.color, OutTerminal: true, ErrTerminal: true})
	if err == nil && ctx.Err() == nil {
		return errLogsEnded
	}
	return err
}

// errLogsEnded is the error if the daemon has no more log lines of an app to follow.
var errLogsEnded = errors.New("the app was deleted, or you can no longer see it")

// readMachine reads the facts of this machine. They are 0 if they cannot be read.
func readMachine() machine {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return machine{}
	}
	defer f.Close()
	return parseMachine(f)
}

func parseMachine(meminfo io.Reader) machine {
	m := machine{cores: runtime.NumCPU()}
	var available int64
	for s := bufio.NewScanner(meminfo); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) < 2 {
			continue
		}
		kib, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			continue
		}
		switch fields[0] {
		case "MemTotal:":
			m.total = kib << 10
		case "MemAvailable:":
			available = kib << 10
		}
	}
	m.used = max(m.total-available, 0)
	return m
}
