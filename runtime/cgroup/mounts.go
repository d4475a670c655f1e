package cgroup

import (
	"slices"
	"strings"
)

// Mounts returns the mounted v1 controllers, and the mount point of v2.
func Mounts(mountinfo string) (v1 []string, unified string) {
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		switch right[0] {
		case "cgroup2":
			unified = left[4]
		case "cgroup":
			v1 = append(v1, controllersOf(right[2])...)
		}
	}
	return v1, unified
}

// controllersOf removes the options of a v1 mount that are not controllers. systemd's
// own named hierarchy has none.
func controllersOf(options string) []string {
	return slices.DeleteFunc(strings.Split(options, ","), func(o string) bool {
		return o == "rw" || o == "ro" || o == "xattr" || strings.Contains(o, "=")
	})
}
