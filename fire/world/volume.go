package world

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// volumeBytes is the size of the file system of the root. The file is sparse.
const volumeBytes = 3 << 30

// filler is the file that fills the volume.
const filler = "filler"

// mountRoot puts the root on a small file system of its own, behind one that can fail.
func (w *World) mountRoot() error {
	image := filepath.Join(w.Dir, "volume.img")
	f, err := os.Create(image)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(volumeBytes), f.Close(), os.MkdirAll(w.Root, 0o700), os.MkdirAll(w.volume, 0o700)); err != nil {
		return err
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-F", image}, {"mount", "-o", "loop", image, w.volume}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("cannot create the file system of the root: %s: %w\n%s", args[0], err, out)
		}
	}
	if w.faults, err = mountFaults(w.Root, w.volume); err != nil {
		return errors.Join(err, unix.Unmount(w.volume, 0))
	}
	return nil
}

// unmountRoot unmounts the root. Its file is removed with the folder.
func (w *World) unmountRoot() error {
	if w.faults == nil {
		return nil // it is a copy
	}
	return errors.Join(w.faults.unmount(), unmount(w.volume))
}

// unmountLimit is how long a process that has just exited can still hold its files.
const unmountLimit = 10 * time.Second

// unmount unmounts a folder. If a process still uses it, the folder is unmounted when the
// process has exited, and the error says what uses it.
func unmount(dir string) error {
	for end := time.Now().Add(unmountLimit); ; <-time.After(pause) {
		err := unix.Unmount(dir, 0)
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return errors.Join(fmt.Errorf("%s is still in use: %w\n%s", dir, err, usersOf(dir)), unix.Unmount(dir, unix.MNT_DETACH))
		}
	}
}

// usersOf lists the mounts below a folder, and the processes with an open file in it.
func usersOf(dir string) string {
	var out strings.Builder
	mounts, _ := os.ReadFile("/proc/self/mountinfo") // what cannot be read is not listed
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, " "+dir+"/") {
			out.WriteString(line)
		}
	}
	for _, pattern := range []string{"/proc/[0-9]*/fd/*", "/proc/[0-9]*/cwd", "/proc/[0-9]*/root", "/proc/[0-9]*/exe"} {
		links, _ := filepath.Glob(pattern)
		for _, link := range links {
			if to, err := os.Readlink(link); err == nil && strings.HasPrefix(to, dir) {
				fmt.Fprintln(&out, link, "is", to)
			}
		}
	}
	return out.String()
}

// Fill uses all free space of the root, except the given bytes, until the returned
// function is called.
func (w *World) Fill(except int64) (release func() error, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(w.volume, &st); err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(w.volume, filler))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	release = func() error { return os.Remove(f.Name()) }
	size := int64(st.Bavail)*st.Bsize - except
	if size <= 0 {
		return release, nil
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil && !errors.Is(err, unix.ENOSPC) {
		return nil, errors.Join(fmt.Errorf("cannot fill the disk: %w", err), release())
	}
	return release, nil
}
