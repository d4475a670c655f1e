// Package runtime has the terms of what runs: the Spec of a container, the contract of
// an Engine that starts containers and of the sessions in them, the Status of a slot,
// the Exit of a process and the ExitRecord of a crash. It decides nothing:
//
//	plan        makes a Spec from the desired state
//	supervisor  keeps the desired instances alive: policy
//	containerd  is the Engine: how containers run
package runtime
