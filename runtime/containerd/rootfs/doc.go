// Package rootfs writes and reads the files of a container. It creates the files of a
// stack, unpacks droplets and layers, and packs the result of a build.
package rootfs
