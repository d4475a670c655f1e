// Package plan creates the Spec of a container from the desired state. A Spec has the
// command, the environment, the memory of each process, the files and the ports. It is
// for an instance, a one-off task, a build or a server. A Planner only reads; it starts
// nothing.
package plan
