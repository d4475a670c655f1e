// Package kubernetes runs instances as Pods. It has the same contract as
// runtime/containerd, and passes the same suite.
//
// Each instance is one Pod: an agent, and one container per process with a wrapper as
// its first process. Pods are never restarted by Kubernetes. The Supervisor of dewd
// decides, as on one machine. The environment and the commands of an app reach its Pod
// over the connection of the agent. They are never part of an object of Kubernetes.
package kubernetes
