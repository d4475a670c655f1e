package store

import (
	"errors"
	"fmt"
	"os"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// A commit of bbolt ends with the write of a meta page, which names the tree and the free
// pages. If that write fails, the kernel can still show the new page to this process
// until it reads the old one from the disk again. bbolt would go on from the new page and
// write to pages that the old one still uses. After the next crash the file would be
// damaged. So after such an error the file is opened again, and nothing is written before
// the disk has accepted the meta pages that dewd reads.

// openFile opens the file with bbolt, unless bbolt would crash. It returns the file
// that bbolt uses.
func openFile(path string, o Options) (b *bbolt.DB, f *os.File, err error) {
	if err := checkSize(path); err != nil {
		return nil, nil, err
	}
	b, f, err = openWith(path, o, os.OpenFile)
	if err == nil && !o.NoSync {
		// An earlier process can have been killed after a failed write.
		if err = writeMetas(b, f); err != nil {
			err = errors.Join(err, b.Close())
		}
	}
	return b, f, err
}

// openWith opens the file with bbolt and a function that opens it.
func openWith(path string, o Options, open func(string, int, os.FileMode) (*os.File, error)) (b *bbolt.DB, f *os.File, err error) {
	b, err = bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout:      o.LockTimeout,
		NoSync:       o.NoSync,
		NoGrowSync:   o.NoSync, // the file grows in most transactions of a new store
		FreelistType: bbolt.FreelistMapType,
		OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
			f, err = open(name, flag, mode)
			return f, err
		},
	})
	return b, f, err
}

// writeMetas writes the two meta pages again, as they are, and waits for the disk.
func writeMetas(b *bbolt.DB, f *os.File) error {
	pages := make([]byte, 2*b.Info().PageSize)
	if _, err := f.ReadAt(pages, 0); err != nil {
		return fmt.Errorf("cannot read the meta pages: %w", err)
	}
	if _, err := f.WriteAt(pages, 0); err != nil {
		return fmt.Errorf("cannot write the meta pages: %w", err)
	}
	if err := unix.Fdatasync(int(f.Fd())); err != nil {
		return fmt.Errorf("cannot write the meta pages: %w", err)
	}
	return nil
}

// failed handles a transaction that bbolt could not commit. It returns nil if the
// transaction is on disk after all. Hold writing.
func (db *DB) failed(tx *Tx, id int, err error) error {
	if now, verr := db.Version(); verr == nil && now < id {
		return err // the meta page was not written
	}
	db.uncertain = tx
	if rerr := db.repair(); rerr != nil {
		return errors.Join(err, rerr)
	}
	if now, verr := db.Version(); verr != nil || now < id {
		return err
	}
	return nil
}

// repair opens the file again after a failed transaction that can be on disk or not.
// Then its state is known. It does nothing if no transaction failed. Hold writing.
func (db *DB) repair() error {
	if db.uncertain == nil {
		return nil
	}
	if err := db.reopen(); err != nil {
		return fmt.Errorf("cannot open the store again: %w", err)
	}
	if err := writeMetas(db.bolt, db.file); err != nil {
		return err
	}
	db.countChanges(db.uncertain.changes)
	db.mu.Lock()
	defer db.mu.Unlock()
	db.queue = append(db.queue, db.uncertain.changes...)
	db.uncertain = nil
	return nil
}

// reopen replaces the open file of bbolt. It works even if the path can only be read.
func (db *DB) reopen() error {
	db.opened.Lock()
	defer db.opened.Unlock()
	if db.closed {
		return ErrClosed
	}
	// A copy of the descriptor has the same lock as the descriptor.
	b, f, err := openWith(db.file.Name(), db.options, func(name string, _ int, _ os.FileMode) (*os.File, error) {
		fd, err := unix.FcntlInt(db.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("cannot copy the descriptor of %s: %w", name, err)
		}
		return os.NewFile(uintptr(fd), name), nil
	})
	if err == nil {
		err = db.bolt.Close()
		db.bolt, db.file = b, f
	}
	// bbolt has released the lock, in any case.
	return errors.Join(err, unix.Flock(int(db.file.Fd()), unix.LOCK_EX|unix.LOCK_NB))
}
