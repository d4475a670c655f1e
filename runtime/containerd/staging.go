package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/packing"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/connection"
	"github.com/dewrun/dew/runtime/containerd/images"
	"github.com/dewrun/dew/runtime/containerd/rootfs"
	"github.com/dewrun/dew/runtime/process"
)

var _ runtime.StagingContainer = (*container)(nil)

// unpackLayers unpacks the files of a build while its launcher starts, which waits at its
// gate. It reaches them through the container's first process, which runs no code of the
// app.
func unpackLayers(ctx context.Context, c *container) error {
	if len(c.spec.Layers) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, images.UnpackTimeout)
	defer cancel()
	root, err := os.Open(filepath.Join("/proc", strconv.Itoa(c.init.pid), "root"))
	if err != nil {
		return fmt.Errorf("cannot open the files of the container: %w", err)
	}
	defer func() { _ = root.Close() }()            // only a reference to the folder
	if process.BornAt(c.init.pid) != c.init.born { // another process can have its number
		return errors.New("the first process of the container ended")
	}
	return rootfs.UnpackLayers(ctx, fmt.Sprintf("/proc/self/fd/%d", root.Fd()), c.spec.Layers, c.e.cfg.owner())
}

// Written returns the size of the writable layer.
func (c *container) Written(ctx context.Context) (bytes, files int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, connection.CallTimeout)
	defer cancel()
	u, err := c.e.images.Snapshotter().Usage(ctx, c.id)
	if err != nil {
		return 0, 0, fmt.Errorf("cannot measure the writable layer: %w", err)
	}
	return u.Size, u.Inodes, nil
}

// Pack writes a tar of files of a container whose processes have exited. It reads them
// through the container's first process, which runs no code of the app.
func (c *container) Pack(ctx context.Context, w io.Writer, p droplet.Packing) error {
	root, err := os.OpenRoot(filepath.Join("/proc", strconv.Itoa(c.init.pid), "root"))
	if err != nil {
		return fmt.Errorf("cannot open the files of the container: %w", err)
	}
	defer func() { _ = root.Close() }() // only read
	return droplet.Refusal(packing.Pack(ctx, root, w, p))
}
