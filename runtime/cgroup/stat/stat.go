// Package stat reads the statistics files of control groups.
package stat

import (
	"bytes"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// statSize is enough for every statistics file of the kernel that is read here.
const statSize = 16 << 10

// Read reads a flat keyed file once, and returns the values of the keys. A missing
// file or key counts as 0.
func Read(dir, file string, keys ...string) []int64 {
	out := make([]int64, len(keys))
	var room [statSize]byte
	rest := readFile(filepath.Join(dir, file), room[:])
	for len(rest) > 0 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte{'\n'})
		name, value, ok := bytes.Cut(line, []byte{' '})
		if !ok {
			continue
		}
		for i, key := range keys {
			if string(name) == key {
				out[i], _ = strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64) // not a number: the same as missing
			}
		}
	}
	return out
}

// Count reads a file with one number. A missing file and "max" count as 0.
func Count(dir, file string) int64 {
	var room [64]byte
	n, _ := strconv.ParseInt(string(bytes.TrimSpace(readFile(filepath.Join(dir, file), room[:]))), 10, 64)
	return n
}

// readFile reads the start of a file into b. It uses system calls: package os registers
// each file for polling, and the usage of all instances is read every few seconds.
func readFile(path string, b []byte) []byte {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	n := 0
	for n < len(b) {
		got, err := unix.Read(fd, b[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || got == 0 {
			break
		}
		n += got
	}
	return b[:n]
}
