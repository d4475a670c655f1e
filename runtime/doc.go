// Package runtime defines the types for running containers. For containers it has the
// Spec, the interface of an Engine and that of its sessions. For their state it has the
// Status of a slot, the Exit of a process and the ExitRecord of a crash. It makes no
// decisions:
//
//	plan        creates a Spec from the desired state
//	supervisor  keeps the desired instances running: policy
//	containerd  is the Engine: how containers run
package runtime
