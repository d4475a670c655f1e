package stack

import (
	"io"
	"log"
	"net"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	ociregistry "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// A registry at any loopback address can be used without TLS, as if it were at
// 127.0.0.1.
func TestLoopbackRegistries(t *testing.T) {
	t.Parallel()
	image := anImage(t, rootTar(t, smallRoot...))
	for _, address := range []string{"127.0.0.1:0", "127.0.0.2:0", "127.9.8.7:0", "[::1]:0", "localhost:0"} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", address)
			if err != nil {
				t.Skipf("this machine does not have the address: %v", err)
			}
			s := httptest.NewUnstartedServer(ociregistry.New(ociregistry.Logger(log.New(io.Discard, "", 0))))
			_ = s.Listener.Close()
			s.Listener = l
			s.Start()
			t.Cleanup(s.Close)
			at := l.Addr().String()
			if strings.HasPrefix(address, "localhost") {
				_, port, _ := net.SplitHostPort(at)
				at = "localhost:" + port
			}
			ref, err := name.ParseReference(at+"/shop:1", name.Insecure)
			if err == nil {
				err = remote.Write(ref, image)
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := pulled(t, stackWorld(t), ImageSource{Ref: at + "/shop:1"}); err != nil {
				t.Errorf("cannot pull: %v", err)
			}
		})
	}
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.255.0.9": true, "::1": true, "localhost": true,
		"128.0.0.1": false, "10.0.0.1": false, "::2": false, "localhost.example.com": false, "127.0.0.1.example.com": false, "": false,
	} {
		if got := isLoopback(host); got != want {
			t.Errorf("isLoopback(%q) = %v", host, got)
		}
	}
}

// pulled fetches an image with all its layers.
func pulled(t *testing.T, s *Stacks, from ImageSource) (Image, NewTree, error) {
	t.Helper()
	i, err := s.Pull(t.Context(), from, func(string) {})
	if err != nil {
		return i, NewTree{}, err
	}
	m, err := s.storeImage(t.Context(), i, func(string) {})
	if err == nil {
		m.Done()
	}
	return i, m, err
}
