// Package shim finds the shims of containerd among the processes of the machine, and
// kills those that containerd lost.
package shim
