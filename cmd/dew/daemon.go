package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
)

// leaveTime is how long a daemon may take to leave, ending all apps on the way.
const leaveTime = 3 * time.Minute

func daemonCommands(g *global) []*cli.Command {
	return []*cli.Command{
		g.command(verb{name: "status", category: "Daemon", usage: "show what the daemon is and does", flags: []cli.Flag{jsonFlag()}},
			func(c *cli.Context, ask *client.Client, out *console) error { return runStatus(c.Context, ask, out) }),
		g.command(verb{name: "credentials", category: "Daemon", usage: "show where the daemon can be asked", flags: []cli.Flag{jsonFlag()}},
			func(c *cli.Context, ask *client.Client, out *console) error {
				return runCredentials(c.Context, ask, out)
			}),
		g.command(verb{
			name: "shutdown", category: "Daemon", usage: "end the daemon; apps stay, and the next daemon takes them over",
			flags: []cli.Flag{boolFlag("apps", "end all apps too")},
		}, func(c *cli.Context, ask *client.Client, out *console) error {
			return runShutdown(c.Context, v3.Shutdown{Apps: c.Bool("apps")}, ask, out)
		}),
		{
			Name: "doctor", Category: "Daemon", Usage: "tell what this machine lacks, and what to do (dewd doctor; its flags are passed on)",
			ArgsUsage: "[FLAGS]", SkipFlagParsing: true,
			Action: func(c *cli.Context) error {
				return runDoctor(c.Context, doctorOptions{Run: c.String("run"), Args: c.Args().Slice()}, g.out)
			},
		},
	}
}

func runStatus(ctx context.Context, ask *client.Client, out *console) error {
	s, err := ask.Status(ctx)
	if err != nil {
		return err
	}
	if out.json {
		return out.encode(s)
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
	row("socket", ask.Door())
	row("api", s.API)
	row("apps at", routeURL("*."+s.Domain, s.Router))
	row("containerd", s.Containerd)
	row("apps", fmt.Sprintf("%d, %d started", s.Apps, s.Started))
	row("instances", fmt.Sprintf("%d of %d running, %d crashed", s.Running, s.Instances, s.Crashed))
	return out.table(rows)
}

// doors are where the daemon can be asked.
type doors struct {
	Socket string `json:"socket"`
	API    string `json:"api"`
	Apps   string `json:"apps"`
}

func runCredentials(ctx context.Context, ask *client.Client, out *console) error {
	s, err := ask.Status(ctx)
	if err != nil {
		return err
	}
	d := doors{Socket: ask.Door(), API: s.API, Apps: routeURL("*."+s.Domain, s.Router)}
	if out.json {
		return out.encode(d)
	}
	return out.table([][]string{
		{"socket:", d.Socket, "for root and the group dew, without a password"},
		{"api:", d.API},
		{"apps at:", d.Apps},
	})
}

// runShutdown lets the daemon leave and waits until it has.
func runShutdown(ctx context.Context, s v3.Shutdown, ask *client.Client, out *console) error {
	before, err := ask.Status(ctx)
	if err != nil {
		return err
	}
	if err := ask.Shutdown(ctx, s); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, leaveTime, &failure{
		status: statusTimeout, err: fmt.Errorf("the daemon is still there after %s", leaveTime), todo: "its own log says what it waits for",
	})
	defer cancel()
	err = client.Poll(ctx, func() (bool, error) {
		_, err := ask.Root(ctx)
		if u := (*client.Unreachable)(nil); errors.As(err, &u) {
			return !alive(before.PID), nil // it closes its door first
		}
		if e := (*client.Error)(nil); errors.As(err, &e) {
			return false, nil // it is on its way out
		}
		return false, err
	})
	if err != nil {
		return timedOut(ctx, err)
	}
	if s.Apps {
		out.say("The daemon and all apps have ended")
	} else {
		out.say("The daemon has ended; apps go on")
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

type doctorOptions struct {
	Run  string
	Args []string
}

// runDoctor runs the daemon's own doctor: what a machine lacks is asked most when
// no daemon runs.
func runDoctor(ctx context.Context, o doctorOptions, out *console) error {
	dewd, err := findDewd()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, dewd, append([]string{"doctor"}, o.Args...)...)
	cmd.Stdout, cmd.Stderr, cmd.Stdin = out.out, out.err, out.in
	cmd.Env = os.Environ()
	if o.Run != "" {
		cmd.Env = append(cmd.Env, "DEW_RUN="+o.Run)
	}
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() > 0 {
		return &failure{status: exit.ExitCode()} // it has said why
	}
	if err != nil {
		return &failure{status: statusInfrastructure, err: fmt.Errorf("cannot run %s doctor: %w", dewd, err)}
	}
	return nil
}

// findDewd finds the daemon's program: beside this one, or on the PATH.
func findDewd() (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "dewd")
		if info, err := os.Stat(beside); err == nil && info.Mode()&0o111 != 0 {
			return beside, nil
		}
	}
	found, err := exec.LookPath("dewd")
	if err != nil {
		return "", &failure{status: statusInfrastructure, err: fmt.Errorf("cannot find dewd: %w", err), todo: "make install puts it beside dew"}
	}
	return found, nil
}
