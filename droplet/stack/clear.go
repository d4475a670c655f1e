package stack

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// killPatience is how long clearTree waits for a process that it killed.
const killPatience = 10 * time.Second

// clearTree removes a folder of dewd and everything below it. If a killed dewd left
// a build running there, clearTree first kills the processes of that build and
// unmounts its mounts. It never deletes files through a mount.
func clearTree(dir string) error {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot check %s: %w", dir, err)
	}
	if !info.IsDir() {
		return os.Remove(dir)
	}
	path, err := filepath.EvalSymlinks(dir) // the path as the kernel lists it
	if err != nil {
		return fmt.Errorf("cannot resolve the folder to remove: %w", err)
	}
	if err := errors.Join(killBuild(build{path: path, tmp: dir}), unmountBelow(path)); err != nil {
		return err
	}
	return os.RemoveAll(path)
}

// unmountBelow unmounts everything at and below a folder, the deepest mounts first.
func unmountBelow(dir string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return fmt.Errorf("cannot list mounts: %w", err)
	}
	slices.SortStableFunc(mounts, func(a, b *mountinfo.Info) int {
		return cmp.Compare(strings.Count(b.Mountpoint, "/"), strings.Count(a.Mountpoint, "/"))
	})
	for _, m := range mounts {
		// A bind mount of the machine's /sys shares its mounts with the original. Once
		// private, unmounting the copy leaves the original alone.
		if err := unix.Mount("", m.Mountpoint, "", unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("cannot make mount %s private: %w", m.Mountpoint, err)
		}
	}
	for _, m := range mounts {
		if err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("cannot unmount %s: %w", m.Mountpoint, err)
		}
	}
	left, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%s is still mounted", left[0].Mountpoint)
	}
	return err
}

// build is a build of a stack in its own folder.
type build struct {
	path string // path of the folder, without symbolic links
	tmp  string // the folder as in TMPDIR
}

// killBuild kills the processes that a build left behind.
func killBuild(b build) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return fmt.Errorf("cannot list processes: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != os.Getpid() && b.has(pid) {
			errs = append(errs, b.kill(pid))
		}
	}
	return errors.Join(errs...)
}

// has reports whether a process belongs to the build: its root is below the folder, or
// it was started with the folder as TMPDIR. The name of the folder is random, so no
// other program has it. The working directory proves nothing, because an
// administrator's shell can be there.
func (b build) has(pid int) bool {
	at := filepath.Join("/proc", strconv.Itoa(pid))
	if root, err := os.Readlink(filepath.Join(at, "root")); err == nil && strings.HasPrefix(root+"/", b.path+"/") {
		return true
	}
	env, err := os.ReadFile(filepath.Join(at, "environ"))
	return err == nil && slices.ContainsFunc(bytes.Split(env, []byte{0}), func(v []byte) bool {
		return string(v) == "TMPDIR="+b.tmp
	})
}

// kill kills a process of the build and waits until it has exited.
func (b build) kill(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot open process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if !b.has(pid) {
		return nil // another process has the PID now
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("cannot kill process %d: %w", pid, err)
	}
	for end := time.Now().Add(killPatience); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(max(time.Until(end), 0).Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR) && time.Now().Before(end):
		case n > 0:
			return nil
		default:
			return fmt.Errorf("process %d did not exit after SIGKILL", pid)
		}
	}
}
