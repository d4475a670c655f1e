package main

import (
	"path/filepath"

	"github.com/dewrun/dew/runtime/containerd"
)

// crashed bounds what is kept of crashed instances.
func (c config) crashed() containerd.Crashed {
	return containerd.Crashed{Dir: filepath.Join(c.Root, "crashed"), Bytes: int64(c.CrashFiles), Reserve: int64(c.LogReserve)}
}
