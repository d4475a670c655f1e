package logstream

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const (
	blockSize      = 4 << 10
	punchStep      = 1 << 20
	maxReserveFile = 8 << 20
)

// disk holds the operations that can fail on a full file system. Tests replace them.
type disk struct {
	write    func(f *os.File, b []byte, at int64) (int, error)
	sync     func(f *os.File) error
	syncDir  func(f *os.File) error
	punch    func(f *os.File, from, to int64) error
	allocate func(f *os.File, size int64) error
	space    func(dir string) (free, size int64, err error)
}

func realDisk() disk {
	return disk{
		write: func(f *os.File, b []byte, at int64) (int, error) { return f.WriteAt(b, at) },
		sync: func(f *os.File) error {
			return control(f, func(fd int) error { return unix.Fdatasync(fd) })
		},
		syncDir: func(f *os.File) error { return f.Sync() },
		punch: func(f *os.File, from, to int64) error {
			return control(f, func(fd int) error {
				return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, to-from)
			})
		},
		allocate: func(f *os.File, size int64) error {
			return control(f, func(fd int) error { return unix.Fallocate(fd, 0, 0, size) })
		},
		space: func(dir string) (int64, int64, error) {
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

// checkPunch tests on its own file whether dir's file system can punch a hole at the
// start of a file that is still being written.
func checkPunch(dir string, d disk) error {
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
	err = d.punch(f, 0, blockSize)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("cannot store logs in %s: the file system does not support hole punching (%w); choose a folder on ext4, xfs, btrfs or tmpfs with --root", dir, err)
	}
	if err != nil {
		return fmt.Errorf("cannot check whether the file system of %s supports hole punching: %w", dir, err)
	}
	return nil
}

// reserve is a file that only occupies space. It is deleted when a write meets a full
// disk, so that the backlog can be drained. It is created again afterwards.
type reserve struct {
	path string
	size int64
}

func reserveSize(fsSize int64) int64 { return min(maxReserveFile, fsSize/16) }

// create allocates the file unless it exists.
func (r reserve) create(d disk) error {
	if st, err := os.Stat(r.path); err == nil && st.Size() == r.size {
		return nil
	}
	f, err := os.OpenFile(r.path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("cannot create %s: %w", r.path, err)
	}
	err = errors.Join(d.allocate(f, r.size), f.Close())
	if err == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("cannot allocate %s: %w", r.path, err), os.Remove(r.path))
}

func (r reserve) exists() bool {
	_, err := os.Stat(r.path)
	return err == nil
}

// release deletes the file and reports whether it existed.
func (r reserve) release() bool { return os.Remove(r.path) == nil }

// holeEnd returns the offset up to which a capture file can be punched: whole blocks,
// in steps that are worth the call. It returns punched itself if there is nothing to
// do.
func holeEnd(punched, synced, step int64) int64 {
	end := synced &^ (blockSize - 1)
	if end-punched < step {
		return punched
	}
	return end
}
