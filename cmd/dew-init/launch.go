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
	// defaultPath is searched if the environment has no PATH.
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// profileScript sources the scripts of buildpacks (../profile.d) and of the app
// (.profile.d, .profile), and becomes the command's shell. $1 is that shell, $2 the
// command. They are arguments, so that no quoting can go wrong.
//
// They are stored in variables because a sourced script can change the positional
// parameters ("set --"). The loops are not in a function because "declare" in a sourced
// script would be local to it. Paths are absolute because a script can change the
// directory. Each folder is listed only when its turn comes, because scripts of the
// first can write into the second. "command ." keeps a POSIX shell alive if a script
// has a mistake. "set +f" undoes settings that a script could have left.
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
	shell   string   // requested shell, empty for the default
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
		return l, errors.New("the command after -- is missing")
	}
	l.argv = args[1:]
	if l.direct && (l.shell != "" || !l.profile) {
		return l, errors.New("--exec runs no shell and cannot be combined with other options")
	}
	if !l.direct && len(l.argv) != 1 {
		return l, errors.New("the command must be one argument (use --exec for several arguments)")
	}
	return l, nil
}

// run waits at the gate and becomes the command. It returns only on failure.
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

// gateOpened waits for a line on stdin. Before that, dewd can move the process to its
// cgroup, because no resource of the command has been charged yet. The end of the file
// means that the start was cancelled.
//
// The line is the time of the start, which can be days after the process was created.
func gateOpened() bool {
	line := make([]byte, 64)
	n, err := os.Stdin.Read(line)
	if n == 0 || err != nil {
		return false
	}
	if old, ok := os.LookupEnv(application); ok {
		return os.Setenv(application, withStart(old, string(line[:n]))) == nil
	}
	return true
}

// application describes an instance as JSON.
const application = "VCAP_APPLICATION"

// withStart replaces the value of the key "start". In a JSON text, quotes within a string
// are escaped, so the key can only be found where it is a key.
func withStart(json, line string) string {
	const key = `"start":"`
	before, rest, ok := strings.Cut(json, key)
	old, after, closed := strings.Cut(rest, `"`)
	start, whole := strings.CutSuffix(line, "\n")
	if !ok || !closed || !whole || len(start) != len(old) {
		return json
	}
	return before + key + start + `"` + after
}

// detach gives the command an empty stdin instead of the gate, and no other files than
// 0, 1 and 2.
func detach() error {
	null, err := syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := syscall.Dup3(null, 0, 0); err != nil { // the new 0 has no close-on-exec
		return err
	}
	// Files that dew-init opened already have close-on-exec. This is for inherited
	// files. A kernel without this call (before 5.11) does not change them.
	const closeRange, closeOnExec = 436, 1 << 2
	_, _, _ = syscall.Syscall(closeRange, 3, uintptr(^uint32(0)), closeOnExec)
	return nil
}

// runShell becomes the requested shell, or the fallback if that does not exist. If
// there is no shell at all, nothing is sourced and a simple command runs without one.
func (l launch) runShell() int {
	asked := l.shell
	if asked == "" {
		asked = defaultShell
	}
	for _, shell := range []string{asked, fallbackShell} {
		argv := []string{shell, "-c", "--", l.argv[0]} // a command can start with a dash
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
		return fail(exitNotFound, "cannot run the command: "+err.Error()+" (neither "+asked+" nor "+fallbackShell+" exists)")
	}
	return launch{direct: true, argv: argv}.runProgram()
}

// runProgram becomes the program, which is searched in PATH if it has no slash.
func (l launch) runProgram() int {
	status, message := exitNotFound, "program not found in PATH"
	for _, path := range candidates(l.argv[0], os.Environ()) {
		err := syscall.Exec(path, l.argv, os.Environ())
		switch {
		case errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR):
			if strings.Contains(l.argv[0], "/") {
				message = err.Error()
			}
		case errors.Is(err, syscall.EACCES):
			// Another folder of PATH can have an executable one.
			status, message = exitCannotExecute, err.Error()
		default:
			return fail(exitCannotExecute, "cannot execute "+path+": "+err.Error())
		}
	}
	return fail(status, "cannot execute "+l.argv[0]+": "+message)
}

// candidates lists the files that name can refer to, in the order of trying.
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
