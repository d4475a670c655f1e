package disk

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// folder is an empty folder of a layer.
type folder struct {
	name     string
	mode     fs.FileMode
	uid, gid int
}

// describeFolders lists the folders of a layer. Anything else in it is an error, because
// a mounted file system would hide it.
func describeFolders(dir string) ([]folder, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot list the folders of a layer: %w", err)
	}
	var out []folder
	for _, d := range entries {
		path := filepath.Join(dir, d.Name())
		inside, err := os.ReadDir(path)
		if err != nil {
			return nil, fmt.Errorf("cannot read a folder of a layer: %w", err)
		}
		if len(inside) > 0 {
			return nil, fmt.Errorf("cannot limit a layer that has files: %s is not empty", path)
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return nil, fmt.Errorf("cannot read a folder of a layer: %w", err)
		}
		out = append(out, folder{d.Name(), fs.FileMode(st.Mode & 0o777), int(st.Uid), int(st.Gid)})
	}
	return out, nil
}

// create creates the folder in dir.
func (f folder) create(dir string) error {
	path := filepath.Join(dir, f.name)
	if err := os.Mkdir(path, f.mode); err != nil {
		return err
	}
	if err := os.Chown(path, f.uid, f.gid); err != nil {
		return err
	}
	return os.Chmod(path, f.mode) // whatever the umask is
}

// isMount reports whether a file system is mounted on dir.
func isMount(dir string) bool {
	var st, parent unix.Stat_t
	return dir != "" && unix.Stat(dir, &st) == nil && unix.Stat(filepath.Dir(dir), &parent) == nil && st.Dev != parent.Dev
}

// free returns the free bytes of the disk of dir.
func free(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("cannot read the free space of %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}
