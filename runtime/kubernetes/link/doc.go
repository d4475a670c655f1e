// Package link connects dewd with the agent of a Pod, and the agent with the wrappers of
// the processes in the Pod.
//
// The side inside the Pod opens the connection, and the other side then sends HTTP/2
// requests over it. So a Pod needs no open port, and dewd does not have to wait until
// Kubernetes reports the address of the Pod. One connection carries everything: calls,
// the output of processes, sessions and connections to ports.
package link
