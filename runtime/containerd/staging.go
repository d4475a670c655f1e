package containerd

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/packing"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/connection"
	"github.com/dewrun/dew/runtime/containerd/images"
)

var _ runtime.StagingContainer = (*container)(nil)

// prepareLimit returns the time limit for preparing the resources of a container.
func prepareLimit(s runtime.Spec) time.Duration {
	if len(s.Layers) > 0 {
		return images.UnpackTimeout
	}
	return createTimeout
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
