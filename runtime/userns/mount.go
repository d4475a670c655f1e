package userns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Overlay has the layers of a root file system, as folders of the machine.
type Overlay struct {
	Lower  []string // the topmost first
	Upper  string   // folder of the writable files
	Work   string   // folder of overlayfs, next to Upper
	Others []string // further options of the mount
}

// ParseOverlay reads the options of an overlay mount. It reports false without writable
// layer.
func ParseOverlay(options []string) (Overlay, bool) {
	var o Overlay
	for _, opt := range options {
		key, value, _ := strings.Cut(opt, "=")
		switch key {
		case "lowerdir":
			o.Lower = strings.Split(value, ":")
		case "upperdir":
			o.Upper = value
		case "workdir":
			o.Work = value
		default:
			o.Others = append(o.Others, opt)
		}
	}
	return o, o.Upper != "" && len(o.Lower) > 0 && filepath.Dir(o.Upper) == filepath.Dir(o.Work)
}

// Mount mounts the layers on a folder, with the owners of their files translated by a
// user namespace with the range.
func (r Range) Mount(o Overlay, namespace *os.File, target string) error {
	return attach(target, func() (int, error) { return r.overlay(o, target, int(namespace.Fd())) })
}

// attach calls create on a thread with a mount namespace of its own, and moves the mount
// that create returns to target, in the namespace of this program. Everything else that
// create mounts ends with the thread.
func attach(target string, create func() (int, error)) error {
	home, err := os.Open("/proc/self/ns/mnt")
	if err != nil {
		return fmt.Errorf("cannot open the mount namespace: %w", err)
	}
	defer home.Close()
	return onNewThread(func() error { return attachHere(home, target, create) })
}

// onNewThread calls fn on a thread that exits afterwards. That is never the main thread,
// which cannot exit, and whose namespaces /proc/self shows.
func onNewThread(fn func() error) error {
	done := make(chan error)
	go func() {
		goruntime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			done <- fn() // never unlocked, so the thread exits with the goroutine
			return
		}
		defer goruntime.UnlockOSThread()
		done <- onNewThread(fn) // until then, this goroutine occupies the main thread
	}()
	return <-done
}

func attachHere(home *os.File, target string, create func() (int, error)) error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return fmt.Errorf("cannot create a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot make mounts private: %w", err)
	}
	fd, err := create()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("cannot leave a mount namespace: %w", err)
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("cannot mount on %s: %w", target, err)
	}
	return nil
}

// overlay mounts the layers below a temporary file system on target, and returns the
// mount. The paths are short, because the kernel limits the length of all together.
func (r Range) overlay(o Overlay, target string, ns int) (int, error) {
	if err := unix.Mount("dew", target, "tmpfs", 0, "size=64k,mode=0711"); err != nil {
		return 0, fmt.Errorf("cannot mount a temporary file system: %w", err)
	}
	if err := unix.Chdir(target); err != nil {
		return 0, fmt.Errorf("cannot enter a temporary file system: %w", err)
	}
	var lower []string
	for i, dir := range o.Lower {
		name := strconv.Itoa(i)
		if err := translated(dir, name, ns); err != nil {
			return 0, err
		}
		lower = append(lower, name)
	}
	if err := translated(filepath.Dir(o.Upper), "w", ns); err != nil {
		return 0, err
	}
	if err := os.Mkdir("root", 0o755); err != nil {
		return 0, err
	}
	if err := r.become(); err != nil {
		return 0, err
	}
	options := append([]string{
		"lowerdir=" + strings.Join(lower, ":"), "upperdir=w/" + filepath.Base(o.Upper), "workdir=w/" + filepath.Base(o.Work),
	}, o.Others...)
	if err := unix.Mount("overlay", "root", "overlay", unix.MS_NODEV|unix.MS_NOSUID, strings.Join(options, ",")); err != nil {
		return 0, fmt.Errorf("cannot mount the layers of a container: %w", err)
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, "root", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return 0, fmt.Errorf("cannot copy a mount: %w", err)
	}
	return fd, nil
}

// translated mounts a folder on another one, which it creates, with the owners of its
// files within the range of a user namespace.
func translated(dir, at string, ns int) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("cannot copy the mount of %s: %w", dir, err)
	}
	defer unix.Close(fd)
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns)})
	if err != nil {
		return fmt.Errorf("%w on the file system of %s: %w", ErrNoTranslation, dir, err)
	}
	if err := os.Mkdir(at, 0o755); err != nil {
		return err
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("cannot mount the layer %s: %w", dir, err)
	}
	return nil
}

// ErrNoTranslation reports that a file system cannot be mounted with other owners.
var ErrNoTranslation = errors.New("the kernel cannot translate the owners of files")

// become makes this thread root of the range for file systems. overlayfs creates its own
// files as the user that mounts it, and the layers do not know the machine's root.
func (r Range) become() error {
	if _, err := unix.SetfsgidRetGid(int(r.First)); err != nil {
		return fmt.Errorf("cannot change the group for file systems: %w", err)
	}
	if _, err := unix.SetfsuidRetUid(int(r.First)); err != nil {
		return fmt.Errorf("cannot change the user for file systems: %w", err)
	}
	// The change of the user took the capabilities about files away.
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&h, &caps[0]); err != nil {
		return fmt.Errorf("cannot read capabilities: %w", err)
	}
	for i := range caps {
		caps[i].Effective = caps[i].Permitted
	}
	if err := unix.Capset(&h, &caps[0]); err != nil {
		return fmt.Errorf("cannot set capabilities: %w", err)
	}
	return nil
}
