// Package ocispec writes the OCI spec of an instance's container and of the processes in
// it: mounts, namespaces, limits and the seccomp profile.
package ocispec
