package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// reap is the life of PID 1: it collects every process that was left to it, until
// SIGTERM. The kernel then ends what else is in the namespace. A guard, if there is
// one, runs beside.
func reap(g *guard) int {
	// Room for one SIGCHLD is enough: signals may be merged, and one round collects
	// all. SIGTERM has its own channel, so that it never finds it full.
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)

	// The Go runtime ends a program on these by default. An ordinary PID 1 does not
	// even get them, and an app that signals 1 by mistake must not end the instance.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE,
		syscall.SIGALRM, syscall.SIGUSR1, syscall.SIGUSR2)

	if g != nil && len(g.leaves) > 0 {
		go g.keep()
	}
	for {
		collect() // before the first wait, too: children may have ended already
		select {
		case <-children:
		case <-end:
			return 0
		}
	}
}

// collect takes the status of every child that has ended.
func collect() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 { // ECHILD: no child at all; 0: all of them live
			return
		}
	}
}
