package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// leaveTime is how long a daemon may take to leave, ending all apps on the way.
const leaveTime = 3 * time.Minute

// Commands show the daemon, stop it, and check its machine.
func Commands(g *command.Set) []*cli.Command {
	return []*cli.Command{
		g.WithoutClient(command.Verb{Name: "version", Category: "Daemon", Usage: "print which dew this is; dew status says which daemon it speaks to", Flags: []cli.Flag{command.JSONFlag()}},
			func(*cli.Context) error { return runVersion(g.Version, g.Out) }),
		g.Command(command.Verb{Name: "status", Category: "Daemon", Usage: "show what the daemon is and does", Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, ask *client.Client, out *console.Console) error {
				return runStatus(c.Context, ask, out)
			}),
		g.CommandWithEnv(command.Verb{
			Name: "credentials", ThisMachine: true, Category: "Daemon", Usage: "show how cf and other programs log in to the daemon of this machine",
			About: "The lines are for a shell, and have the administrator's first password in them, as long as it is the right one.\n\nExamples:\n   dew credentials\n   eval \"$(dew credentials)\"\n   dew credentials --json",
			Flags: []cli.Flag{command.JSONFlag()},
		}, func(c *cli.Context, w command.Env) error { return runCredentials(c.Context, w) }),
		g.Command(command.Verb{
			Name: "shutdown", ThisMachine: true, Category: "Daemon", Usage: "end the daemon of this machine; apps stay, and the next daemon takes them over",
			Flags: []cli.Flag{command.BoolFlag("apps", "end all apps too")},
		}, func(c *cli.Context, ask *client.Client, out *console.Console) error {
			return runShutdown(c.Context, v3.Shutdown{Apps: c.Bool("apps")}, ask, out)
		}),
		{
			Name: "doctor", Category: "Daemon", Usage: "tell what this machine lacks, and what to do (dewd doctor; its flags are passed on)",
			ArgsUsage: "[FLAGS]", SkipFlagParsing: true,
			Action: func(c *cli.Context) error {
				return RunDoctor(c.Context, DoctorOptions{Run: c.String("run"), Args: c.Args().Slice()}, g.Out)
			},
		},
	}
}

// runVersion says which dew this is.
func runVersion(version string, out *console.Console) error {
	if out.JSON {
		return out.Encode(map[string]string{"version": version})
	}
	_, err := fmt.Fprintln(out.Out, "dew version "+version)
	return err
}

func runStatus(ctx context.Context, ask *client.Client, out *console.Console) error {
	s, err := ask.Daemon().Status(ctx)
	if err != nil {
		return err
	}
	if out.JSON {
		return out.Encode(s)
	}
	rows := [][]string{{"version:", s.Version}}
	row := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name + ":", value})
		}
	}
	if !s.StartedAt.IsZero() {
		row("running", fmt.Sprintf("pid %d, for %s", s.PID, time.Since(s.StartedAt).Round(time.Second)))
	}
	row("cell", s.Cell)
	row("root", s.Root)
	row("asked at", ask.Address())
	row("api", s.API)
	row("apps at", command.RouteURL("*."+s.Domain, s.Router))
	row("containerd", s.Containerd)
	row("apps", fmt.Sprintf("%d, %d started", s.Apps, s.Started))
	row("instances", fmt.Sprintf("%d of %d running, %d crashed", s.Running, s.Instances, s.Crashed))
	row("logs", retentionText(s))
	for _, a := range s.SetAside {
		row("set aside", fmt.Sprintf("%s: %s (since %s, dewd tries again)", a.Part, a.Error, a.Since.Local().Format(time.DateTime)))
	}
	return out.Table(rows)
}

// retentionText says how much log is kept, and why it is less than asked for.
func retentionText(s v3.Status) string {
	switch {
	case s.LogRetention == 0: // an older daemon
		return ""
	case s.LogRetention < s.LogRetentionAsked:
		return fmt.Sprintf("%s kept per app, a quarter of the file system; --log-retention is %s", console.Bytes(s.LogRetention), console.Bytes(s.LogRetentionAsked))
	}
	return console.Bytes(s.LogRetention) + " kept per app"
}

// credentials are how the daemon is reached.
type credentials struct {
	API      string `json:"api"`
	Username string `json:"username"`
	Password string `json:"password,omitempty"` // empty: it was changed since the first start
	Org      string `json:"org,omitempty"`
	Space    string `json:"space,omitempty"`
	Socket   string `json:"socket"` // for root and the group dew, without a password
	Apps     string `json:"apps"`   // where they are
}

func runCredentials(ctx context.Context, w command.Env) error {
	cr, err := w.Client.Daemon().Credentials(ctx)
	if err != nil {
		return err
	}
	s, err := w.Client.Daemon().Status(ctx)
	if err != nil {
		return err
	}
	v := credentials{API: cr.API, Username: cr.Username, Password: cr.Password, Socket: w.Client.Address(), Apps: command.RouteURL("*."+s.Domain, s.Router)}
	if p, err := command.ResolveTarget(ctx, w.Client, w.Target); err == nil { // a login needs no target
		v.Org, v.Space = p.Org, p.Space
	}
	if w.Out.JSON {
		return w.Out.Encode(v)
	}
	line := []string{"cf", "login", "-u", ShellWord(v.Username)}
	if v.Password != "" {
		line = append(line, "-p", ShellWord(v.Password))
	} else {
		w.Out.Warn("the first password of " + v.Username + " was changed: cf will ask for it")
	}
	for _, f := range [][2]string{{"-o", v.Org}, {"-s", v.Space}} {
		if f[1] != "" {
			line = append(line, f[0], ShellWord(f[1]))
		}
	}
	fmt.Fprintf(w.Out.Out, "cf api %s\n%s\n", ShellWord(v.API), strings.Join(line, " "))
	return nil
}

// ShellWord is the text as one word of a shell.
func ShellWord(text string) string {
	safe := func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@+=,[]", r)
	}
	if text != "" && !strings.ContainsFunc(text, safe) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// runShutdown lets the daemon leave and waits until it has.
func runShutdown(ctx context.Context, s v3.Shutdown, ask *client.Client, out *console.Console) error {
	before, err := ask.Daemon().Status(ctx)
	if err != nil {
		return err
	}
	if err := ask.Daemon().Shutdown(ctx, s); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, leaveTime, &console.Failure{
		Status: console.StatusTimeout, Err: fmt.Errorf("the daemon is still there after %s", leaveTime), Advice: "its own log says what it waits for",
	})
	defer cancel()
	defer out.Wait("Waiting until the daemon has ended").End()
	err = client.Poll(ctx, func() (bool, error) {
		_, err := ask.Daemon().Root(ctx)
		if u := (*client.Unreachable)(nil); errors.As(err, &u) {
			return !alive(before.PID), nil // it closes its socket first
		}
		if e := (*client.Error)(nil); errors.As(err, &e) {
			return false, nil // it is on its way out
		}
		return false, err
	})
	if err != nil {
		return console.TimeoutCause(ctx, err)
	}
	if s.Apps {
		out.Say("The daemon and all apps have ended")
	} else {
		out.Say("The daemon has ended; apps go on")
	}
	return nil
}

// alive tells whether a process is there and has not ended.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// The name between the brackets may hold anything; the state is behind it.
	behind := bytes.TrimLeft(stat[bytes.LastIndexByte(stat, ')')+1:], " ")
	return !bytes.HasPrefix(behind, []byte("Z")) && !bytes.HasPrefix(behind, []byte("X"))
}

// DoctorOptions are the arguments of dew doctor.
type DoctorOptions struct {
	Run  string
	Args []string
}

// RunDoctor runs the daemon's own doctor: what a machine lacks is asked most when
// no daemon runs.
func RunDoctor(ctx context.Context, o DoctorOptions, out *console.Console) error {
	dewd, err := FindDewd()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, dewd, append([]string{"doctor"}, o.Args...)...)
	cmd.Stdout, cmd.Stderr, cmd.Stdin = out.Out, console.StatusLineOver(out.Err).Writer(), out.In
	cmd.Env = os.Environ()
	if o.Run != "" {
		cmd.Env = append(cmd.Env, "DEW_RUN="+o.Run)
	}
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() > 0 {
		return &console.Failure{Status: exit.ExitCode()} // it has said why
	}
	if err != nil {
		return &console.Failure{Status: console.StatusInfrastructure, Err: fmt.Errorf("cannot run %s doctor: %w", dewd, err)}
	}
	return nil
}

// FindDewd finds the daemon's program: beside this one, or on the PATH.
func FindDewd() (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "dewd")
		if info, err := os.Stat(beside); err == nil && info.Mode()&0o111 != 0 {
			return beside, nil
		}
	}
	found, err := exec.LookPath("dewd")
	if err != nil {
		return "", &console.Failure{Status: console.StatusInfrastructure, Err: fmt.Errorf("cannot find dewd: %w", err), Advice: "make install puts it beside dew"}
	}
	return found, nil
}
