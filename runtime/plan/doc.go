// Package plan makes the Spec of a container from the desired state: the command, the
// environment, the memory of each process, the files and the ports of an instance, a
// one-off task, a build or a server. A Planner only reads; it starts nothing.
package plan
