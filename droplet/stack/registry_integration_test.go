//go:build integration

package stack

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/crypto/bcrypt"
)

// registry is Debian's docker-registry on a loopback port.
type registry struct {
	t    *testing.T
	addr string
	dir  string // folder with its data
}

// startRegistry starts a registry. With a password, only the user clerk has access.
func startRegistry(t *testing.T, password string) *registry {
	t.Helper()
	if _, err := exec.LookPath("docker-registry"); err != nil {
		t.Fatal("docker-registry is not installed: make setup-test")
	}
	r := &registry{t: t, dir: filepath.Join(t.TempDir(), "data")}
	// The registry chooses a free port itself and prints it. Another program could take
	// a port that the test finds free.
	config := fmt.Sprintf("version: 0.1\nlog: {level: info}\nstorage: {filesystem: {rootdirectory: %s}}\nhttp: {addr: '127.0.0.1:0'}\n", r.dir)
	if password != "" {
		hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		if err != nil {
			t.Fatal(err)
		}
		users := filepath.Join(t.TempDir(), "htpasswd")
		if err := os.WriteFile(users, []byte("clerk:"+string(hash)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		config += fmt.Sprintf("auth: {htpasswd: {realm: shop, path: %s}}\n", users)
	}
	file := filepath.Join(t.TempDir(), "registry.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("docker-registry", "serve", file)
	listening := make(chan string, 1)
	said := &saying{listening: listening}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the registry said:\n%s", said.text.String())
		}
	})
	select {
	case r.addr = <-listening: // now the kernel accepts connections
	case <-time.After(time.Minute):
		t.Fatal("the registry does not say where it listens")
	}
	return r
}

// saying is the output of a registry. One goroutine writes it, until Wait returns.
type saying struct {
	text      bytes.Buffer
	listening chan<- string // gets its address; nil: the address was sent
}

var listeningOn = regexp.MustCompile(`listening on (127\.0\.0\.1:[0-9]+)"`)

func (s *saying) Write(b []byte) (int, error) {
	_, _ = s.text.Write(b)
	if found := listeningOn.FindSubmatch(s.text.Bytes()); found != nil && s.listening != nil {
		s.listening <- string(found[1])
		s.listening = nil
	}
	return len(b), nil
}

// push pushes an image to the registry and returns its reference.
func (r *registry) push(repository string, image v1.Image, auth authn.Authenticator) string {
	r.t.Helper()
	ref, err := name.ParseReference(r.addr + "/" + repository)
	if err == nil {
		err = remote.Write(ref, image, remote.WithAuth(auth))
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return ref.String()
}

// Images are pulled by tag and by digest, with and without a password. Every error is a
// sentence without secrets.
func TestRegistry(t *testing.T) {
	image := anImage(t, rootTar(t, smallRoot...), rootTar(t, smallRoot[:2]...))
	open := startRegistry(t, "")
	closed := startRegistry(t, "hush")
	tag := open.push("shop:1", image, authn.Anonymous)
	private := closed.push("shop:1", image, &authn.Basic{Username: "clerk", Password: "hush"})
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	s := stackWorld(t)
	for _, from := range []ImageSource{{Ref: tag}, {Ref: open.addr + "/shop@" + digest.String()}, {Ref: private, Username: "clerk", Password: "hush"}} {
		i, m, err := pulled(t, s, from)
		if err != nil || i.Digest != digest || len(m.Tree) != 2 {
			t.Errorf("%s: %s with %d layers, %v, want %s with 2", from.Ref, i.Digest, len(m.Tree), err, digest)
		}
	}
	const nobody = "127.0.0.1:1" // no test ever gets that port
	other := "sha256:" + strings.Repeat("0", 64)
	for want, from := range map[string]ImageSource{
		"the image does not exist in registry":    {Ref: open.addr + "/none:1"},
		": check its name, and its tag or digest": {Ref: open.addr + "/shop:2"},
		"or digest":                           {Ref: open.addr + "/shop@" + other},
		"refuses connections":                 {Ref: nobody + "/shop:1"},
		"needs a user name and a password":    {Ref: private},
		"refuses user 'clerk'":                {Ref: private, Username: "clerk", Password: "s3cr3t"},
		"cannot be resolved":                  {Ref: "no-such-host.invalid/shop:1"},
		"registries without TLS only on this": {Ref: plainRegistry(t, open.addr) + "/shop:1"},
	} {
		_, _, err := pulled(t, s, from)
		if bad := (*RegistryError)(nil); !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error = %v, want %q", from.Ref, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("the password is in %v", err)
		}
	}
}

// plainRegistry makes the registry available on an address of this machine that is not
// the loopback.
func plainRegistry(t *testing.T, addr string) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		ip, ok := a.(*net.IPNet)
		if !ok || ip.IP.IsLoopback() || ip.IP.To4() == nil {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(ip.IP.String(), "0"))
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() { _ = http.Serve(l, http.RedirectHandler("http://"+addr+"/v2/", http.StatusFound)) }()
		return l.Addr().String()
	}
	t.Skip("this machine has no address but the loopback")
	return ""
}

// Bytes from a registry that do not match their digest are refused, and none of them
// are stored.
func TestRegistryWrongDigest(t *testing.T) {
	r := startRegistry(t, "")
	ref := r.push("shop:1", anImage(t, rootTar(t, smallRoot...)), authn.Anonymous)
	blobs, err := filepath.Glob(filepath.Join(r.dir, "docker/registry/v2/blobs/sha256/*/*/data"))
	if err != nil || len(blobs) != 3 {
		t.Fatalf("blobs = %v, %v, want a manifest, a configuration and a layer", blobs, err)
	}
	changed := 0
	for _, b := range blobs {
		raw, err := os.ReadFile(b)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.HasPrefix(raw, []byte("{")) {
			continue
		}
		other := gzipped(t, rootTar(t, smallRoot[:3]...))
		other = append(other, make([]byte, max(0, len(raw)-len(other)))...)[:len(raw)]
		if err := os.WriteFile(b, other, 0o600); err != nil {
			t.Fatal(err)
		}
		changed++
	}
	if changed != 1 {
		t.Fatalf("%d layers changed, want 1", changed)
	}
	s := stackWorld(t)
	_, _, err = pulled(t, s, ImageSource{Ref: ref})
	if bad := (*RegistryError)(nil); !errors.As(err, &bad) || !strings.Contains(bad.Reason, "does not match its digest") {
		t.Errorf("error = %v, want that the digest is wrong", err)
	}
	if left, _ := filepath.Glob(s.layers.path("*")); len(left) != 0 {
		t.Errorf("%v stayed", left)
	}
}
