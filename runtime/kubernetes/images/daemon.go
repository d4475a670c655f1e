package images

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// DaemonPrograms are the programs in the image of dewd: its own, those for Pods, and
// those that buildpacks use.
var DaemonPrograms = []string{"dewd", "dew", "dew-init", "dew-sftp", "dew-pod", "dew-static", "dew-buildpack"}

// DaemonUID is the user of dewd in its Pod. The apps and the agents have others.
const DaemonUID = 2002

// The folders and files of the image of dewd.
const (
	daemonPrograms = "usr/local/bin/"
	caBundle       = "etc/ssl/certs/ca-certificates.crt"
)

// Daemon is the image of dewd itself.
type Daemon struct {
	Name  string
	layer []byte
}

// Daemon reads the image of dewd from a folder with its programs. The image trusts the
// certificate authorities in the file bundle, if it exists.
func (s *Store) Daemon(dir, bundle string) (Daemon, error) {
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	var errs error
	for _, d := range []string{"usr/", "usr/local/", daemonPrograms, "etc/", "etc/ssl/", "etc/ssl/certs/", "tmp/"} {
		errs = errors.Join(errs, tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: d, Mode: 0o755, ModTime: time.Unix(0, 0)}))
	}
	uid := strconv.Itoa(DaemonUID)
	errs = errors.Join(errs,
		addFile(tw, "etc/passwd", 0o644, "root:x:0:0:root:/:/sbin/nologin\ndewd:x:"+uid+":"+uid+":dewd:/tmp:/sbin/nologin\n"),
		addFile(tw, "etc/group", 0o644, "root:x:0:\ndewd:x:"+uid+":\n"))
	for _, program := range DaemonPrograms {
		data, err := os.ReadFile(filepath.Join(dir, program))
		if err != nil {
			return Daemon{}, fmt.Errorf("cannot read the programs for the image of dewd: %w (run make build-kubernetes)", err)
		}
		errs = errors.Join(errs, addFile(tw, daemonPrograms+program, 0o755, string(data)))
	}
	trusted, err := os.ReadFile(bundle)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Daemon{}, fmt.Errorf("cannot read the certificate authorities for the image of dewd: %w", err)
	}
	if err == nil {
		errs = errors.Join(errs, addFile(tw, caBundle, 0o644, string(trusted)))
	}
	if err := errors.Join(errs, tw.Close()); err != nil {
		return Daemon{}, err
	}
	sum := sha256.Sum256(b.Bytes())
	return Daemon{Name: s.Prefix + "/dewd:" + hex.EncodeToString(sum[:8]), layer: b.Bytes()}, nil
}

// Arch returns the architecture of the programs in a folder, in the words of Go and
// Kubernetes.
func Arch(dir string) (string, error) {
	f, err := elf.Open(filepath.Join(dir, "dewd"))
	if err != nil {
		return "", fmt.Errorf("cannot read the programs for the image of dewd: %w (run make build-kubernetes)", err)
	}
	defer f.Close()
	switch f.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	default:
		return "", fmt.Errorf("cannot use the programs in %s: they are for %s, but must be for amd64 or arm64", dir, f.Machine)
	}
}

// PushDaemon pushes the image of dewd unless the registry has it.
func (s *Store) PushDaemon(ctx context.Context, d Daemon) error {
	return s.push(ctx, d.Name, func() ([]v1.Layer, error) {
		l, err := layerOf(d.layer)
		return []v1.Layer{l}, err
	})
}

// CheckPush returns why this machine cannot push images to the registry, or nil.
func (s *Store) CheckPush(ctx context.Context) error {
	ref, err := name.ParseReference(s.Prefix+"/dewd:check", s.options()...)
	if err != nil {
		return err
	}
	return remote.CheckPushPermission(ref, authn.DefaultKeychain, contextTransport{ctx})
}

// contextTransport ends requests with a context.
type contextTransport struct{ ctx context.Context }

// RoundTrip sends a request.
func (t contextTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	return remote.DefaultTransport.RoundTrip(r.WithContext(t.ctx))
}
