// Package connection makes calls to containerd. It distinguishes an error of the
// connection from the answer of containerd, because an error of the connection says
// nothing about a process.
package connection
