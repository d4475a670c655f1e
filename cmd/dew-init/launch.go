package main

import (
	"errors"
	"os"
	"strings"
	"syscall"
)

const (
	defaultShell  = "/bin/bash"
	fallbackShell = "/bin/sh"
	// defaultPath is searched when the environment has no PATH.
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// profileScript sources what buildpacks (../profile.d) and the app (.profile.d,
// .profile) prepared, and becomes the command's shell. $1 is that shell, $2 the
// command: arguments, so that no quoting can go wrong.
//
// They are kept in variables because a sourced script may change the positional
// parameters ("set --"). The loops are not in a function because "declare" in a
// sourced script would be local to it. Paths are absolute because a script may
// change the directory. Each folder is listed only when its turn comes: scripts of
// the first may write into the second. "command ." keeps a POSIX shell alive when a
// script has a mistake; "set +f" undoes what a script may have left set.
const profileScript = `__dew_shell=$1 __dew_command=$2 __dew_dir=$PWD
shift 2
for __dew_file in "$__dew_dir"/../profile.d/*; do
	if [ -f "$__dew_file" ]; then command . "$__dew_file"; fi
done
set +f
for __dew_file in "$__dew_dir"/.profile.d/*; do
	if [ -f "$__dew_file" ]; then command . "$__dew_file"; fi
done
if [ -f "$__dew_dir/.profile" ]; then command . "$__dew_dir/.profile"; fi
unset __dew_file __dew_dir
exec "$__dew_shell" -c -- "$__dew_command"
`

// launch is one start of one process of an instance.
type launch struct {
	shell   string   // asked for; empty: the default
	profile bool     // whether the profile scripts are sourced
	direct  bool     // argv is a program with its arguments, not a shell command
	argv    []string // the command alone, or the program and its arguments
}

func parseLaunch(args []string) (launch, error) {
	l := launch{profile: true}
	for len(args) > 0 && args[0] != "--" {
		switch {
		case args[0] == "--no-profile":
			l.profile = false
		case args[0] == "--exec":
			l.direct = true
		case args[0] == "--shell" && len(args) > 1 && args[1] != "" && args[1] != "--":
			l.shell = args[1]
			args = args[1:]
		case args[0] == "--shell":
			return l, errors.New("--shell needs a path")
		default:
			return l, errors.New("unknown option " + args[0])
		}
		args = args[1:]
	}
	if len(args) < 2 {
		return l, errors.New("no command after --")
	}
	l.argv = args[1:]
	if l.direct && (l.shell != "" || !l.profile) {
		return l, errors.New("--exec runs no shell: it goes with no other option")
	}
	if !l.direct && len(l.argv) != 1 {
		return l, errors.New("the command must be one argument; --exec takes several")
	}
	return l, nil
}

// run waits at the gate and becomes the command; it returns only when it cannot.
func (l launch) run() int {
	if !gateOpened() {
		return exitGateClosed
	}
	if err := detach(); err != nil {
		return fail(exitCannotExecute, "cannot open /dev/null as standard input: "+err.Error())
	}
	if l.direct {
		return l.runProgram()
	}
	return l.runShell()
}

// gateOpened waits for one byte on stdin. Until it comes the process may be moved
// to its cgroup: nothing of the command has been charged to any yet. The end of
// the file means that the start was called off.
func gateOpened() bool {
	n, err := os.Stdin.Read(make([]byte, 1))
	return n == 1 && err == nil
}

// detach gives the command an empty stdin instead of the gate, and no file besides
// 0, 1 and 2.
func detach() error {
	null, err := syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := syscall.Dup3(null, 0, 0); err != nil { // the new 0 has no close-on-exec
		return err
	}
	// What dew-init opened has close-on-exec already; this is for what it inherited.
	// A kernel that does not know the call (before 5.11) leaves those as they were.
	const closeRange, closeOnExec = 436, 1 << 2
	_, _, _ = syscall.Syscall(closeRange, 3, uintptr(^uint32(0)), closeOnExec)
	return nil
}

// runShell becomes the asked shell, or the fallback when that does not exist. Where
// there is none at all, nothing is sourced and a simple command runs without.
func (l launch) runShell() int {
	asked := l.shell
	if asked == "" {
		asked = defaultShell
	}
	for _, shell := range []string{asked, fallbackShell} {
		argv := []string{shell, "-c", "--", l.argv[0]} // a command may begin with a dash
		if l.profile {
			argv = []string{shell, "-c", profileScript, "dew-init", shell, l.argv[0]}
		}
		err := syscall.Exec(shell, argv, os.Environ())
		if !errors.Is(err, syscall.ENOENT) {
			return fail(exitCannotExecute, "cannot execute "+shell+": "+err.Error())
		}
	}
	argv, err := words(l.argv[0], os.Environ())
	if err != nil {
		return fail(exitNotFound, "cannot run the command: "+err.Error()+" (neither "+asked+" nor "+fallbackShell+" is there)")
	}
	return launch{direct: true, argv: argv}.runProgram()
}

// runProgram becomes the program, which is looked for in PATH when it has no slash.
func (l launch) runProgram() int {
	status, message := exitNotFound, "no such program in PATH"
	for _, path := range candidates(l.argv[0], os.Environ()) {
		err := syscall.Exec(path, l.argv, os.Environ())
		switch {
		case errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR):
			if strings.Contains(l.argv[0], "/") {
				message = err.Error()
			}
		case errors.Is(err, syscall.EACCES):
			// Another folder of PATH may have one that can be executed.
			status, message = exitCannotExecute, err.Error()
		default:
			return fail(exitCannotExecute, "cannot execute "+path+": "+err.Error())
		}
	}
	return fail(status, "cannot execute "+l.argv[0]+": "+message)
}

// candidates lists the files that name may stand for, in the order of trying.
func candidates(name string, env []string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	if name == "" {
		return nil
	}
	path := defaultPath
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
			break
		}
	}
	var files []string
	for dir := range strings.SplitSeq(path, ":") {
		if dir == "" {
			dir = "." // as every shell reads an empty element
		}
		files = append(files, dir+"/"+name)
	}
	return files
}
