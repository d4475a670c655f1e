package main

import (
	"errors"
	"os"
	"strings"
	"syscall"
)

// session is a command or a shell that a user runs in addition to the processes of an
// instance. Unlike a launch it keeps its stdin, which can be a terminal. So the gate is
// not a byte on stdin, but the leaf that the daemon moves it to. In a Pod there are no
// leaves, and it starts at once.
type session struct {
	controller string // controller of the hierarchy that is moved last, empty for the unified one
	leaf       string
	shell      string
	profile    bool
	direct     bool   // argv is a program with its arguments
	socket     string // path of a UNIX socket to connect to stdin and stdout
	modes      []mode
	argv       []string // the command alone, or the program; empty for an interactive shell
}

func parseSession(args []string) (session, error) {
	var s session
	for len(args) > 0 && args[0] != "--" {
		name, value := args[0], ""
		args = args[1:]
		switch name {
		case "--profile":
			s.profile = true
			continue
		case "--exec":
			s.direct = true
			continue
		case "--cgroup", "--shell", "--socket", "--modes":
			if len(args) == 0 || args[0] == "" || args[0] == "--" {
				return s, errors.New(name + " needs a value")
			}
			value, args = args[0], args[1:]
		default:
			return s, errors.New("unknown option " + name)
		}
		if err := s.set(name, value); err != nil {
			return s, err
		}
	}
	if len(args) > 0 {
		s.argv = args[1:]
	}
	switch {
	case s.direct && len(s.argv) == 0:
		return s, errors.New("the program after -- is missing")
	case !s.direct && len(s.argv) > 1:
		return s, errors.New("the command must be one argument (use --exec for several arguments)")
	}
	return s, nil
}

func (s *session) set(name, value string) error {
	var err error
	switch name {
	case "--shell":
		s.shell = value
	case "--socket":
		s.socket = value
	case "--modes":
		s.modes, err = parseModes(value)
	case "--cgroup":
		var ok bool
		if s.controller, s.leaf, ok = strings.Cut(value, ":"); !ok {
			err = errors.New("--cgroup needs CONTROLLER:LEAF")
		}
	}
	return err
}

// run waits for its leaf and becomes the requested program. It returns only on failure,
// or when the connection to a socket is closed.
func (s session) run() int {
	if s.leaf != "" && !s.awaitLeaf() {
		return exitGateClosed
	}
	applyModes(0, s.modes) // it does nothing if stdin is not a terminal
	switch {
	case s.socket != "":
		return join(s.socket)
	case s.direct:
		return launch{direct: true, argv: s.argv}.runProgram()
	}
	return s.runShell()
}

// gateTimeout is much longer than the daemon needs. After that, the daemon and its
// client no longer exist.
const (
	gateTimeout  = 60 * 1000 // in milliseconds
	gateInterval = 1
)

// awaitLeaf waits until the process is in its leaf, so that nothing in the session is
// charged to another one.
func (s session) awaitLeaf() bool {
	for waited := 0; waited < gateTimeout; waited += gateInterval {
		b, err := os.ReadFile("/proc/self/cgroup")
		if err != nil {
			return false
		}
		if inLeaf(string(b), s.controller, s.leaf) {
			return true
		}
		pause := syscall.NsecToTimespec(gateInterval * 1e6)
		_ = syscall.Nanosleep(&pause, nil) // a signal only makes the next check earlier
	}
	return false
}

// inLeaf searches for the leaf in the lines "number:controllers:path" of a process.
func inLeaf(lines, controller, leaf string) bool {
	for line := range strings.Lines(lines) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		controllers, path, ok := strings.Cut(rest, ":")
		if !ok || !strings.HasSuffix(path, "/"+leaf) {
			continue
		}
		for c := range strings.SplitSeq(controllers, ",") {
			if c == controller {
				return true
			}
		}
	}
	return false
}

// runShell becomes the requested shell, or one that every stack with a shell has.
func (s session) runShell() int {
	asked := s.shell
	if asked == "" {
		asked = defaultShell
	}
	for _, shell := range []string{asked, defaultShell, fallbackShell} {
		err := syscall.Exec(shell, s.shellArgs(shell), os.Environ())
		if !errors.Is(err, syscall.ENOENT) {
			return fail(exitCannotExecute, "cannot execute "+shell+": "+err.Error())
		}
	}
	return fail(exitNotFound, "the stack has no shell: neither "+asked+" nor "+fallbackShell)
}

// shellArgs returns the arguments of a shell. It is not a login shell, because that
// would reset PATH and other variables. A session must see the same environment as the
// app.
func (s session) shellArgs(shell string) []string {
	switch {
	case s.profile && len(s.argv) == 0:
		return []string{shell, "-c", profileScript, "dew-init", shell, "exec " + shell}
	case s.profile:
		return []string{shell, "-c", profileScript, "dew-init", shell, s.argv[0]}
	case len(s.argv) == 0:
		return []string{shell}
	}
	return []string{shell, "-c", "--", s.argv[0]}
}

// join connects to a UNIX socket and copies bytes between it and stdin and stdout,
// until both directions are closed.
func join(path string) int {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: path})
	}
	if err != nil {
		return fail(1, "cannot connect to "+path+": "+err.Error())
	}
	// The daemon waits for this byte before it reports success to the client.
	if !writeAll(2, []byte{0}) {
		return 1
	}
	go func() {
		copyFD(fd, 0)
		_ = syscall.Shutdown(fd, syscall.SHUT_WR) // the other side could be closed already
	}()
	copyFD(1, fd)
	return 0
}

// copyFD copies until the end of from, or until to cannot be written.
func copyFD(to, from int) {
	buf := make([]byte, 32<<10)
	for {
		n, err := syscall.Read(from, buf)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || n <= 0 || !writeAll(to, buf[:n]) {
			return
		}
	}
}

func writeAll(fd int, b []byte) bool {
	for len(b) > 0 {
		n, err := syscall.Write(fd, b)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return false
		}
		b = b[n:]
	}
	return true
}
