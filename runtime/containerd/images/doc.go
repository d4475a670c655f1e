// Package images has the snapshots of stacks and droplets in containerd, on which the
// writable layers of instances are created.
package images
