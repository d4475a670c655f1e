package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/crypto/ssh"
	"golang.org/x/term"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// Commands open shells in containers and copy files.
func Commands(g *command.Set) []*cli.Command {
	const category = "Inside of instances"
	feature := func(name, about string, enabled bool) *cli.Command {
		return g.Command(command.Verb{Name: name, Args: "APP", Category: category, Usage: about},
			func(c *cli.Context, ask *client.Client, out *console.Console) error {
				return runSetSSH(c.Context, c.Args().First(), enabled, Connection{Client: ask, Out: out})
			})
	}
	return []*cli.Command{
		g.Command(command.Verb{
			Name: "ssh", Args: "APP", Category: category, Usage: "open a shell inside an instance, run a command there, or forward ports",
			About: "The shell has the environment, the folder and the PATH of the app itself. Its exit\n" +
				"status is that of the command, or 255 where it did not end by itself.\n\n" +
				"With --crashed it is in a copy of the files of a crashed instance, with its\n" +
				"environment, without its processes and without a network:\n   dew ssh shop --crashed -c 'ls -l tmp'",
			Flags: append(append(locationFlags(), crashedFlags()...),
				&cli.StringSliceFlag{Name: "c", Aliases: []string{"command"}, Usage: "`command` to run; several are joined by a space", KeepSpace: true},
				&cli.StringSliceFlag{Name: "L", Usage: "forward `[ADDRESS:]PORT:HOST:PORT` into the instance; HOST:PORT may be the path of a socket", KeepSpace: true},
				&cli.BoolFlag{Name: "N", Aliases: []string{"skip-remote-execution"}, Usage: "run nothing, only forward", DisableDefaultText: true},
				&cli.BoolFlag{Name: "t", Aliases: []string{"request-pseudo-tty"}, Usage: "ask for a terminal also for a command", DisableDefaultText: true},
				&cli.BoolFlag{Name: "T", Aliases: []string{"disable-pseudo-tty"}, Usage: "ask for no terminal", DisableDefaultText: true},
				command.BoolFlag("force-pseudo-tty", "ask for a terminal although there is none here"),
			),
		}, func(c *cli.Context, ask *client.Client, out *console.Console) error {
			in, err := locationOf(c, c.Args().First())
			if err != nil {
				return err
			}
			return runSSH(c.Context, Options{
				Location: in, Command: c.StringSlice("c"), forwards: c.StringSlice("L"),
				nothing: c.Bool("N"), Terminal: terminalOf(c),
			}, Connection{Client: ask, Out: out})
		}),
		g.Command(command.Verb{
			Name: "ssh-code", Category: category, Usage: "get a one-time password for the ssh door",
			About: "It is good once, for five minutes:\n   ssh -p PORT cf:$(dew app APP --guid)/0@HOST",
			Flags: []cli.Flag{command.JSONFlag()},
		}, func(c *cli.Context, ask *client.Client, out *console.Console) error {
			return runSSHCode(c.Context, Connection{Client: ask, Out: out})
		}),
		feature("enable-ssh", "let people into the instances of an app", true),
		feature("disable-ssh", "let nobody into the instances of an app", false),
		g.Command(command.Verb{Name: "ssh-enabled", Args: "APP", Category: category, Usage: "tell whether the instances of an app may be entered", Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, ask *client.Client, out *console.Console) error {
				return runSSHEnabled(c.Context, c.Args().First(), Connection{Client: ask, Out: out})
			}),
		cpCommand(g, category),
	}
}

// Connection is whom these commands speak to.
type Connection struct {
	Client *client.Client
	Out    *console.Console
}

// Location names a process of an instance.
type Location struct {
	App, Process, sidecar string
	Index                 int
	crashed               crashedChoice
}

func locationFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "i", Aliases: []string{"app-instance-index"}, Usage: "`index` of the instance"},
		&cli.StringFlag{Name: "process", Value: "web", Usage: "process `type`"},
		&cli.StringFlag{Name: "sidecar", Usage: "`name` of the sidecar whose environment it is to have"},
	}
}

func locationOf(c *cli.Context, name string) (Location, error) {
	crashed, err := crashedOf(c)
	return Location{App: name, Process: c.String("process"), sidecar: c.String("sidecar"), Index: c.Int("i"), crashed: crashed}, err
}

// terminalMode says when a terminal is requested in the container.
type terminalMode int

// When a terminal is requested.
const (
	terminalIfInteractive terminalMode = iota // there is one here, and no command
	terminalIfHere                            // there is one here
	forceTerminal
	NoTerminal
)

func terminalOf(c *cli.Context) terminalMode {
	switch {
	case c.Bool("T"):
		return NoTerminal
	case c.Bool("force-pseudo-tty"):
		return forceTerminal
	case c.Bool("t"):
		return terminalIfHere
	}
	return terminalIfInteractive
}

func (w terminalMode) grants(here, command bool) bool {
	switch w {
	case forceTerminal:
		return true
	case terminalIfHere:
		return here
	case terminalIfInteractive:
		return here && !command
	default:
		return false
	}
}

// Options are the arguments of dew ssh.
type Options struct {
	Location
	Command  []string
	forwards []string
	nothing  bool
	Terminal terminalMode
}

func runSSHCode(ctx context.Context, t Connection) error {
	code, err := t.Client.Users().SSHCode(ctx)
	if err != nil {
		return err
	}
	if t.Out.JSON {
		return t.Out.Encode(code)
	}
	fmt.Fprintln(t.Out.Out, code.Code)
	return nil
}

func runSetSSH(ctx context.Context, name string, enabled bool, t Connection) error {
	a, err := command.FindApp(ctx, t.Client, name)
	if err != nil {
		return err
	}
	f, err := t.Client.Apps().SetFeature(ctx, a.GUID, v3.FeatureSSH, enabled)
	if err != nil {
		return err
	}
	word := "disabled"
	if f.Enabled {
		word = "enabled"
	}
	fmt.Fprintf(t.Out.Err, "ssh is %s for app %s\n", word, a.Name)
	return nil
}

func runSSHEnabled(ctx context.Context, name string, t Connection) error {
	a, err := command.FindApp(ctx, t.Client, name)
	if err != nil {
		return err
	}
	e, err := t.Client.Apps().SSHEnabled(ctx, a.GUID)
	if err != nil {
		return err
	}
	if t.Out.JSON {
		return t.Out.Encode(e)
	}
	if e.Enabled {
		fmt.Fprintf(t.Out.Out, "ssh is enabled for app %s\n", a.Name)
		return nil
	}
	fmt.Fprintf(t.Out.Out, "ssh is disabled for app %s: %s\n", a.Name, e.Reason)
	return nil
}

// runSSH enters an instance.
func runSSH(ctx context.Context, o Options, t Connection) error {
	var specs []forward
	for _, text := range o.forwards {
		f, err := parseForward(text)
		if err != nil {
			return console.UsageError("-L %s: %w", text, err)
		}
		specs = append(specs, f)
	}
	conn, err := Dial(ctx, o.Location, t)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // it may be closed already
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	closing, err := forwardAll(ctx, conn, specs, t.Out)
	if err != nil {
		return err
	}
	defer closing()
	if o.nothing {
		return exitError(ctx, conn.Wait())
	}
	return Interact(ctx, conn, o, t.Out)
}

// Dial connects to the SSH server and logs in to an instance.
func Dial(ctx context.Context, in Location, t Connection) (*ssh.Client, error) {
	user, err := loginOf(ctx, in, t.Client)
	if err != nil {
		return nil, err
	}
	code, err := t.Client.Users().SSHCode(ctx)
	if err != nil {
		return nil, err
	}
	return dialSSH(ctx, user, code)
}

// dialSSH connects to the SSH server and logs in with a code.
func dialSSH(ctx context.Context, user string, code v3.SSHCode) (*ssh.Client, error) {
	const limit = 30 * time.Second
	raw, err := (&net.Dialer{Timeout: limit}).DialContext(ctx, "tcp", code.Address)
	if err != nil {
		return nil, &console.Failure{Status: console.StatusUnreachable, Err: fmt.Errorf("cannot reach the ssh door: %w", err), Advice: "is the address that dewd was given with --ssh one that this machine reaches?"}
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() }) // whoever is slow to answer ends with us
	defer stop()
	_ = raw.SetDeadline(time.Now().Add(limit)) // a socket that takes none tells at the first byte
	var said strings.Builder                   // why nobody is let in
	sc, chans, reqs, err := ssh.NewClientConn(raw, code.Address, &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.Password(code.Code)}, Timeout: limit,
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			if got := strings.TrimPrefix(ssh.FingerprintSHA256(key), "SHA256:"); got != code.Fingerprint {
				return fmt.Errorf("the ssh door has the host key %s, and the daemon's is %s: somebody else answers there", got, code.Fingerprint)
			}
			return nil
		},
		BannerCallback: func(message string) error { said.WriteString(message); return nil },
	})
	if err != nil {
		_ = raw.Close() // it may be closed already
		if why := strings.TrimPrefix(strings.TrimSpace(said.String()), "dew: "); why != "" {
			return nil, errors.New(why)
		}
		return nil, fmt.Errorf("cannot enter the instance: %w", err)
	}
	_ = raw.SetDeadline(time.Time{})
	conn := ssh.NewClient(sc, chans, reqs)
	go keepAlive(conn)
	return conn, nil
}

// loginOf is the user name that leads to an instance.
func loginOf(ctx context.Context, in Location, ask *client.Client) (string, error) {
	if in.crashed.asked {
		return crashedLogin(ctx, in, ask)
	}
	if in.Index < 0 {
		return "", console.UsageError("instances count from 0, and there is no %d", in.Index)
	}
	a, err := command.FindApp(ctx, ask, in.App)
	if err != nil {
		return "", err
	}
	if a.State != "STARTED" {
		return "", &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("app %s is not started", a.Name), Advice: "dew start " + a.Name + " starts it"}
	}
	ps, err := ask.Processes().List(ctx, a.GUID)
	if err != nil {
		return "", err
	}
	var types []string
	for _, p := range ps {
		if p.Type == in.Process {
			user := "cf:" + p.GUID + "/" + strconv.Itoa(in.Index)
			if in.sidecar != "" {
				user += "/" + in.sidecar
			}
			return user, nil
		}
		types = append(types, p.Type)
	}
	return "", fmt.Errorf("app %s has no process %q: it has %s", a.Name, in.Process, strings.Join(types, ", "))
}

// keepAlive keeps the connection open in routers and in the SSH server.
func keepAlive(conn *ssh.Client) {
	const every = 30 * time.Second
	for range time.Tick(every) {
		if _, _, err := conn.SendRequest("keepalive@openssh.com", true, nil); err != nil {
			return
		}
	}
}

// Interact runs a shell or a command with this program's own streams.
func Interact(ctx context.Context, conn *ssh.Client, o Options, out *console.Console) error {
	ses, err := conn.NewSession()
	if err != nil {
		return Refusal(err)
	}
	defer func() { _ = ses.Close() }() // it may be closed already
	ses.Stdout, ses.Stderr = out.Out, out.Err
	in, err := ses.StdinPipe()
	if err != nil {
		return err
	}
	screen, here := out.In.(*os.File)
	here = here && term.IsTerminal(int(screen.Fd()))
	if o.Terminal.grants(here, len(o.Command) > 0) {
		restore, err := requestTerminal(ctx, ses, screen, here)
		if err != nil {
			return err
		}
		defer restore()
	}
	if len(o.Command) > 0 {
		err = ses.Start(strings.Join(o.Command, " "))
	} else {
		err = ses.Shell()
	}
	if err != nil {
		return fmt.Errorf("cannot begin: %w", err)
	}
	go func() {
		_, _ = io.Copy(in, out.In) // the session's end is told by Wait
		_ = in.Close()
	}()
	return exitError(ctx, ses.Wait())
}

// Refusal is the reason that the SSH server gave, if it gave one.
func Refusal(err error) error {
	if open := (*ssh.OpenChannelError)(nil); errors.As(err, &open) {
		return errors.New(open.Message)
	}
	return err
}

// exitError turns the end of the remote command into an exit status without a
// message.
func exitError(ctx context.Context, err error) error {
	if exit := (*ssh.ExitError)(nil); errors.As(err, &exit) {
		return &console.Failure{Status: exit.ExitStatus()}
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if missing := (*ssh.ExitMissingError)(nil); errors.As(err, &missing) {
		return &console.Failure{Status: lostStatus, Err: errors.New("the connection to dewd broke before the command ended")}
	}
	if err != nil {
		return &console.Failure{Status: lostStatus, Err: fmt.Errorf("the connection broke: %w", err)}
	}
	return nil
}

// lostStatus is what OpenSSH ends with when it was not the command that failed.
const lostStatus = 255

// requestTerminal asks for a terminal like the one here, which it makes raw until
// restore is called.
func requestTerminal(ctx context.Context, ses *ssh.Session, screen *os.File, here bool) (restore func(), err error) {
	kind := os.Getenv("TERM")
	if kind == "" {
		kind = "xterm"
	}
	width, height := 80, 43
	if here {
		if w, h, err := term.GetSize(int(screen.Fd())); err == nil {
			width, height = w, h
		}
	}
	if err := ses.RequestPty(kind, height, width, ssh.TerminalModes{ssh.ECHO: 1}); err != nil {
		return nil, fmt.Errorf("cannot get a terminal: %w", err)
	}
	if !here {
		return func() {}, nil
	}
	before, err := term.MakeRaw(int(screen.Fd()))
	if err != nil {
		return nil, fmt.Errorf("cannot use this terminal: %w", err)
	}
	following, cancel := context.WithCancel(ctx)
	go sendTerminalSizes(following, ses, screen)
	return func() {
		cancel()
		_ = term.Restore(int(screen.Fd()), before) // nothing is left to be done about it
	}, nil
}

// sendTerminalSizes tells the other side of every new size of the terminal.
func sendTerminalSizes(ctx context.Context, ses *ssh.Session, screen *os.File) {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	for {
		select {
		case <-ctx.Done():
			return
		case <-resized:
		}
		if w, h, err := term.GetSize(int(screen.Fd())); err == nil {
			_ = ses.WindowChange(h, w) // a session that has ended has no window
		}
	}
}
