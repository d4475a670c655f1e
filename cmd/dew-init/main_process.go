package main

import (
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/dewrun/dew/runtime/mainfile"
)

// mainProcess is the process that PID 1 starts itself. It gets the standard streams of
// PID 1, which the container's shim copies, as for every other process.
type mainProcess struct {
	reports *os.File
	pid     int // 0: it does not run
}

// noUser gets the file, which an app that runs as root could otherwise fill. It is -1 in 16
// bits, which no program uses.
const noUser = 65535

// startMain starts the main process as a file requests it, and reports that there.
func startMain(path string) (*mainProcess, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	m := &mainProcess{reports: f}
	report := mainfile.Start{}
	if m.pid, err = startRequested(f); err != nil {
		report.Failure = err.Error()
	}
	report.PID = m.pid
	if cerr := f.Chown(noUser, noUser); cerr != nil && report.Failure == "" {
		return nil, cerr
	}
	// The command must be able to close its streams, and the shim sees their end only if
	// PID 1 has them no longer.
	err = errors.Join(dropCapabilities(), hide(), closeStreams())
	if werr := mainfile.WriteStart(f, report); werr != nil || err != nil {
		return nil, errors.Join(err, werr)
	}
	return m, nil
}

// startRequested starts the process that a file requests.
func startRequested(f io.Reader) (int, error) {
	b, err := io.ReadAll(f)
	if err != nil {
		return 0, err
	}
	r, err := mainfile.Decode(b)
	if err != nil {
		return 0, err
	}
	if err := ownStreams(int(r.UID), int(r.GID)); err != nil {
		return 0, err
	}
	if err := emptyBounding(); err != nil {
		return 0, err
	}
	attr := &syscall.ProcAttr{
		Env: withHome(r.Env, r.UID), Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: r.UID, Gid: r.GID, NoSetGroups: keepsGroups()}},
	}
	// Root can enter folders that the user cannot, and the other way around.
	if syscall.Chdir(r.Dir) == nil {
		defer func() { _ = syscall.Chdir("/") }() // PID 1 must not keep a folder in use
	} else {
		attr.Dir = r.Dir
	}
	pid, err := syscall.ForkExec(r.Args[0], r.Args, attr)
	if err != nil && attr.Dir != "" {
		return 0, errors.New("cannot start in the folder " + r.Dir + ": " + err.Error())
	}
	if err != nil {
		return 0, errors.New("cannot execute " + r.Args[0] + ": " + err.Error())
	}
	return pid, nil
}

// keepsGroups reports whether the user namespace forbids to change the groups of a process.
func keepsGroups() bool {
	b, _ := os.ReadFile("/proc/self/setgroups") // without the file it does not
	return strings.TrimSpace(string(b)) == "deny"
}

// reaped reports the exit of the main process, if that is the one that exited.
func (m *mainProcess) reaped(pid int, ws syscall.WaitStatus) {
	if m == nil || m.pid == 0 || pid != m.pid {
		return
	}
	m.pid = 0 // another process can get its number
	code := ws.ExitStatus()
	if ws.Signaled() {
		const signalBase = 128
		code = signalBase + int(ws.Signal())
	}
	_ = mainfile.WriteExit(m.reports, mainfile.Exit{Code: code, At: time.Now()}) // the space is reserved
}

// ownStreams gives the standard streams to the user, who can then open /dev/stdout.
func ownStreams(uid, gid int) error {
	for fd := range 3 {
		var st syscall.Stat_t
		if err := syscall.Fstat(fd, &st); err != nil {
			return errors.New("a standard stream is not open: " + err.Error())
		}
		if st.Mode&syscall.S_IFMT != syscall.S_IFIFO {
			continue
		}
		if err := syscall.Fchown(fd, uid, gid); err != nil {
			return errors.New("cannot give a standard stream to the user: " + err.Error())
		}
	}
	return nil
}

// closeStreams replaces the standard streams with /dev/null.
func closeStreams() error {
	null, err := syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	for fd := range 3 {
		if err := syscall.Dup3(null, fd, 0); err != nil {
			return err
		}
	}
	return syscall.Close(null)
}

const (
	readBounding = 23 // PR_CAPBSET_READ
	dropBounding = 24 // PR_CAPBSET_DROP
	maxCaps      = 64
)

// emptyBounding makes it impossible for the process to have any capability. It needs a
// capability itself, and so does the start as another user.
func emptyBounding() error {
	for c := range uintptr(maxCaps) {
		has, _, e := syscall.RawSyscall(syscall.SYS_PRCTL, readBounding, c, 0)
		if e != 0 {
			return nil // the kernel has no further capabilities
		}
		if has == 0 {
			continue
		}
		if _, _, e := syscall.AllThreadsSyscall(syscall.SYS_PRCTL, dropBounding, c, 0); e != 0 {
			return errors.New("cannot give up the capabilities of PID 1: " + e.Error())
		}
	}
	return nil
}

// capHeader and capSets are for capset(2).
type (
	capHeader struct{ version, pid uint32 }
	capSets   [6]uint32 // effective, permitted and inheritable, twice
)

// dropCapabilities gives up all capabilities. No code of the app has run before.
func dropCapabilities() error {
	const version3 = 0x20080522
	header, none := capHeader{version: version3}, capSets{}
	_, _, e := syscall.AllThreadsSyscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none)), 0)
	if e != 0 {
		return errors.New("cannot give up the capabilities of PID 1: " + e.Error())
	}
	return nil
}

// hide makes the kernel refuse that other processes of the container use the memory and the
// files of PID 1, even if they are root.
func hide() error {
	const setDumpable = 4 // PR_SET_DUMPABLE
	if _, _, e := syscall.RawSyscall(syscall.SYS_PRCTL, setDumpable, 0, 0); e != 0 {
		return errors.New("cannot hide PID 1 from other processes: " + e.Error())
	}
	return nil
}

// withHome returns env with the home folder of the user, if it has none. The container
// runtime does the same for the processes that it starts.
func withHome(env []string, uid uint32) []string {
	const name = "HOME="
	env = slices.DeleteFunc(env, func(kv string) bool { return kv == name })
	if slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name) }) {
		return env
	}
	passwd, _ := os.ReadFile("/etc/passwd") // without the file, or the user in it, the folder is /
	return append(env, name+homeOf(string(passwd), uid))
}

// homeOf returns the home folder of a user.
func homeOf(passwd string, uid uint32) string {
	const uidField, homeField, fields = 2, 5, 7
	for line := range strings.Lines(passwd) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(f) == fields && f[uidField] == strconv.FormatUint(uint64(uid), 10) && f[homeField] != "" {
			return f[homeField]
		}
	}
	return "/"
}
