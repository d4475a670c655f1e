package userns

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	goruntime "runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// Size is the number of users of a container. The highest that Debian knows is 65534.
	Size = 1 << 16
	// first is the first user of the first range. No range of systemd or Debian is above it,
	// except the one at reserved.
	first    = 0x7000_0000
	reserved = 0xffe // systemd's "foreign" users begin at 0x7ffe0000
	ranges   = 1 << 12
)

// Range is the range of users that a container has. The zero Range means the users of
// the machine.
type Range struct {
	First uint32 // the user outside that is root inside
}

// For returns the range of the container with an address. No two running containers of a
// daemon share one, because none share an address and a network has at most 4096.
func For(address netip.Prefix) Range {
	a := address.Addr().As4()
	n := (uint32(a[2])<<8 | uint32(a[3])) % ranges
	if n >= reserved {
		n -= reserved // 0 and 1 are the network and the machine, never an instance
	}
	return Range{first + n*Size}
}

// Enabled reports whether the container has users of its own.
func (r Range) Enabled() bool { return r.First != 0 }

// Own gives files to root of the container.
func (r Range) Own(paths ...string) error {
	if !r.Enabled() {
		return nil
	}
	for _, path := range paths {
		if err := os.Lchown(path, int(r.First), int(r.First)); err != nil {
			return fmt.Errorf("cannot give a file to the user of a container: %w", err)
		}
	}
	return nil
}

// NewNetwork creates a user namespace with the range, and a network namespace that
// belongs to it. A bind mount at path, an empty file, keeps both alive.
func (r Range) NewNetwork(path string) error {
	return r.inChild(unix.CLONE_NEWUSER|unix.CLONE_NEWNET, func(pid int) error {
		if err := unix.Mount(fmt.Sprintf("/proc/%d/ns/net", pid), path, "none", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("cannot mount network namespace: %w", err)
		}
		return nil
	})
}

// Of opens the user namespace that the network namespace at a path belongs to.
func Of(network string) (*os.File, error) {
	f, err := os.Open(network)
	if err != nil {
		return nil, fmt.Errorf("cannot open network namespace: %w", err)
	}
	defer f.Close()
	const getUserns = 0xb701 // NS_GET_USERNS
	fd, err := unix.IoctlRetInt(int(f.Fd()), getUserns)
	if err != nil {
		return nil, fmt.Errorf("cannot find the user namespace of a network namespace: %w", err)
	}
	return os.NewFile(uintptr(fd), "userns"), nil
}

// inChild calls fn with the pid of a child that has namespaces of its own. The child
// stops at its first instruction: it never runs.
func (r Range) inChild(flags uintptr, fn func(pid int) error) error {
	goruntime.LockOSThread() // the tracer of a child is a thread
	defer goruntime.UnlockOSThread()
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(r.First), Size: Size}}
	c := exec.Command("/proc/self/exe")
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: flags, UidMappings: ids, GidMappings: ids, Ptrace: true, Pdeathsig: syscall.SIGKILL,
	}
	if err := c.Start(); err != nil {
		return fmt.Errorf("cannot create a user namespace: %w", err)
	}
	err := fn(c.Process.Pid)
	if kerr := c.Process.Kill(); kerr != nil {
		err = errors.Join(err, kerr)
	}
	_ = c.Wait() // killed
	return err
}
