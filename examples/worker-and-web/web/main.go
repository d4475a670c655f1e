// Command web is the process that serves users. It has no data itself: it forwards
// requests to its sidecars, the clock and the cache, over UNIX sockets.
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
	log.SetFlags(0) // the platform adds the time to every line
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
	l, err := net.Listen("tcp", ":"+port) // on all addresses, because the router connects from outside
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	log.Printf("web listens on %s", l.Addr())
	return serve(ctx, l, handler(os.TempDir()))
}

// serve serves until ctx is done, and then finishes active requests.
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

// handler sends every path to the sidecar that serves it.
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

// sidecar forwards requests to the process that listens on its socket. That process can
// start later than this one, or be stopped: the order is not defined.
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
