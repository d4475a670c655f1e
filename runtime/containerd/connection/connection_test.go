package connection

import (
	"context"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/containerd/containerd/api/services/version/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/dewrun/dew/testkit"
)

// versions is the part of containerd that Open uses.
type versions struct {
	version.UnimplementedVersionServer
}

func (versions) Version(context.Context, *emptypb.Empty) (*version.VersionResponse, error) {
	return &version.VersionResponse{Version: "1.2.3"}, nil
}

// stopped is the listener of a process that is stopped while clients connect. It ignores
// the first connections until their clients give up.
type stopped struct {
	net.Listener
	ignored atomic.Int32
}

func (s *stopped) Accept() (net.Conn, error) {
	for {
		c, err := s.Listener.Accept()
		if err != nil || s.ignored.Load() == 0 {
			return c, err
		}
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
		s.ignored.Add(-1)
	}
}

// Open waits for a containerd that is stopped, and does not wait if none listens.
func TestOpenWaits(t *testing.T) {
	t.Parallel()
	address := filepath.Join(testkit.ShortDir(t), "s")
	cfg := Config{Address: address, Namespace: "test", Logger: slog.New(slog.DiscardHandler)}
	if _, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("without a socket = %v", err)
	}
	// The first connection is the check for a listener, and the next one is given up.
	l := &stopped{Listener: testkit.Open(net.Listen("unix", address))(t)}
	l.ignored.Store(2)
	server := grpc.NewServer()
	version.RegisterVersionServer(server, versions{})
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	c, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if n := l.ignored.Load(); n != 0 {
		t.Errorf("%d connections were not given up", n)
	}
}
