// Command web is the process that people talk to. It knows nothing itself: the
// clock and the cache, its sidecars, do, and it asks them over UNIX sockets.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

const shutdownTimeout = 5 * time.Second

func main() {
	log.SetOutput(os.Stdout)
	log.SetFlags(0) // the platform puts the time before every line
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Getenv("PORT")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, port string) error {
	if port == "" {
		return errors.New("cannot start: PORT must be set")
	}
	l, err := net.Listen("tcp", ":"+port) // on all addresses: the router comes from outside
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	log.Printf("web listens on %s", l.Addr())
	return serve(ctx, l, handler(os.TempDir()))
}

// serve answers until ctx ends, and then finishes what it has begun.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("cannot serve: %w", err)
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	return srv.Shutdown(ctx)
}

// handler gives every path to the sidecar that knows the answer.
func handler(sockets string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /time", sidecar(sockets, "clock"))
	mux.Handle("GET /notes/{name}", sidecar(sockets, "cache"))
	mux.Handle("PUT /notes/{name}", sidecar(sockets, "cache"))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "GET /time asks the clock; GET and PUT /notes/NAME ask the cache.")
	})
	return mux
}

// sidecar hands requests on to the one that listens on its socket. It may start
// later than this process, or be gone: nobody promises an order.
func sidecar(sockets, name string) http.Handler {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(sockets, name+".sock"))
	}
	return &httputil.ReverseProxy{
		Transport: &http.Transport{DialContext: dial, ResponseHeaderTimeout: 2 * time.Second},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", name // the socket is the address
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			log.Printf("%s %s: %v", r.Method, r.URL.Path, err)
			http.Error(w, "the "+name+" does not answer", http.StatusBadGateway)
		},
	}
}
