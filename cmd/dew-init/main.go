// Command dew-init is dew's program inside every container. It has three modes:
//
//	dew-init [init …]              PID 1: starts the main process, reaps orphaned
//	                               processes, and pauses processes whose output
//	                               fills the disk unread
//	dew-init launch … -- COMMAND   waits at a gate, then becomes the command
//	dew-init session …             waits for its leaf, then becomes a shell
//
// It is linked statically, because a stack need not have a libc. It imports little,
// because one copy of it stays resident in every container.
//
// Its own exit statuses:
//
//	2    wrong command line
//	125  the gate was closed instead of opened
//	126  the program cannot be executed
//	127  the program does not exist
package main

import "os"

// dew-init's own exit statuses. All others are the command's.
const (
	exitUsage         = 2
	exitGateClosed    = 125
	exitCannotExecute = 126
	exitNotFound      = 127
)

const usage = "usage: dew-init [init]\n" +
	"       dew-init init [--main FILE] --capture DIR --freezer DIR --freeze WORD --thaw WORD --limit BYTES --reserve BYTES -- EXEC...\n" +
	"       dew-init launch [--shell PATH] [--no-profile] -- COMMAND\n" +
	"       dew-init launch --exec -- PROGRAM [ARGUMENT]...\n" +
	"       dew-init session [--cgroup CONTROLLER:LEAF] [--shell PATH] [--profile] [--modes MODES] [-- COMMAND]\n" +
	"       dew-init session [--cgroup CONTROLLER:LEAF] --exec -- PROGRAM [ARGUMENT]...\n" +
	"       dew-init session [--cgroup CONTROLLER:LEAF] --socket PATH\n"

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	if len(args) == 0 || (len(args) == 1 && args[0] == "init") {
		return reap(nil, nil)
	}
	if args[0] == "init" {
		return runInit(args[1:])
	}
	if args[0] == "session" {
		s, err := parseSession(args[1:])
		if err != nil {
			return fail(exitUsage, err.Error()+"\n"+usage)
		}
		return s.run()
	}
	if args[0] != "launch" {
		return fail(exitUsage, "unknown command "+args[0]+"\n"+usage)
	}
	l, err := parseLaunch(args[1:])
	if err != nil {
		return fail(exitUsage, err.Error()+"\n"+usage)
	}
	return l.run()
}

// runInit is PID 1 of a container with processes.
func runInit(args []string) int {
	var path string
	if len(args) > 1 && args[0] == "--main" {
		path, args = args[1], args[2:]
	}
	g, err := parseGuard(args)
	if err != nil {
		return fail(exitUsage, err.Error()+"\n"+usage)
	}
	var m *mainProcess
	if path != "" {
		// It comes first: the process must not inherit what PID 1 ignores.
		if m, err = startMain(path); err != nil {
			return fail(exitCannotExecute, "cannot start the main process: "+err.Error())
		}
	}
	g.open()
	return reap(g, m)
}

// fail prints the message on stderr, which is the app's log, and returns the status.
func fail(status int, message string) int {
	if message[len(message)-1] != '\n' {
		message += "\n"
	}
	// If stderr is closed, only the status reports the error.
	_, _ = os.Stderr.WriteString("dew-init: " + message)
	return status
}
