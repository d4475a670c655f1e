package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// reap is the main loop of PID 1. It reaps every orphaned process until SIGTERM. Then
// the kernel kills all other processes in the namespace. A guard, if there is one, runs
// in parallel. The exit of the main process, if PID 1 started one, is reported.
func reap(g *guard, m *mainProcess) int {
	// Room for one SIGCHLD is enough: signals can be merged, and one round reaps all.
	// SIGTERM has its own channel, so that the channel is never full for it.
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)

	// By default, the Go runtime exits on these signals. An ordinary PID 1 does not
	// even get them, and an app that signals 1 by mistake must not stop the instance.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE,
		syscall.SIGALRM, syscall.SIGUSR1, syscall.SIGUSR2)

	if g != nil && len(g.leaves) > 0 {
		go g.run()
	}
	for {
		collect(m) // also before the first wait, because children could have exited already
		select {
		case <-children:
		case <-end:
			return 0
		}
	}
}

// collect reaps every child that has exited.
func collect(m *mainProcess) {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 { // ECHILD: no child at all. 0: all children are alive
			return
		}
		m.reaped(pid, ws)
	}
}
