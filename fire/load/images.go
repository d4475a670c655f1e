package load

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// imageStack is the beginning of the names of the stacks that come from the registry.
const imageStack = "fire-image-"

// image adds a stack from an image of the registry, and removes it.
func (c *Churn) image(ctx context.Context, n int) error {
	if err := c.Peers.storeImage(ctx, n); err != nil {
		return err
	}
	stack := fmt.Sprintf("%s%d", imageStack, n)
	if _, err := c.World.Dew(ctx, "stack", "add", stack, "--image", fmt.Sprintf("%s/fire:%d", c.Peers.Registry.Address(), n)); err != nil {
		return err
	}
	_, err := c.World.Dew(ctx, "stack", "remove", "-f", stack)
	return err
}

// removeImages removes the stacks whose operation failed in the middle.
func (c *Churn) removeImages(ctx context.Context) error {
	list, err := c.World.Client.Bits().Stacks(ctx)
	if err != nil {
		return err
	}
	for _, s := range list {
		if !strings.HasPrefix(s.Name, imageStack) {
			continue
		}
		if _, err := c.World.Dew(ctx, "stack", "remove", "-f", s.Name); err != nil {
			return err
		}
	}
	return nil
}

// storeImage puts an image into the registry, past its gate.
func (p *Peers) storeImage(ctx context.Context, n int) error {
	img, err := image(n)
	if err != nil {
		return err
	}
	to, err := name.ParseReference(fmt.Sprintf("%s/fire:%d", p.Registry.to, n))
	if err != nil {
		return err
	}
	return remote.Write(to, img, remote.WithContext(ctx))
}

// image returns an image with one layer that no other image has.
func image(n int) (v1.Image, error) {
	const size = 64 << 10
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "number", Mode: 0o644, Size: size}); err != nil {
		return nil, err
	}
	text := strings.Repeat(fmt.Sprintf("%d\n", n), size)
	if _, err := io.WriteString(w, text[:size]); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(empty.Image, layer)
}
