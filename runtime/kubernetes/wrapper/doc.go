// Package wrapper runs one process of an app in a container of a Pod. The wrapper is the
// first process of the container. It starts the command when the agent tells it to,
// captures the output in files, and reports the exit with its own clock. Kubernetes has
// times with a resolution of one second, so only wrappers know which process exited
// first.
package wrapper
