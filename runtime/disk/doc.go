// Package disk limits the disk space of the writable layers of instances. Each layer
// with a limit is on a file system of its own, in a sparse image file on a loop device.
// The kernel refuses a write beyond the limit with ENOSPC.
package disk
