// Command config-server is a sidecar that serves the configuration of its app, only
// over localhost.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const shutdownTimeout = 5 * time.Second

// Config is the configuration of the app. A real config server would read it from a
// vault. A sidecar can hold that vault's credentials, so that the app does not need
// them.
type Config struct {
	Scope    string `json:"scope"`
	Password string `json:"password"`
}

func main() {
	log.SetOutput(os.Stdout)
	log.SetFlags(0) // the platform adds the time to every line
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Getenv("CONFIG_SERVER_PORT")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, port string) error {
	if port == "" {
		return errors.New("cannot start: CONFIG_SERVER_PORT must be set")
	}
	l, err := listen(port)
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	log.Printf("config server listens on %s", l.Addr())
	return serve(ctx, l, handler(Config{Scope: "some-service.admin", Password: "not-a-real-p4$$w0rd"}))
}

// listen listens only on localhost, which only processes of the same container can
// reach.
func listen(port string) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort("localhost", port))
}

// serve serves until ctx is done, and then finishes active requests.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: logged(h), ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("cannot serve: %w", err)
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	err := srv.Shutdown(ctx)
	<-failed // then nothing listens any more
	return err
}

func logged(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		log.Printf("%s %s", r.Method, r.URL.Path)
		h.ServeHTTP(w, r)
	})
}

func handler(c Config) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /config/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(c) // fails only if the client has disconnected
	})
	return mux
}
