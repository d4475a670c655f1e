package stack

import "io"

// Stack is the root file system that a droplet runs on, as data: the engine
// makes what it says.
type Stack struct {
	Name   string  `json:"name"`
	ID     string  `json:"id"` // changes when what it gives changes
	Shell  string  `json:"shell"`
	Tree   []Tree  `json:"tree,omitempty"` // laid over each other first; none: only what follows
	Dirs   []Dir   `json:"dirs"`           // in order, parents first
	Files  []File  `json:"files"`          // generated
	Lines  []Line  `json:"lines,omitempty"`
	Links  []Link  `json:"links"`  // symbolic
	Mounts []Mount `json:"mounts"` // made for every instance
}

// Tree is a tar with files of a stack. As the layers of images do, a later one
// replaces files of those before it, and removes them by names with .wh. in front.
type Tree struct {
	SHA256 string                        `json:"sha256"`
	Open   func() (io.ReadCloser, error) `json:"-"` // not compressed any more
}

// Line is a line of a file such as /etc/passwd, in place of the one that begins
// with the same name.
type Line struct {
	Path string `json:"path"`
	Name string `json:"name"` // before the first colon
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
type File struct {
	Path string `json:"path"`
	Mode uint32 `json:"mode"`
	Data string `json:"data"`
}

// Link is a symbolic link of the base snapshot.
type Link struct {
	Path   string `json:"path"`
	Target string `json:"target"`
}

// Mount is bound from the host, or a tmpfs, into every instance.
type Mount struct {
	Path    string   `json:"path"`
	Type    string   `json:"type"` // "bind" or "tmpfs"
	Source  string   `json:"source"`
	Options []string `json:"options"`
}
