package droplet

// Stack is the root file system that a droplet runs on, as data: the engine
// makes what it says.
type Stack struct {
	Name   string  `json:"name"`
	ID     string  `json:"id"` // changes when what it gives changes
	Shell  string  `json:"shell"`
	Dirs   []Dir   `json:"dirs"`   // in order, parents first
	Files  []File  `json:"files"`  // generated
	Links  []Link  `json:"links"`  // symbolic
	Mounts []Mount `json:"mounts"` // made for every instance
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
