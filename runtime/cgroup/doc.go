// Package cgroup creates the control groups of instances: one group for each instance,
// with a leaf for each of its processes. It works on cgroup v1, v2 and hybrid hosts.
package cgroup
