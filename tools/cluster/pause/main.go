// Command pause is the first process of every Pod: it keeps the namespaces of the Pod,
// and with shareProcessNamespace it is the parent of orphaned processes.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// The kernel removes zombies of a process that ignores SIGCHLD.
	signal.Ignore(syscall.SIGCHLD)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
}
