// Package disk has the operations of logs on a file system that can be full.
package disk

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Block is the size of a block of a file system.
const Block = 4 << 10

// maxReserve is the maximum size of a Reserve.
const maxReserve = 8 << 20

// Ops are the operations that can fail on a full file system. Tests replace them.
type Ops struct {
	Write    func(f *os.File, b []byte, at int64) (int, error)
	Sync     func(f *os.File) error
	SyncDir  func(f *os.File) error
	Punch    func(f *os.File, from, to int64) error
	Allocate func(f *os.File, size int64) error
	Space    func(dir string) (free, size int64, err error)
}

// Real returns the operations of the system.
func Real() Ops {
	return Ops{
		Write: func(f *os.File, b []byte, at int64) (int, error) { return f.WriteAt(b, at) },
		Sync: func(f *os.File) error {
			return control(f, func(fd int) error { return unix.Fdatasync(fd) })
		},
		SyncDir: func(f *os.File) error { return f.Sync() },
		Punch: func(f *os.File, from, to int64) error {
			return control(f, func(fd int) error {
				return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, to-from)
			})
		},
		Allocate: func(f *os.File, size int64) error {
			return control(f, func(fd int) error { return unix.Fallocate(fd, 0, 0, size) })
		},
		Space: func(dir string) (int64, int64, error) {
			var s unix.Statfs_t
			if err := unix.Statfs(dir, &s); err != nil {
				return 0, 0, err
			}
			return int64(s.Bavail) * s.Bsize, int64(s.Blocks) * s.Bsize, nil
		},
	}
}

// control runs fn on f's descriptor and repeats it if a signal interrupts it.
func control(f *os.File, fn func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		for {
			failed = fn(int(fd))
			if !errors.Is(failed, unix.EINTR) {
				return
			}
		}
	})
	return errors.Join(err, failed)
}

// CheckPunch tests on its own file whether dir's file system can punch a hole at the
// start of a file that is still being written.
func CheckPunch(dir string, d Ops) error {
	f, err := os.CreateTemp(dir, ".punch-*")
	if err != nil {
		return fmt.Errorf("cannot write to the log folder: %w", err)
	}
	defer func() { _ = f.Close() }()
	if err := os.Remove(f.Name()); err != nil {
		return fmt.Errorf("cannot write to the log folder: %w", err)
	}
	// A full disk must not stop the daemon that could drain it, so nothing is written.
	// A hole can be punched even into an empty file.
	err = d.Punch(f, 0, Block)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("cannot store logs in %s: the file system does not support hole punching (%w); choose a folder on ext4, xfs, btrfs or tmpfs with --root", dir, err)
	}
	if err != nil {
		return fmt.Errorf("cannot check whether the file system of %s supports hole punching: %w", dir, err)
	}
	return nil
}

// Reserve is a file that only occupies space. It is deleted when a write meets a full
// disk, so that the backlog can be drained. It is created again afterwards.
type Reserve struct {
	Path string
	Size int64
}

// ReserveSize returns the size of a Reserve on a file system of the given size.
func ReserveSize(fsSize int64) int64 { return min(maxReserve, fsSize/16) }

// Create allocates the file unless it exists.
func (r Reserve) Create(d Ops) error {
	if st, err := os.Stat(r.Path); err == nil && st.Size() == r.Size {
		return nil
	}
	f, err := os.OpenFile(r.Path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("cannot create %s: %w", r.Path, err)
	}
	err = errors.Join(d.Allocate(f, r.Size), f.Close())
	if err == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("cannot allocate %s: %w", r.Path, err), os.Remove(r.Path))
}

// Exists reports whether the file exists.
func (r Reserve) Exists() bool {
	_, err := os.Stat(r.Path)
	return err == nil
}

// Release deletes the file and reports whether it existed.
func (r Reserve) Release() bool { return os.Remove(r.Path) == nil }
