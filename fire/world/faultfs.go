package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// faultFS is a FUSE file system that shows a folder, and fails on demand. dewd's own files
// are on it. The folders of containerd and of the disk images are not, because layers
// need a real file system.
type faultFS struct {
	root   string
	server *fuse.Server
	binds  []string // folders that are not on it

	mu     sync.Mutex
	fails  func(path string) bool // which files fail; nil for none
	errno  syscall.Errno
	failed int // operations
}

// realFolders are the folders of the root that stay on the real file system.
var realFolders = []string{"containerd", "disks"}

// mountFaults mounts the file system on the root. Its files are in the folder below.
func mountFaults(root, below string) (*faultFS, error) {
	v := &faultFS{root: root}
	lower := &fs.LoopbackRoot{Path: below}
	top := &faultNode{LoopbackNode: &fs.LoopbackNode{RootData: lower}, fs: v}
	lower.RootNode = top
	// All changes go through this mount, so the kernel can ask less often, and its pages are
	// right. If it dropped them, a reader could see zeros in the place of the newest write.
	remember := time.Second
	server, err := fs.Mount(root, top, &fs.Options{
		EntryTimeout: &remember, AttrTimeout: &remember,
		MountOptions: fuse.MountOptions{
			AllowOther: true, FsName: "fire", Name: "fire", DirectMount: true, DisableXAttrs: true,
			ExplicitDataCacheControl: true, // FOPEN_KEEP_CACHE does the same for an open
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot mount a FUSE file system: %w", err)
	}
	v.server = server
	for _, name := range realFolders {
		if err := os.MkdirAll(filepath.Join(below, name), 0o700); err != nil {
			return nil, errors.Join(err, v.unmount())
		}
		to := filepath.Join(root, name)
		if err := unix.Mount(filepath.Join(below, name), to, "", unix.MS_BIND, ""); err != nil {
			return nil, errors.Join(fmt.Errorf("cannot mount %s: %w", to, err), v.unmount())
		}
		v.binds = append(v.binds, to)
	}
	return v, nil
}

func (v *faultFS) unmount() error {
	var errs []error
	for _, dir := range v.binds {
		errs = append(errs, unmount(dir))
	}
	if err := v.server.Unmount(); err != nil {
		errs = append(errs, err, unix.Unmount(v.root, unix.MNT_DETACH))
	}
	return errors.Join(errs...)
}

// set lets changes of some files fail. Without fails, all operations succeed again.
func (v *faultFS) set(errno syscall.Errno, fails func(path string) bool) (failed int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	failed = v.failed
	v.errno, v.fails, v.failed = errno, fails, 0
	return failed
}

// check returns the error for a change of a file, or 0.
func (v *faultFS) check(path string) syscall.Errno {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.fails == nil || !v.fails(path) {
		return 0
	}
	v.failed++
	return v.errno
}

// faultNode is a file or folder.
type faultNode struct {
	*fs.LoopbackNode
	fs *faultFS
}

// WrapChild returns the node of a file or folder below this one.
func (n *faultNode) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	return &faultNode{LoopbackNode: ops.(*fs.LoopbackNode), fs: n.fs}
}

func (n *faultNode) path(name string) string { return filepath.Join(n.Path(n.Root()), name) }

// Create creates a file.
func (n *faultNode) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	if errno := n.fs.check(n.path(name)); errno != 0 {
		return nil, nil, 0, errno
	}
	inode, f, fuseFlags, errno := n.LoopbackNode.Create(ctx, name, flags, mode, out)
	return inode, n.wrap(f, n.path(name)), fuseFlags, errno
}

// Open opens a file.
func (n *faultNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if flags&syscall.O_ACCMODE != syscall.O_RDONLY {
		if errno := n.fs.check(n.path("")); errno != 0 {
			return nil, 0, errno
		}
	}
	// The kernel sends offsets, and an append at the end of a shared file is one of them.
	f, fuseFlags, errno := n.LoopbackNode.Open(ctx, flags&^syscall.O_APPEND)
	return n.wrap(f, n.path("")), fuseFlags | fuse.FOPEN_KEEP_CACHE, errno
}

// Setattr changes the attributes of a file, such as its size.
func (n *faultNode) Setattr(ctx context.Context, f fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if errno := n.fs.check(n.path("")); errno != 0 {
		return errno
	}
	if own, ok := f.(*faultFile); ok {
		f = own.LoopbackFile
	}
	return n.LoopbackNode.Setattr(ctx, f, in, out)
}

// Getattr returns the attributes of a file.
func (n *faultNode) Getattr(ctx context.Context, f fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	if own, ok := f.(*faultFile); ok {
		f = own.LoopbackFile
	}
	return n.LoopbackNode.Getattr(ctx, f, out)
}

// Mkdir creates a folder.
func (n *faultNode) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if errno := n.fs.check(n.path(name)); errno != 0 {
		return nil, errno
	}
	return n.LoopbackNode.Mkdir(ctx, name, mode, out)
}

// Unlink removes a file.
func (n *faultNode) Unlink(ctx context.Context, name string) syscall.Errno {
	if errno := n.fs.check(n.path(name)); errno != 0 {
		return errno
	}
	return n.LoopbackNode.Unlink(ctx, name)
}

// Rename renames a file.
func (n *faultNode) Rename(ctx context.Context, name string, to fs.InodeEmbedder, toName string, flags uint32) syscall.Errno {
	if errno := n.fs.check(n.path(name)); errno != 0 {
		return errno
	}
	return n.LoopbackNode.Rename(ctx, name, to, toName, flags)
}

func (n *faultNode) wrap(f fs.FileHandle, path string) fs.FileHandle {
	if own, ok := f.(*fs.LoopbackFile); ok {
		return &faultFile{LoopbackFile: own, fs: n.fs, path: path}
	}
	return f
}

// faultFile is an open file.
type faultFile struct {
	*fs.LoopbackFile
	fs   *faultFS
	path string
}

// PassthroughFd keeps the kernel from writing without asking.
func (*faultFile) PassthroughFd() (int, bool) { return 0, false }

// Write writes to the file.
func (f *faultFile) Write(ctx context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	if errno := f.fs.check(f.path); errno != 0 {
		return 0, errno
	}
	return f.LoopbackFile.Write(ctx, data, off)
}

// Fsync waits for the disk.
func (f *faultFile) Fsync(ctx context.Context, flags uint32) syscall.Errno {
	if errno := f.fs.check(f.path); errno != 0 {
		return errno
	}
	return f.LoopbackFile.Fsync(ctx, flags)
}

// Fail lets changes of dewd's files fail, until the returned function is called. It
// returns how many operations failed.
func (w *World) Fail(errno syscall.Errno, fails func(path string) bool) (heal func() int) {
	w.faults.set(errno, fails)
	return func() int { return w.faults.set(0, nil) }
}

// The files of a root that faults distinguish.
var (
	StoreFiles   = func(path string) bool { return path == "dew.db" }
	SegmentFiles = func(path string) bool { return strings.HasSuffix(path, ".seg") }
	CaptureFiles = func(path string) bool { return strings.Contains(path, "/capture/") }
	AllFiles     = func(string) bool { return true }
)
