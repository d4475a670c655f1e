package smoketest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/crypto/ssh"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/cli/apps"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
	"github.com/dewrun/dew/cli/daemon"
	"github.com/dewrun/dew/cli/push"
	"github.com/dewrun/dew/cli/services"
	"github.com/dewrun/dew/cli/shell"
	"github.com/dewrun/dew/smoke"
)

// Daemon is the daemon that runs a smoke test.
type Daemon struct {
	g        *command.Set
	o        Options
	endpoint command.Endpoint
	client   *client.Client // without a space
	Private  *smoke.Private // nil: the daemon was already running
	kept     []keptOrg
}

// keptOrg is an org that is not deleted, and the DEW_HOME that targets it.
type keptOrg struct{ org, home string }

// Open finds the daemon that dew uses, or starts a private one.
func Open(ctx context.Context, g *command.Set, o Options) (*Daemon, error) {
	d := &Daemon{g: g, o: o}
	var err error
	if d.endpoint, err = g.Endpoint(); err != nil {
		return nil, err
	}
	if o.Private && (d.endpoint.URL != "" && g.API != "" || g.Local) {
		return nil, console.UsageError("--private starts its own daemon: it cannot be used with --run or --api")
	}
	if !o.Private {
		if d.client, err = g.Client(d.endpoint); err != nil {
			return nil, err
		}
		if _, err = d.client.Daemon().Root(ctx); err == nil {
			return d, nil
		}
		if d.endpoint.URL != "" || g.Local || !isAbsent(err) {
			return nil, err
		}
	}
	return d, d.startPrivate(ctx)
}

// isAbsent reports whether no daemon listens on a socket.
func isAbsent(err error) bool {
	u := (*client.Unreachable)(nil)
	return errors.As(err, &u) && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED))
}

func (d *Daemon) startPrivate(ctx context.Context) error {
	dewd := d.o.Dewd
	if dewd == "" {
		var err error
		if dewd, err = daemon.FindDewd(); err != nil {
			return err
		}
	}
	if !d.o.Quiet {
		why := "Starting a private daemon…"
		if !d.o.Private {
			why = "No daemon is running at " + d.client.Address() + ": starting a private one…"
		}
		d.g.Out.Say("%s", why)
	}
	if os.Geteuid() == 0 {
		smoke.Sweep(ctx, dewd, d.g.Out.Say)
	}
	var err error
	if d.Private, err = smoke.StartPrivate(ctx, dewd); err != nil {
		return err
	}
	d.endpoint = command.Endpoint{ConfigFile: d.endpoint.ConfigFile, Run: d.Private.Run}
	d.client, err = d.g.Client(d.endpoint)
	return err
}

// close stops a private daemon, unless keep is set.
func (d *Daemon) close(ctx context.Context, keep bool) error {
	if keep {
		d.tellKept()
		return nil
	}
	if d.Private == nil {
		return nil
	}
	return d.Private.End(ctx)
}

// tellKept prints how to use the kept orgs and daemon, and how to remove them.
func (d *Daemon) tellKept() {
	say := d.g.Out.Say
	for _, k := range d.kept {
		say("Kept org %s. To work in it:\n   export DEW_HOME=%s%s\n   dew apps", k.org, daemon.ShellWord(k.home), d.exportRun())
		if d.Private == nil {
			say("To delete it:\n   dew delete-org -f %s && rm -r %s", k.org, daemon.ShellWord(k.home))
		}
	}
	if d.Private != nil {
		if err := d.Private.Keep(); err != nil {
			d.g.Out.Warn(err.Error())
		}
		say("To stop the private daemon and delete its data:\n   dew --run %s shutdown --apps && rm -r %s", daemon.ShellWord(d.Private.Run), daemon.ShellWord(filepath.Dir(d.Private.Run)))
	}
}

func (d *Daemon) exportRun() string {
	if d.endpoint.URL != "" {
		return ""
	}
	return " DEW_RUN=" + daemon.ShellWord(d.endpoint.Run)
}

// Enter returns the tools to work in an org and space. Its DEW_HOME is a temporary folder,
// so that the target of the user does not change.
func (d *Daemon) Enter(ctx context.Context, p smoke.TestSpace) (smoke.SpaceClient, error) {
	target := command.Target{OrgGUID: p.OrgGUID, Org: p.Org, SpaceGUID: p.SpaceGUID, Space: p.Space}
	inside := d.endpoint
	inside.Target = target
	api, err := d.g.Client(inside)
	if err != nil {
		return smoke.SpaceClient{}, err
	}
	below := "" // the default folder for temporary files
	if d.Private != nil {
		below = d.Private.Folder()
	}
	home, err := os.MkdirTemp(below, "home-smoke-")
	if err != nil {
		return smoke.SpaceClient{}, fmt.Errorf("cannot create a temporary folder for the config file: %w", err)
	}
	mem := command.ConfigFile{Path: filepath.Join(home, ".dew", "config.json")}
	err = mem.Update(ctx, func(c *command.Config) error {
		if inside.URL == "" {
			c.Local[inside.Run] = target
			return nil
		}
		// Without the refresh token, which can be valid for only one use.
		s := inside.Session
		s.Refresh, s.Target = "", target
		c.API, c.Sessions[inside.URL] = inside.URL, s
		return nil
	})
	if err != nil {
		return smoke.SpaceClient{}, errors.Join(err, os.RemoveAll(home))
	}
	if d.o.Keep {
		d.kept = append(d.kept, keptOrg{org: p.Org, home: home})
	}
	out := *d.g.Out
	out.JSON, out.FollowsLogs = false, true
	if d.o.Quiet {
		out.Err, out.ErrTerminal = io.Discard, false
	}
	status, err := api.Daemon().Status(ctx)
	if err != nil && !command.HiddenFromCaller(err) {
		return smoke.SpaceClient{}, errors.Join(err, os.RemoveAll(home))
	}
	return smoke.SpaceClient{
		Client: api, Commands: &Verbs{o: d.o, Client: api, Out: &out}, Env: d.env(home, p, status.Domain),
		Close: func() { _ = os.RemoveAll(home) }, // the folder is temporary
	}, nil
}

// env is the environment of scripts. It makes dew target the org and space of the test.
func (d *Daemon) env(home string, p smoke.TestSpace, domain string) []string {
	path := os.Getenv("PATH")
	if self, err := os.Executable(); err == nil {
		path = filepath.Dir(self) + string(os.PathListSeparator) + path
	}
	set := []string{"DEW_HOME=" + home, "DEW_RUN=" + d.endpoint.Run, "PATH=" + path, "SMOKE_ORG=" + p.Org, "SMOKE_SPACE=" + p.Space, "DEW_DOMAIN=" + domain}
	if d.endpoint.URL != "" {
		set = append(set, "DEW_API="+d.endpoint.URL)
	}
	out := slices.DeleteFunc(os.Environ(), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return name == "DEW_API" || slices.ContainsFunc(set, func(s string) bool { return strings.HasPrefix(s, name+"=") })
	})
	return append(out, set...)
}

// Verbs are the commands of dew, for a smoke test.
type Verbs struct {
	o      Options
	Client *client.Client
	Out    *console.Console
}

// Push works like dew push. If another space has the default route of an app, the app
// gets a random route.
func (v *Verbs) Push(ctx context.Context, p smoke.Push) error {
	o := push.Options{Manifest: v.o.Manifest}
	o.Manifest.File, o.Manifest.Given = p.Manifest, p.Variables
	if b, err := push.FindBuild(p.Manifest); err == nil {
		o.Build = len(b.Lines()) > 0 // the test has already run it
	}
	m, file, err := push.Manifest(o, v.Out)
	if err != nil {
		return v.failed(err, console.StatusUsage)
	}
	for i := range m.Applications {
		if a := &m.Applications[i]; a.Path == "" && a.Docker == nil {
			a.Path = p.Dir
		}
	}
	// The apps are new, and their environment can contain secrets that must not appear in
	// the log of a CI job.
	send := push.AppliedManifest{Manifest: m, File: file, HideChanges: true}
	_, err = push.All(ctx, o, send, v.Client, v.Out)
	if command.ErrorContains(err, routeElsewhere) {
		for i := range m.Applications {
			if a := &m.Applications[i]; a.DefaultRoute && len(a.Routes) == 0 {
				a.DefaultRoute, a.RandomRoute = false, true
			}
		}
		v.Out.Say("Another space has the default route: the apps get random routes")
		_, err = push.All(ctx, o, send, v.Client, v.Out)
	}
	return v.failed(err, console.StatusFailed)
}

// routeElsewhere is the error of the daemon for a route of another space.
const routeElsewhere = "default-route: the route belongs to another space"

// failed converts an error of a command into one of package smoke.
func (v *Verbs) failed(err error, otherwise int) error {
	if err == nil {
		return nil
	}
	status := command.StatusOf(err)
	if status == console.StatusFailed {
		status = otherwise
	}
	return &smoke.Failure{Status: status, Err: err, Todo: command.AdviceOf(err)}
}

// CreateService works like dew create-service, and waits.
func (v *Verbs) CreateService(ctx context.Context, s smoke.Service) error {
	o := services.Options{Name: s.Name, Offering: s.Offering, Plan: s.Plan, Parameters: string(s.Parameters), Wait: true}
	return v.failed(services.Create(ctx, o, v.Client, v.Out), console.StatusFailed)
}

// SSH runs a command inside an instance.
func (v *Verbs) SSH(ctx context.Context, at smoke.Instance, command string) (smoke.Output, error) {
	conn, err := v.enter(ctx, at)
	if err != nil {
		return smoke.Output{}, err
	}
	defer func() { _ = conn.Close() }() // it can be closed already
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	var text bytes.Buffer
	out := *v.Out
	out.Out, out.Err, out.In = &text, &text, strings.NewReader("")
	err = shell.Interact(ctx, conn, shell.Options{Command: []string{command}, Terminal: shell.NoTerminal}, &out)
	if f := (*console.Failure)(nil); errors.As(err, &f) && f.Err == nil {
		return smoke.Output{Text: text.String(), Status: f.Status}, nil
	}
	return smoke.Output{Text: text.String()}, err
}

func (v *Verbs) enter(ctx context.Context, at smoke.Instance) (*ssh.Client, error) {
	return shell.Dial(ctx, shell.Location{App: at.App, Process: at.Process, Index: at.Index}, shell.Connection{Client: v.Client, Out: v.Out})
}

// Dial connects to a port inside an instance.
func (v *Verbs) Dial(ctx context.Context, at smoke.Instance, port int) (net.Conn, error) {
	conn, err := v.enter(ctx, at)
	if err != nil {
		return nil, err
	}
	there, err := conn.DialContext(ctx, "tcp", fmt.Sprintf("localhost:%d", port))
	if err != nil {
		return nil, errors.Join(shell.Refusal(err), conn.Close())
	}
	return &forwarded{Conn: there, by: conn}, nil
}

// forwarded is a connection through an SSH connection. Close closes both.
type forwarded struct {
	net.Conn
	by *ssh.Client
}

// Close closes both.
func (f *forwarded) Close() error { return errors.Join(f.Conn.Close(), f.by.Close()) }

// Show writes the status of an app, as dew app does.
func (v *Verbs) Show(ctx context.Context, name string, w io.Writer) error {
	a, err := command.FindApp(ctx, v.Client, name)
	if err != nil {
		return err
	}
	view, err := apps.ReadView(ctx, v.Client, a)
	if err != nil {
		return err
	}
	out := *v.Out
	out.Out, out.Color, out.OutTerminal = w, false, false
	view.Print(&out)
	return nil
}

// bundler returns a function that stores the data of a failure.
func (d *Daemon) bundler(single bool) func(context.Context, smoke.Evidence) (string, error) {
	return func(ctx context.Context, s smoke.Evidence) (string, error) {
		b := smoke.Bundle{File: smoke.BundleName(d.o.Bundle, s.Folder, single)}
		if d.Private != nil {
			b.Log = d.Private.LogFile()
		}
		if d.endpoint.URL == "" {
			b.Doctor = func(ctx context.Context, w io.Writer) error {
				out := *d.g.Out
				out.Out, out.Err, out.In = w, w, strings.NewReader("")
				return daemon.RunDoctor(ctx, daemon.DoctorOptions{Run: d.endpoint.Run}, &out)
			}
		}
		return b.File, b.Write(ctx, s)
	}
}
