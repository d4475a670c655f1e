// Package containerd is the engine of dew. It runs one instance, the main process and
// its sidecars, in one containerd task.
//
//	netns  dew-<instance>     owned by the daemon, outlives every process
//	task   dew-<instance>     PID 1 is dew-init: it starts main, and reaps
//	  main                    dew-init launch: waits at its gate, then the command
//	  exec sidecar-<n>        the same, one each
//	cgroup <parent>/<instance>/{init,main,sidecar-<n>}
//
// The order of a start makes it safe to kill the daemon at any moment. First,
// everything is created and every launcher waits at its gate. Then the pid of each
// launcher is moved into its leaf, the file "started" is written, and the gates open.
// Without that file no command of the app has run, so the next daemon removes the rest.
// With it, the next daemon opens the gates that are still closed.
//
// The order of an exit is: exit seen, leaf killed, exit stored, exec deleted, capture
// files read. The exit is stored because containerd forgets it when the exec is
// deleted. The deletion waits for the last bytes.
//
// PID 1 starts the main process, which has the standard streams of the container, because
// an exec takes longer. It reports the start and the exit in a file. There is no exec to
// delete: dewd waits until the shim has closed the capture files.
//
// The packages below have the parts of it: the connection to containerd, the OCI spec,
// the files of a container, its snapshots, sessions in it, and its names. Only they and
// this package import containerd.
package containerd
