package containerd

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/archive"

	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/runtime"
)

// labelBuild marks the container of a build.
const labelBuild = labelPrefix + "build"

var _ runtime.StagingContainer = (*container)(nil)

// prepareLimit returns the time limit for preparing the resources of a container.
func prepareLimit(s runtime.Spec) time.Duration {
	if len(s.Layers) > 0 {
		return unpackTimeout
	}
	return createTimeout
}

// unpackLayers extracts the files of a build into its writable layer, before any
// process runs that could interfere.
func (e *Engine) unpackLayers(ctx context.Context, mounts []mount.Mount, layers []droplet.Layer) error {
	if len(layers) == 0 {
		return nil
	}
	return e.mounted(mounts, func(root string) error {
		for _, l := range layers {
			if err := e.unpackLayer(ctx, root, l); err != nil {
				return fmt.Errorf("cannot lay out %s: %w", l.Path, err)
			}
		}
		return nil
	})
}

func (e *Engine) unpackLayer(ctx context.Context, root string, l droplet.Layer) error {
	dir := filepath.Join(root, l.Path)
	// Only dew has written below the root so far, so there is no link to follow.
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if path.Dir(l.Path) != "/" {
		if err := os.Chown(dir, e.cfg.UID, e.cfg.GID); err != nil {
			return err
		}
	}
	r, err := l.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	own := func(h *tar.Header) (bool, error) {
		h.Uid, h.Gid = e.cfg.UID, e.cfg.GID
		h.Name = stripped(h.Name, l.Strip)
		if h.Typeflag == tar.TypeLink {
			h.Linkname = stripped(h.Linkname, l.Strip)
		}
		return allowedInLayer(h), nil
	}
	_, err = archive.Apply(ctx, dir, r, archive.WithFilter(own))
	return err
}

// stripped returns a name in a tar without its leading folder.
func stripped(name, folder string) string {
	if folder == "" {
		return name
	}
	if name == folder || name == folder+"/" {
		return "."
	}
	return strings.TrimPrefix(name, folder+"/")
}

// allowedInLayer refuses devices, and the names with which image layers delete files.
func allowedInLayer(h *tar.Header) bool {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink:
		return !strings.HasPrefix(path.Base(h.Name), ".wh.")
	}
	return false
}

// Written returns the size of the writable layer.
func (c *container) Written(ctx context.Context) (bytes, files int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	u, err := c.e.images.snapshotter().Usage(ctx, c.id)
	if err != nil {
		return 0, 0, fmt.Errorf("cannot measure the writable layer: %w", err)
	}
	return u.Size, u.Inodes, nil
}

// Pack writes a tar of files of a container whose processes have exited. It reads them
// through the container's first process, which runs no code of the app.
func (c *container) Pack(ctx context.Context, w io.Writer, p droplet.Packing) error {
	root, err := os.OpenRoot(filepath.Join("/proc", strconv.Itoa(c.initPID), "root"))
	if err != nil {
		return fmt.Errorf("cannot reach the files of the container: %w", err)
	}
	defer func() { _ = root.Close() }() // only read
	return pack(ctx, root, w, p)
}
