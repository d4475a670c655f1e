// Package images pushes the images of Pods to a registry: one with dew's programs, and
// one for each stack. So a cluster needs nothing but a registry.
package images

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/dewrun/dew/droplet/stack"
)

// Programs are the programs of dew in Pods.
var Programs = []string{"dew-init", "dew-sftp", "dew-pod"}

// pushTimeout is the time limit for pushing one image.
const pushTimeout = 15 * time.Minute

// Store has the images in a registry.
type Store struct {
	Prefix   string // registry and folder, such as registry.example.com/dew
	Insecure bool   // the registry has no TLS
	Arch     string // architecture of the programs; empty: that of this machine

	mu    sync.Mutex
	known map[string]bool
}

// PushPrograms pushes an image with dew's programs from a folder, and returns its name.
func (s *Store) PushPrograms(ctx context.Context, dir string) (string, error) {
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, program := range Programs {
		data, err := os.ReadFile(filepath.Join(dir, program))
		if err != nil {
			return "", fmt.Errorf("cannot read the programs for Pods: %w", err)
		}
		if err := addFile(tw, program, 0o755, string(data)); err != nil {
			return "", err
		}
	}
	if err := tw.Close(); err != nil {
		return "", err
	}
	sum := sha256.Sum256(b.Bytes())
	image := s.Prefix + "/dew-pod:" + hex.EncodeToString(sum[:8])
	return image, s.push(ctx, image, func() ([]v1.Layer, error) {
		l, err := layerOf(b.Bytes())
		return []v1.Layer{l}, err
	})
}

// PushStack pushes the image of a stack, and returns its name.
func (s *Store) PushStack(ctx context.Context, st stack.Stack) (string, error) {
	image := s.Prefix + "/dew-stack:" + tag(st.ID)
	return image, s.push(ctx, image, func() ([]v1.Layer, error) { return stackLayers(st) })
}

// tag returns a tag for the id of a stack.
func tag(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

func layerOf(data []byte) (v1.Layer, error) {
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil })
}

// push pushes an image unless the registry has it. Its name changes with its content.
func (s *Store) push(ctx context.Context, image string, layers func() ([]v1.Layer, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[image] {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()
	if err := s.pushNew(ctx, image, layers); err != nil {
		return fmt.Errorf("cannot push image %s: %w (check --registry and the login of this machine to it)", image, err)
	}
	if s.known == nil {
		s.known = map[string]bool{}
	}
	s.known[image] = true
	return nil
}

// options returns how to read names of images.
func (s *Store) options() []name.Option {
	if s.Insecure {
		return []name.Option{name.Insecure}
	}
	return nil
}

func (s *Store) pushNew(ctx context.Context, image string, layers func() ([]v1.Layer, error)) error {
	ref, err := name.ParseReference(image, s.options()...)
	if err != nil {
		return err
	}
	how := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	_, err = remote.Head(ref, how...)
	if err == nil {
		return nil
	}
	if te := (*transport.Error)(nil); !errors.As(err, &te) || te.StatusCode != http.StatusNotFound {
		return err
	}
	ls, err := layers()
	if err != nil {
		return err
	}
	img, err := mutate.AppendLayers(empty.Image, ls...)
	if err != nil {
		return err
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		return err
	}
	cfg.OS, cfg.Architecture = "linux", cmp.Or(s.Arch, goruntime.GOARCH)
	if img, err = mutate.ConfigFile(img, cfg); err != nil {
		return err
	}
	return remote.Write(ref, img, how...)
}

// stackLayers returns the trees of a stack as layers, and its generated files in a last
// one.
func stackLayers(st stack.Stack) ([]v1.Layer, error) {
	var out []v1.Layer
	found := contents{files: map[string]string{}, paths: map[string]bool{}}
	for _, l := range st.Lines {
		found.files[clean(l.Path)] = ""
	}
	for _, t := range st.Tree {
		l, err := tarball.LayerFromOpener(t.Open)
		if err != nil {
			return nil, err
		}
		out = append(out, l)
		if err := found.read(t); err != nil {
			return nil, err
		}
	}
	top, err := generated(st, found)
	if err != nil {
		return nil, err
	}
	l, err := layerOf(top)
	return append(out, l), err
}

// contents is what the trees of a stack contain.
type contents struct {
	files map[string]string // the content of some files
	paths map[string]bool
}

// maxFile is the maximum size of a file to which lines are added.
const maxFile = 1 << 20

// read adds a tree.
func (c contents) read(t stack.Tree) error {
	r, err := t.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		p := clean(h.Name)
		c.paths[p] = true
		if _, wanted := c.files[p]; !wanted || h.Typeflag != tar.TypeReg {
			continue
		}
		data, err := io.ReadAll(io.LimitReader(tr, maxFile+1))
		if err == nil && len(data) > maxFile {
			err = fmt.Errorf("%s is larger than %d bytes", p, maxFile)
		}
		if err != nil {
			return err
		}
		c.files[p] = string(data)
	}
}

func clean(p string) string { return strings.TrimPrefix(path.Clean("/"+p), "/") }

// generated returns a tar with the generated files of a stack.
func generated(st stack.Stack, found contents) ([]byte, error) {
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	var errs error
	for _, d := range st.Dirs {
		if found.paths[clean(d.Path)] && d.UID == 0 {
			continue // an existing folder does not change
		}
		h := &tar.Header{Typeflag: tar.TypeDir, Name: clean(d.Path) + "/", Mode: int64(d.Mode), Uid: d.UID, Gid: d.GID, ModTime: time.Unix(0, 0)}
		errs = errors.Join(errs, tw.WriteHeader(h))
	}
	for _, f := range st.Files {
		errs = errors.Join(errs, addFile(tw, clean(f.Path), int64(f.Mode), f.Data))
	}
	for _, l := range st.Links {
		h := &tar.Header{Typeflag: tar.TypeSymlink, Name: clean(l.Path), Linkname: l.Target, Mode: 0o777, ModTime: time.Unix(0, 0)}
		errs = errors.Join(errs, tw.WriteHeader(h))
	}
	for _, l := range st.Lines {
		found.files[clean(l.Path)] = withLine(found.files[clean(l.Path)], l)
	}
	for _, p := range slices.Sorted(maps.Keys(found.files)) {
		errs = errors.Join(errs, addFile(tw, p, 0o644, found.files[p]))
	}
	return b.Bytes(), errors.Join(errs, tw.Close())
}

// withLine adds a line to a file and replaces the line with the same name.
func withLine(text string, l stack.Line) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, l.Name+":") {
			b.WriteString(strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	b.WriteString(l.Text + "\n")
	return b.String()
}

func addFile(tw *tar.Writer, name string, mode int64, data string) error {
	if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data)), ModTime: time.Unix(0, 0)}); err != nil {
		return err
	}
	_, err := io.WriteString(tw, data)
	return err
}
