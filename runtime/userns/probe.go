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
