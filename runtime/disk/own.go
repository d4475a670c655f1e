package disk

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// holds reports whether the file system on the layer's folder is that of its own image.
// It is not if another program has unmounted it, or if the record comes from a copy of
// the root of another daemon, which uses the folder itself. Then the file system below
// the folder must not be changed: it can be the disk of the machine.
func (y *layer) holds() bool {
	var image unix.Stat_t
	if y.Layer == "" || unix.Stat(y.image, &image) != nil {
		return false
	}
	device, err := y.device()
	if err != nil {
		return false
	}
	f, err := os.Open(filepath.Join("/dev", device))
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	return err == nil && info.Inode == image.Ino && info.Device == image.Dev
}

// device returns the name of the block device of the file system on the layer's folder.
func (y *layer) device() (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(y.Layer, &st); err != nil {
		return "", err
	}
	path, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	return filepath.Base(path), err
}
