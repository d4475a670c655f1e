package daemon

import (
	"bytes"
	"cmp"
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

// leaveTime bounds the shutdown of a daemon, including its apps.
const leaveTime = 3 * time.Minute

// Commands show the daemon, stop it, and check its machine.
func Commands(g *command.Set) []*cli.Command {
	return append([]*cli.Command{
		g.WithoutClient(command.Verb{Name: "version", Category: "Getting started", Usage: "Print the version of dew", Flags: []cli.Flag{command.JSONFlag()}},
			func(*cli.Context) error { return runVersion(g.Version, g.Out) }),
		g.Command(command.Verb{Name: "status", Category: "Daemon", Usage: "Show the status of the daemon", Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, api *client.Client, out *console.Console) error {
				return runStatus(c.Context, api, out)
			}),
		g.CommandWithEnv(command.Verb{
			Name: "credentials", ThisMachine: true, Category: "Daemon", Usage: "Print the cf commands that log in to the daemon of this machine",
			About: "The output is for a shell. It contains the initial password of the administrator, unless that has been changed. After dew trust, cf api uses TLS.\n\nExamples:\n   dew credentials\n   eval \"$(dew credentials)\"\n   dew credentials --json",
			Flags: []cli.Flag{command.JSONFlag()},
		}, func(c *cli.Context, w command.Env) error { return runCredentials(c.Context, w) }),
		g.Command(command.Verb{
			Name: "shutdown", ThisMachine: true, Category: "Daemon", Usage: "Stop the daemon of this machine; apps keep running",
			About: "The next dewd takes over the running apps.",
			Flags: []cli.Flag{command.BoolFlag("apps", "Stop all apps as well")},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			return runShutdown(c.Context, v3.Shutdown{Apps: c.Bool("apps")}, api, out)
		}),
		{
			Name: "doctor", Category: "Daemon", Usage: "Check this machine for missing requirements (runs dewd doctor with the same flags)",
			ArgsUsage: "[FLAGS]", SkipFlagParsing: true,
			Action: func(c *cli.Context) error {
				return RunDoctor(c.Context, DoctorOptions{Run: c.String("run"), Args: c.Args().Slice()}, g.Out)
			},
		},
	}, trustCommands(g)...)
}

// runVersion prints the version.
func runVersion(version string, out *console.Console) error {
	if out.JSON {
		return out.Encode(map[string]string{"version": version})
	}
	_, err := fmt.Fprintln(out.Out, "dew version "+version)
	return err
}

func runStatus(ctx context.Context, api *client.Client, out *console.Console) error {
	s, err := api.Daemon().StatusWithNotices(ctx)
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
	row("address", api.Address())
	row("api", s.API)
	row("app URLs", command.RouteURL("*."+s.Domain, s.Router))
	if t := s.TLS; t != nil {
		row("api over TLS", cmp.Or(nameAt("api."+s.Domain, t.Router), t.API))
		row("app URLs over TLS", nameAt("*."+s.Domain, t.Router))
	}
	row("containerd", s.Containerd)
	row("apps", fmt.Sprintf("%d, %d started", s.Apps, s.Started))
	row("instances", fmt.Sprintf("%d of %d running, %d crashed", s.Running, s.Instances, s.Crashed))
	row("logs", retentionText(s))
	row("mails", mailQueueText(s.Mails))
	row("network policies", s.NetworkPolicies)
	for _, text := range s.Notices {
		row("note", text)
	}
	for _, a := range s.SetAside {
		row("set aside", fmt.Sprintf("%s: %s (since %s; dewd retries)", a.Part, a.Error, a.Since.Local().Format(time.DateTime)))
	}
	for _, text := range s.Warnings {
		row("warning", text)
	}
	return out.Table(rows)
}

// retentionText is the log retention, and why it is less than configured.
func retentionText(s v3.Status) string {
	switch {
	case s.LogRetention == 0: // an older daemon
		return ""
	case s.LogRetention < s.LogRetentionAsked:
		return fmt.Sprintf("%s kept per app: a quarter of the file system, which is less than --log-retention %s", console.Bytes(s.LogRetention), console.Bytes(s.LogRetentionAsked))
	}
	return console.Bytes(s.LogRetention) + " kept per app"
}

// credentials are the addresses of the daemon and a login.
type credentials struct {
	API      string `json:"api"`
	Username string `json:"username"`
	Password string `json:"password,omitempty"` // empty: it was changed since the first start
	Org      string `json:"org,omitempty"`
	Space    string `json:"space,omitempty"`
	Socket   string `json:"socket"` // for root and the group dew, without a password
	Apps     string `json:"apps"`   // URL pattern of apps
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
	if p, err := command.ResolveTarget(ctx, w.Client, w.Target); err == nil { // a login works without a target
		v.Org, v.Space = p.Org, p.Space
	}
	if at := secureAPI(ctx, s); at != "" && strings.HasPrefix(v.API, "http:") {
		v.API = at
	} else if s.TLS != nil && s.TLS.CA != "" && at == "" && !inPod() {
		w.Out.Warn("cf api uses no TLS, because this machine does not trust the CA of dew: run sudo dew trust, then dew credentials again")
	}
	if w.Out.JSON {
		return w.Out.Encode(v)
	}
	line := []string{"cf", "login", "-u", ShellWord(v.Username)}
	if v.Password != "" {
		line = append(line, "-p", ShellWord(v.Password))
	} else {
		w.Out.Warn("the initial password of " + v.Username + " was changed: cf will ask for the password")
	}
	for _, f := range [][2]string{{"-o", v.Org}, {"-s", v.Space}} {
		if f[1] != "" {
			line = append(line, f[0], ShellWord(f[1]))
		}
	}
	fmt.Fprintf(w.Out.Out, "cf api %s\n%s\n", ShellWord(v.API), strings.Join(line, " "))
	return nil
}

// inPod reports whether dew runs in the Pod of dewd. Users reach its API through
// kubectl port-forward, which is encrypted.
func inPod() bool { return os.Getenv("DEW_POD_UID") != "" }

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

// runShutdown stops the daemon and waits until it has exited.
func runShutdown(ctx context.Context, s v3.Shutdown, api *client.Client, out *console.Console) error {
	before, err := api.Daemon().Status(ctx)
	if err != nil {
		return err
	}
	if err := api.Daemon().Shutdown(ctx, s); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, leaveTime, &console.Failure{
		Status: console.StatusTimeout, Err: fmt.Errorf("dewd has not stopped after %s", leaveTime), Advice: "See the log of dewd for the reason",
	})
	defer cancel()
	defer out.Wait("Waiting until dewd has stopped").End()
	err = client.Poll(ctx, func() (bool, error) {
		_, err := api.Daemon().Root(ctx)
		if u := (*client.Unreachable)(nil); errors.As(err, &u) {
			return !alive(before.PID), nil // it closes its socket first
		}
		if e := (*client.Error)(nil); errors.As(err, &e) {
			return false, nil // it is shutting down
		}
		return false, err
	})
	if err != nil {
		return console.TimeoutCause(ctx, err)
	}
	if s.Apps {
		out.Say("Stopped dewd and all apps")
	} else {
		out.Say("Stopped dewd. Apps keep running")
	}
	return nil
}

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// The name in parentheses can contain any character; the state comes after it.
	behind := bytes.TrimLeft(stat[bytes.LastIndexByte(stat, ')')+1:], " ")
	return !bytes.HasPrefix(behind, []byte("Z")) && !bytes.HasPrefix(behind, []byte("X"))
}

// DoctorOptions are the arguments of dew doctor.
type DoctorOptions struct {
	Run  string
	Args []string
}

// RunDoctor runs dewd doctor, because the check is most useful when no daemon runs.
func RunDoctor(ctx context.Context, o DoctorOptions, out *console.Console) error {
	var env []string
	if o.Run != "" {
		env = []string{"DEW_RUN=" + o.Run}
	}
	return runDewd(ctx, append([]string{"doctor"}, o.Args...), env, out)
}

// RunDewd runs a command of dewd. The command prints its own errors.
func RunDewd(ctx context.Context, args []string, out *console.Console) error {
	return runDewd(ctx, args, nil, out)
}

func runDewd(ctx context.Context, args, env []string, out *console.Console) error {
	dewd, err := FindDewd()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, dewd, args...)
	cmd.Stdout, cmd.Stderr, cmd.Stdin = out.Out, console.StatusLineOver(out.Err).Writer(), out.In
	cmd.Env = append(os.Environ(), env...)
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() > 0 {
		return &console.Failure{Status: exit.ExitCode()} // it has printed the reason
	}
	if err != nil {
		return &console.Failure{Status: console.StatusInfrastructure, Err: fmt.Errorf("cannot run %s %s: %w", dewd, args[0], err)}
	}
	return nil
}

// FindDewd finds the program dewd: next to this program, or in PATH.
func FindDewd() (string, error) {
	if self, err := os.Executable(); err == nil {
		sibling := filepath.Join(filepath.Dir(self), "dewd")
		if info, err := os.Stat(sibling); err == nil && info.Mode()&0o111 != 0 {
			return sibling, nil
		}
	}
	found, err := exec.LookPath("dewd")
	if err != nil {
		return "", &console.Failure{Status: console.StatusInfrastructure, Err: fmt.Errorf("cannot find dewd: %w", err), Advice: "Install it next to dew: make install"}
	}
	return found, nil
}
