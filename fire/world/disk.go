package world

import (
	"io/fs"
	"syscall"
)

// blockBytes is the unit of Stat_t.Blocks.
const blockBytes = 512

// allocated returns the bytes that a file uses. Files with holes use fewer than their
// size.
func allocated(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * blockBytes
	}
	return info.Size()
}
