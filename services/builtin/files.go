package builtin

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/runtime"
)

// Paths in the container of a server.
const (
	dataDir    = "/data"
	confDir    = "/conf"
	scriptFile = "server.sh"
	adminFile  = "admin" // a password, readable by the app user only
)

// home returns the folder of an instance on the machine; the others are in it.
func (b *servers) home(guid string) string      { return filepath.Join(b.c.Dir, guid) }
func (b *servers) storeDir(guid string) string  { return filepath.Join(b.home(guid), "store") }
func (b *servers) confDir(guid string) string   { return filepath.Join(b.home(guid), "conf") }
func (b *servers) copiesDir(guid string) string { return filepath.Join(b.home(guid), "snapshots") }

// makeDir creates a folder that other users cannot access.
func makeDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("cannot create folder %s: %w", path, err)
	}
	return nil
}

// writeFiles creates the folders of an instance and writes its configuration for a
// shape. It can be repeated.
func (b *servers) writeFiles(rec record, s shape) error {
	e, ok := engineOf(rec.Engine)
	if !ok {
		return fmt.Errorf("this dewd does not support the service %s", rec.Engine)
	}
	if err := b.makeDirs(rec.GUID); err != nil {
		return err
	}
	files := e.files(rec, s)
	files[scriptFile] = e.script
	if b.inCluster() {
		files[replaceFile] = ""
		if rec.Replace != "" {
			files[replaceFile] = rec.Version + " " + rec.Replace + "\n"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := b.write(filepath.Join(b.confDir(rec.GUID), name), files[name]); err != nil {
			return err
		}
	}
	return nil
}

// makeDirs creates the folders of an instance.
func (b *servers) makeDirs(guid string) error {
	dirs := []string{b.home(guid), b.confDir(guid)}
	if !b.inCluster() {
		dirs = append(dirs, b.storeDir(guid))
	}
	for _, dir := range dirs {
		if err := makeDir(dir); err != nil {
			return err
		}
	}
	if b.inCluster() { // dewd reads the configuration and sends it to the Pod
		return nil
	}
	// Other users cannot enter the parent folder, so these modes apply to the app user.
	err := errors.Join(os.Chown(b.storeDir(guid), b.c.UID, b.c.GID), os.Chmod(b.confDir(guid), 0o755))
	if err != nil {
		return fmt.Errorf("cannot create the folders of service instance %s: %w", guid, err)
	}
	return nil
}

// write writes a configuration file atomically and durably. Only the app user can read
// it.
func (b *servers) write(path, text string) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	_, err = f.WriteString(text)
	if !b.inCluster() {
		err = errors.Join(err, f.Chown(b.c.UID, b.c.GID))
	}
	if err = errors.Join(err, f.Chmod(0o400), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}

// server returns the server for a shape of the instance, which the supervisor keeps
// running.
func (b *servers) server(rec record, s shape) (runtime.Server, error) {
	e, ok := engineOf(rec.Engine)
	if !ok {
		return runtime.Server{}, fmt.Errorf("this dewd does not support the service %s", rec.Engine)
	}
	z := e.size(s)
	bind := func(source, target, mode string) stack.Mount {
		return stack.Mount{Path: target, Type: "bind", Source: source, Options: []string{"bind", mode, "nosuid", "nodev"}}
	}
	data := bind(b.storeDir(rec.GUID), dataDir, "rw")
	if b.inCluster() {
		data = stack.Mount{Path: dataDir, Type: stack.MountVolume, Source: rec.GUID}
	}
	return runtime.Server{
		GUID: rec.GUID, Name: rec.Name, Source: e.source(), Version: rec.Version, Stack: rec.Stack,
		Command: scriptCommand("run"), Dir: dataDir, MemoryMB: z.memoryMB, DiskMB: z.diskMB,
		Ports: []int{e.port}, Address: rec.Address, KillDelay: e.killDelay,
		Mounts: []stack.Mount{data, bind(b.confDir(rec.GUID), confDir, "ro")},
		// The server may have to create its data, or repair it after a power failure.
		Check: app.HealthCheck{Type: app.CheckPort, Port: e.port, Timeout: b.c.Start},
	}, nil
}

// hasData reports whether the server has created its data. It is not known for a volume.
func (b *servers) hasData(guid string) bool {
	if b.inCluster() {
		return true
	}
	_, err := os.Lstat(filepath.Join(b.storeDir(guid), "data"))
	return err == nil
}

// scriptError returns the script's error message, in one line. The app user owns the
// file, so it is opened without following links out of its folder.
func (b *servers) scriptError(guid string) string {
	root, err := os.OpenRoot(b.storeDir(guid))
	if err != nil {
		return ""
	}
	defer func() { _ = root.Close() }() // opened for reading only
	fi, err := root.Lstat("failed")
	if err != nil || !fi.Mode().IsRegular() {
		return ""
	}
	f, err := root.Open("failed")
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err != nil {
		return ""
	}
	return oneLine(string(text))
}

// free returns the number of free bytes on the disk.
func (b *servers) free() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(b.c.Dir, &st); err != nil {
		return 0, fmt.Errorf("cannot measure the free disk space: %w", err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// checkDisk checks that the disk of this machine has space for this number of additional
// bytes.
func (b *servers) checkDisk(bytes int64) error {
	if b.inCluster() {
		return nil
	}
	free, err := b.free()
	if err != nil {
		return err
	}
	if need := b.c.Reserve + bytes; free < need {
		return fmt.Errorf("%d MB are free on the disk of %s, but %d MB are needed; free some disk space", free>>20, b.c.Dir, (need+1<<20-1)>>20)
	}
	return nil
}

// treeSize returns the size of all files in a folder, in bytes.
func treeSize(dir string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a server removes files while it works
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		fi, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			sum += fi.Size()
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("cannot measure %s: %w", dir, err)
	}
	return sum, nil
}
