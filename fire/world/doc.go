// Package world runs the dewd of the fault suite: in folders of its own, with a private
// containerd, and started again whenever it exits. It also finds the processes and the
// resources of that dewd on the machine, so that faults touch nothing else.
package world
