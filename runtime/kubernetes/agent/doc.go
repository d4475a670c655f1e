// Package agent is the part of dew that runs in every Pod, next to the processes of the
// app and as another user. It connects to dewd, passes requests on to the wrappers of
// the processes, sends their output and exits, and opens connections inside the network
// of the Pod. It has no state of its own: it can be killed and started again.
package agent
