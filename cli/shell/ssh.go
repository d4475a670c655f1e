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
	const category = "SSH"
	feature := func(name, about string, enabled bool) *cli.Command {
		return g.Command(command.Verb{Name: name, Args: "APP", Category: category, Usage: about},
			func(c *cli.Context, api *client.Client, out *console.Console) error {
				return runSetSSH(c.Context, c.Args().First(), enabled, Connection{Client: api, Out: out})
			})
	}
	return []*cli.Command{
		g.Command(command.Verb{
			Name: "ssh", Args: "APP", Category: category, Usage: "Open a shell in an instance, run a command there, or forward ports",
			About: "The shell has the environment, working folder and PATH of the app. dew exits with the exit status of the command, or with 255 if the connection breaks.\n\n" +
				"With --crashed the shell runs in a copy of the files of a crashed instance, with its environment, but without its processes and without network.\n\n" +
				"Examples:\n   dew ssh shop\n   dew ssh shop -i 1 -c 'ls -l tmp'\n   dew ssh shop -N -L 9229:localhost:9229\n   dew ssh shop --crashed -c 'ls -l tmp'",
			Flags: append(append(locationFlags(), crashedFlags()...),
				&cli.StringSliceFlag{Name: "c", Aliases: []string{"command"}, Usage: "Run this `command`; several are joined with spaces", KeepSpace: true},
				&cli.StringSliceFlag{Name: "L", Usage: "Forward a local port to the instance, as `[ADDRESS:]PORT:HOST:PORT`; HOST:PORT can be the path of a socket", KeepSpace: true},
				&cli.BoolFlag{Name: "N", Aliases: []string{"skip-remote-execution"}, Usage: "Run no command, only forward ports", DisableDefaultText: true},
				&cli.BoolFlag{Name: "t", Aliases: []string{"request-pseudo-tty"}, Usage: "Request a terminal even for a command", DisableDefaultText: true},
				&cli.BoolFlag{Name: "T", Aliases: []string{"disable-pseudo-tty"}, Usage: "Do not request a terminal", DisableDefaultText: true},
				command.BoolFlag("force-pseudo-tty", "Request a terminal even if dew does not run in one"),
			),
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			in, err := locationOf(c, c.Args().First())
			if err != nil {
				return err
			}
			return runSSH(c.Context, Options{
				Location: in, Command: c.StringSlice("c"), forwards: c.StringSlice("L"),
				nothing: c.Bool("N"), Terminal: terminalOf(c),
			}, Connection{Client: api, Out: out})
		}),
		g.Command(command.Verb{
			Name: "ssh-code", Category: category, Usage: "Get a one-time password for SSH clients",
			About: "The password can be used once, within five minutes:\n   ssh -p PORT cf:$(dew app APP --guid)/0@HOST",
			Flags: []cli.Flag{command.JSONFlag()},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			return runSSHCode(c.Context, Connection{Client: api, Out: out})
		}),
		feature("enable-ssh", "Enable SSH for an app", true),
		feature("disable-ssh", "Disable SSH for an app", false),
		g.Command(command.Verb{Name: "ssh-enabled", Args: "APP", Category: category, Usage: "Show whether SSH is enabled for an app", Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, api *client.Client, out *console.Console) error {
				return runSSHEnabled(c.Context, c.Args().First(), Connection{Client: api, Out: out})
			}),
		cpCommand(g, category),
	}
}

// Connection is the client and the console of these commands.
type Connection struct {
	Client *client.Client
	Out    *console.Console
}

// Location is a process or sidecar of an instance.
type Location struct {
	App, Process, sidecar string
	Index                 int
	crashed               crashedChoice
}

func locationFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "i", Aliases: []string{"app-instance-index"}, Usage: "Instance `index`"},
		&cli.StringFlag{Name: "process", Value: "web", Usage: "Process `type`"},
		&cli.StringFlag{Name: "sidecar", Usage: "Use the environment of the sidecar with this `name`"},
	}
}

func locationOf(c *cli.Context, name string) (Location, error) {
	crashed, err := crashedOf(c)
	return Location{App: name, Process: c.String("process"), sidecar: c.String("sidecar"), Index: c.Int("i"), crashed: crashed}, err
}

// terminalMode is when to request a terminal in the container.
type terminalMode int

// When a terminal is requested.
const (
	terminalIfInteractive terminalMode = iota // if there is a local terminal and no command
	terminalIfHere                            // if there is a local terminal
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

// runSSH opens a session in an instance.
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
	defer func() { _ = conn.Close() }() // it can be closed already
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
		return nil, &console.Failure{Status: console.StatusUnreachable, Err: fmt.Errorf("cannot reach the SSH server of dewd: %w", err), Advice: "Check that this machine can reach the address of dewd --ssh"}
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() }) // an interrupted command does not wait for the server
	defer stop()
	_ = raw.SetDeadline(time.Now().Add(limit)) // if it fails, so does the first read
	var said strings.Builder                   // the reason for a refused login
	sc, chans, reqs, err := ssh.NewClientConn(raw, code.Address, &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.Password(code.Code)}, Timeout: limit,
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			if got := strings.TrimPrefix(ssh.FingerprintSHA256(key), "SHA256:"); got != code.Fingerprint {
				return fmt.Errorf("the SSH server has host key %s, but the host key of dewd is %s: another server answers at this address", got, code.Fingerprint)
			}
			return nil
		},
		BannerCallback: func(message string) error { said.WriteString(message); return nil },
	})
	if err != nil {
		_ = raw.Close() // it can be closed already
		if why := strings.TrimPrefix(strings.TrimSpace(said.String()), "dew: "); why != "" {
			return nil, errors.New(why)
		}
		return nil, fmt.Errorf("cannot log in to the instance: %w", err)
	}
	_ = raw.SetDeadline(time.Time{})
	conn := ssh.NewClient(sc, chans, reqs)
	go keepAlive(conn)
	return conn, nil
}

// loginOf is the SSH user name for an instance.
func loginOf(ctx context.Context, in Location, api *client.Client) (string, error) {
	if in.crashed.requested {
		return crashedLogin(ctx, in, api)
	}
	if in.Index < 0 {
		return "", console.UsageError("-i: %d is less than 0", in.Index)
	}
	a, err := command.FindApp(ctx, api, in.App)
	if err != nil {
		return "", err
	}
	if a.State != "STARTED" {
		return "", &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("app %s is not started", a.Name), Advice: "Start it: dew start " + a.Name}
	}
	ps, err := api.Processes().List(ctx, a.GUID)
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
	return "", fmt.Errorf("app %s has no process %q; its processes: %s", a.Name, in.Process, strings.Join(types, ", "))
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
	defer func() { _ = ses.Close() }() // it can be closed already
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
		return fmt.Errorf("cannot start the command: %w", err)
	}
	go func() {
		_, _ = io.Copy(in, out.In) // Wait returns the result of the session
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

// exitError turns the exit of the remote command into an exit status without a message.
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

// lostStatus is the exit status of OpenSSH if the connection fails.
const lostStatus = 255

// requestTerminal requests a terminal like the local one, and puts the local one into raw
// mode until restore is called.
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
		_ = term.Restore(int(screen.Fd()), before) // there is nothing left to do
	}, nil
}

// sendTerminalSizes sends every new size of the terminal.
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
			_ = ses.WindowChange(h, w) // an ended session has no window
		}
	}
}
