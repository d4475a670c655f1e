package images

import (
	"archive/tar"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/dewrun/dew/testkit"
)

// The image of dewd has its programs and the certificate authorities of this machine. Its
// name changes only with its content.
func TestDaemon(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	dir := t.TempDir()
	for _, program := range DaemonPrograms {
		testkit.WriteFile(t, filepath.Join(dir, program), "program "+program)
	}
	bundle := testkit.WriteFile(t, filepath.Join(t.TempDir(), "ca.pem"), "certificates")
	s := &Store{Prefix: strings.TrimPrefix(server.URL, "http://") + "/dew", Insecure: true}
	if err := s.CheckPush(t.Context()); err != nil {
		t.Error(err)
	}
	d, err := s.Daemon(dir, bundle)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time, the registry has it
		if err := s.PushDaemon(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	got := files(t, d.Name)
	for _, program := range DaemonPrograms {
		if got["usr/local/bin/"+program] != "program "+program {
			t.Errorf("%s = %q", program, got["usr/local/bin/"+program])
		}
	}
	if got[caBundle] != "certificates" || !strings.Contains(got["etc/passwd"], "dewd:x:2002:2002:") {
		t.Errorf("files = %v", got)
	}
	again, err := s.Daemon(dir, bundle)
	if err != nil || again.Name != d.Name {
		t.Errorf("the name changed from %s to %s, %v", d.Name, again.Name, err)
	}
	testkit.WriteFile(t, filepath.Join(dir, "dewd"), "next version")
	next, err := s.Daemon(dir, filepath.Join(dir, "none"))
	if err != nil || next.Name == d.Name {
		t.Errorf("the name of the next version is %s, %v", next.Name, err)
	}
}

// files returns the files of an image.
func files(t *testing.T, image string) map[string]string {
	t.Helper()
	ref, err := name.ParseReference(image, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	img, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	r := mutate.Extract(img)
	defer r.Close()
	out := map[string]string{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = string(data)
	}
}

// A missing program and a registry that does not answer are errors.
func TestDaemonErrors(t *testing.T) {
	server := httptest.NewServer(registry.New())
	server.Close()
	s := &Store{Prefix: strings.TrimPrefix(server.URL, "http://") + "/dew", Insecure: true}
	if _, err := s.Daemon(t.TempDir(), ""); err == nil || !strings.Contains(err.Error(), "make build-kubernetes") {
		t.Errorf("error = %v, want how to build the programs", err)
	}
	if err := s.CheckPush(t.Context()); err == nil {
		t.Error("a registry that does not answer accepts images")
	}
}

// The architecture is that of the programs.
func TestArch(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := Arch(dir); err == nil || !strings.Contains(err.Error(), "make build-kubernetes") {
		t.Errorf("error = %v, want how to build the programs", err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "dewd")); err != nil {
		t.Fatal(err)
	}
	if arch, err := Arch(dir); err != nil || arch != runtime.GOARCH {
		t.Errorf("architecture = %s, %v, want %s", arch, err, runtime.GOARCH)
	}
}
