package rootfs

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/pkg/archive"

	"github.com/dewrun/dew/droplet"
)

// Owner is the user and group that unpacked files belong to.
type Owner struct{ UID, GID int }

// UnpackLayers extracts the files of a build into its writable layer, before any
// process runs that could interfere.
func UnpackLayers(ctx context.Context, root string, layers []droplet.Layer, o Owner) error {
	for _, l := range layers {
		if err := unpackLayer(ctx, root, l, o); err != nil {
			return fmt.Errorf("cannot unpack %s: %w", l.Path, err)
		}
	}
	return nil
}

func unpackLayer(ctx context.Context, root string, l droplet.Layer, o Owner) error {
	dir := filepath.Join(root, l.Path)
	// Only dew has written below the root so far, so there is no link to follow.
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if path.Dir(l.Path) != "/" {
		if err := os.Chown(dir, o.UID, o.GID); err != nil {
			return err
		}
	}
	r, err := l.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	own := func(h *tar.Header) (bool, error) {
		h.Uid, h.Gid = o.UID, o.GID
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

// UnpackDroplet extracts a droplet's tree into a stack, owned by the app's user.
func UnpackDroplet(ctx context.Context, root string, tree io.Reader, o Owner) error {
	own := func(h *tar.Header) (bool, error) {
		h.Uid, h.Gid = o.UID, o.GID
		return h.Typeflag != tar.TypeBlock && h.Typeflag != tar.TypeChar, nil
	}
	home := filepath.Join(root, "home", "vcap")
	_, err := archive.Apply(ctx, home, tree, archive.WithFilter(own))
	return err
}
