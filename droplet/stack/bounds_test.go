package stack

import (
	"archive/tar"
	"bytes"
	"errors"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/dewrun/dew/droplet/archive"
)

// sizedConfig is an image that declares the size of its configuration.
type sizedConfig struct {
	v1.Image
	size int64
}

func (s sizedConfig) Manifest() (*v1.Manifest, error) {
	m, err := s.Image.Manifest()
	if err == nil {
		m = m.DeepCopy()
		m.Config.Size = s.size
	}
	return m, err
}

// A configuration is read into memory, so an image must declare a size within the
// limit.
func TestImageConfigIsBounded(t *testing.T) {
	s, image := stackWorld(t), anImage(t, rootTar(t, smallRoot...))
	for _, size := range []int64{-1, -2, maxImageConfig + 1} {
		_, err := s.openImage(sizedConfig{image, size})
		if bad := (*archive.Error)(nil); !errors.As(err, &bad) {
			t.Errorf("size %d: %v, want an ImageError", size, err)
		}
	}
	if _, err := s.openImage(image); err != nil {
		t.Errorf("as it is: %v", err)
	}
}

// A sparse file counts with its full size, because its holes are written to disk.
func TestSparseFilesCount(t *testing.T) {
	var facts layerFacts
	h := &tar.Header{Name: "a", Typeflag: tar.TypeGNUSparse, Size: maxTreeBytes/2 + 1}
	if err := facts.scanEntry(h, nil); err != nil {
		t.Fatal(err)
	}
	if bad := (*archive.Error)(nil); !errors.As(facts.scanEntry(h, nil), &bad) {
		t.Error("more than a tree may have was let in")
	}
}

// A layer that gets a name while other layers are collected stays.
func TestCollectAsksUnderLock(t *testing.T) {
	s := stackWorld(t)
	sha, _, done, err := s.layers.add(t.Context(), bytes.NewReader(rootTar(t, smallRoot...)))
	if err != nil {
		t.Fatal(err)
	}
	released := make(chan struct{})
	err = s.layers.collect(func() (map[string]bool, error) {
		go func() {
			done()
			close(released)
		}()
		return nil, nil
	})
	<-released
	if _, ok := s.layers.has(sha); err != nil || !ok {
		t.Errorf("there: %t, %v; want it kept, as it was pinned when names were asked for", ok, err)
	}
}
