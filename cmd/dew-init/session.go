package main

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// session is what somebody runs beside the processes of an instance. Unlike a
// launch it keeps its stdin, which may be a terminal: so the gate is not a byte to
// be read from it, but the leaf that the daemon moves it to.
type session struct {
	controller string // of the hierarchy that is moved last; empty: the unified one
	leaf       string
	shell      string
	profile    bool
	direct     bool   // argv is a program with its arguments
	socket     string // path of a UNIX socket to be joined to stdin and stdout
	modes      []mode
	argv       []string // the command alone, or the program; none: an interactive shell
}

// mode is one setting of a terminal, in the numbers of RFC 4254.
type mode struct{ opcode, value uint32 }

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
	case s.leaf == "":
		return s, errors.New("a session needs --cgroup CONTROLLER:LEAF")
	case s.direct && len(s.argv) == 0:
		return s, errors.New("no program after --")
	case !s.direct && len(s.argv) > 1:
		return s, errors.New("the command must be one argument; --exec takes several")
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

// parseModes reads "53=0,128=38400".
func parseModes(text string) ([]mode, error) {
	var out []mode
	for item := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(item, "=")
		opcode, err := strconv.ParseUint(name, 10, 8)
		v, verr := strconv.ParseUint(value, 10, 32)
		if err != nil || verr != nil {
			return nil, errors.New("--modes needs OPCODE=VALUE,...")
		}
		out = append(out, mode{uint32(opcode), uint32(v)})
	}
	return out, nil
}

// run waits for its leaf and becomes what was asked for; it returns only when it
// cannot, or when a socket was joined to its end.
func (s session) run() int {
	if !s.placed() {
		return exitGateClosed
	}
	applyModes(0, s.modes) // on what is no terminal it does nothing
	switch {
	case s.socket != "":
		return join(s.socket)
	case s.direct:
		return launch{direct: true, argv: s.argv}.runProgram()
	}
	return s.runShell()
}

// gatePatience is far more than the daemon needs: it is gone, and so is whoever
// would have listened.
const (
	gatePatience = 60 * 1000 // milliseconds
	gateLook     = 1
)

// placed waits until the process stands in its leaf: nothing that is run in the
// session may be charged to another.
func (s session) placed() bool {
	for waited := 0; waited < gatePatience; waited += gateLook {
		b, err := os.ReadFile("/proc/self/cgroup")
		if err != nil {
			return false
		}
		if inLeaf(string(b), s.controller, s.leaf) {
			return true
		}
		pause := syscall.NsecToTimespec(gateLook * 1e6)
		_ = syscall.Nanosleep(&pause, nil) // a signal only makes it look earlier
	}
	return false
}

// inLeaf looks for the leaf in the lines "number:controllers:path" of a process.
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

// runShell becomes the asked shell, or one that every stack with a shell has.
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

// shellArgs is how a shell is called. It is no login shell: that would set PATH
// and more anew, and a session is to see what the app sees.
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

// join connects to a UNIX socket and carries bytes between it and stdin and
// stdout, until both ways are at their end.
func join(path string) int {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: path})
	}
	if err != nil {
		return fail(1, "cannot connect to "+path+": "+err.Error())
	}
	// The daemon waits for it before it tells the client that all is well.
	if !writeAll(2, []byte{0}) {
		return 1
	}
	go func() {
		carry(fd, 0)
		_ = syscall.Shutdown(fd, syscall.SHUT_WR) // the other side may be gone already
	}()
	carry(1, fd)
	return 0
}

// carry copies until the end of from, or until nobody reads at to.
func carry(to, from int) {
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

// The opcodes of RFC 4254, section 8, as what they set. They are lists and no maps:
// a list is made by the compiler, a map at every start of every face.
var (
	controlChars = []setting{
		{1, syscall.VINTR}, {2, syscall.VQUIT}, {3, syscall.VERASE}, {4, syscall.VKILL}, {5, syscall.VEOF}, {6, syscall.VEOL},
		{7, syscall.VEOL2}, {8, syscall.VSTART}, {9, syscall.VSTOP}, {10, syscall.VSUSP}, {12, syscall.VREPRINT},
		{13, syscall.VWERASE}, {14, syscall.VLNEXT}, {18, syscall.VDISCARD},
	}
	inputFlags = []setting{
		{30, syscall.IGNPAR}, {31, syscall.PARMRK}, {32, syscall.INPCK}, {33, syscall.ISTRIP}, {34, syscall.INLCR}, {35, syscall.IGNCR},
		{36, syscall.ICRNL}, {37, syscall.IUCLC}, {38, syscall.IXON}, {39, syscall.IXANY}, {40, syscall.IXOFF}, {41, syscall.IMAXBEL},
		{42, syscall.IUTF8},
	}
	localFlags = []setting{
		{50, syscall.ISIG}, {51, syscall.ICANON}, {52, syscall.XCASE}, {53, syscall.ECHO}, {54, syscall.ECHOE}, {55, syscall.ECHOK},
		{56, syscall.ECHONL}, {57, syscall.NOFLSH}, {58, syscall.TOSTOP}, {59, syscall.IEXTEN}, {60, syscall.ECHOCTL}, {61, syscall.ECHOKE},
		{62, syscall.PENDIN},
	}
	outputFlags = []setting{
		{70, syscall.OPOST}, {71, syscall.OLCUC}, {72, syscall.ONLCR}, {73, syscall.OCRNL}, {74, syscall.ONOCR}, {75, syscall.ONLRET},
	}
)

// setting is the number of an opcode, and the flag or character it stands for.
type setting struct{ opcode, what uint32 }

func find(list []setting, opcode uint32) (uint32, bool) {
	for _, s := range list {
		if s.opcode == opcode {
			return s.what, true
		}
	}
	return 0, false
}

// applyModes gives the terminal the settings that the client's has.
func applyModes(fd uintptr, modes []mode) {
	var t syscall.Termios
	if len(modes) == 0 {
		return
	}
	if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TCGETS, uintptr(unsafe.Pointer(&t))); e != 0 {
		return
	}
	for _, m := range modes {
		setMode(&t, m)
	}
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TCSETS, uintptr(unsafe.Pointer(&t)))
}

func setMode(t *syscall.Termios, m mode) {
	const disabled = 255 // a control character that is none
	if at, ok := find(controlChars, m.opcode); ok {
		t.Cc[at] = byte(m.value)
		if m.value == disabled {
			t.Cc[at] = 0
		}
		return
	}
	for _, set := range []struct {
		flags []setting
		word  *uint32
	}{{inputFlags, &t.Iflag}, {localFlags, &t.Lflag}, {outputFlags, &t.Oflag}} {
		flag, ok := find(set.flags, m.opcode)
		switch {
		case ok && m.value != 0:
			*set.word |= flag
		case ok:
			*set.word &^= flag
		}
	}
}
