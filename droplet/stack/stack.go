package stack

import (
	"io"

	"github.com/dewrun/dew/droplet/packing"
)

// Stack is the root file system of a droplet, as data. The engine creates it.
type Stack struct {
	Name   string  `json:"name"`
	ID     string  `json:"id"` // changes with the content
	Shell  string  `json:"shell"`
	Tree   []Tree  `json:"tree,omitempty"` // laid over each other first; empty: only the files below
	Dirs   []Dir   `json:"dirs"`           // in order, parents first
	Files  []File  `json:"files"`          // generated files
	Lines  []Line  `json:"lines,omitempty"`
	Links  []Link  `json:"links"`  // symbolic links
	Mounts []Mount `json:"mounts"` // created for every instance
}

// Tree is a tar with files of a stack. As in image layers, a later tree replaces files
// of earlier ones, and removes files by names that start with .wh.
type Tree struct {
	SHA256 string                        `json:"sha256"`
	Open   func() (io.ReadCloser, error) `json:"-"` // returns it decompressed
}

// Line is a line of a file such as /etc/passwd. It replaces the line that starts with
// the same name.
type Line struct {
	Path string `json:"path"`
	Name string `json:"name"` // the text before the first colon
	Text string `json:"text"`
}

// Dir is a folder of the base snapshot. Mode has the bits of chmod(2): 01000 is
// the sticky bit.
type Dir struct {
	Path string `json:"path"`
	Mode uint32 `json:"mode"`
	UID  int    `json:"uid"`
	GID  int    `json:"gid"`
}

// File is a generated file of the base snapshot.
type File = packing.File

// Link is a symbolic link of the base snapshot.
type Link struct {
	Path   string `json:"path"`
	Target string `json:"target"`
}

// MountVolume is the type of a mount of a volume in a cluster. Its source is the guid of a
// server.
const MountVolume = "volume"

// Mount is bound from the host, or a tmpfs, into every instance.
type Mount struct {
	Path    string   `json:"path"`
	Type    string   `json:"type"` // "bind", "tmpfs" or MountVolume
	Source  string   `json:"source"`
	Options []string `json:"options"`
}
