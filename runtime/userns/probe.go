package userns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Probe checks that containers with files below dir can have users of their own. It
// leaves nothing there.
func Probe(dir string) (err error) {
	base, err := os.MkdirTemp(dir, ".dew-userns-")
	if err != nil {
		return fmt.Errorf("cannot create a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(base)) }()
	at := func(name string) string { return filepath.Join(base, name) }
	for _, d := range []string{"lower", "upper", "work", "root"} {
		if err := os.Mkdir(at(d), 0o755); err != nil {
			return err
		}
	}
	r := Range{first}
	err = r.inChild(unix.CLONE_NEWUSER, func(pid int) error {
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
		if err != nil {
			return err
		}
		defer ns.Close()
		return r.Mount(Overlay{Lower: []string{at("lower")}, Upper: at("upper"), Work: at("work")}, ns, at("root"))
	})
	if err != nil {
		return err
	}
	return unix.Unmount(at("root"), unix.MNT_DETACH)
}

// Reachable checks that users of containers can find their root file system below a
// folder: everyone must be able to enter it and each of its parents.
func Reachable(dir string) error {
	for {
		info, err := os.Stat(dir)
		if err == nil && info.Mode().Perm()&1 == 0 {
			return fmt.Errorf("%w: %s", ErrClosed, dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
		dir = filepath.Dir(dir)
	}
}

// ErrClosed reports a folder that users of containers cannot enter.
var ErrClosed = errors.New("only some users can enter a folder above the run-time files")

// Remedy returns what to do about an error of Probe or Reachable.
func Remedy(err error) string {
	switch {
	case errors.Is(err, ErrClosed):
		return "let everyone enter the folder (chmod o+x), or choose another folder with --run"
	case errors.Is(err, ErrNoTranslation):
		return "use Linux 5.19 or newer, and a folder on ext4, xfs or btrfs for --root"
	case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EPERM):
		return "allow user namespaces: sysctl user.max_user_namespaces=65536"
	}
	return "use Linux 5.19 or newer, or turn user namespaces off with --userns off"
}
