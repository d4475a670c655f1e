// Package containerd is the engine of dew: it runs one instance, the main
// process and its sidecars, in one containerd task.
//
//	netns  dew-<instance>     owned by the daemon, outlives every process
//	task   dew-<instance>     PID 1 is dew-init: it reaps and idles
//	  exec main               dew-init launch: waits at its gate, then the command
//	  exec sidecar-<n>        one each
//	cgroup <parent>/<instance>/{init,main,sidecar-<n>}
//
// A start goes in this order, and the order is what makes a kill of the daemon
// at any moment harmless: everything is made, every launcher waits at its gate,
// its pid is moved into its leaf, the file "started" is written, the gates open.
// Without that file no command of the app has run, so the next daemon throws the
// rest away; with it the next daemon opens the gates that are still closed.
//
// An end goes: exit seen, leaf killed, exit written down (containerd forgets it
// with the deletion of the exec), exec deleted (which waits for the last bytes),
// capture files read.
package containerd
