// Command app is a web app whose configuration comes from a sidecar. GET /config
// requests it from the config server on localhost and returns the response.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	sidecarTimeout  = 2 * time.Second
	shutdownTimeout = 5 * time.Second
	maxConfig       = 1 << 20 // in bytes
)

func main() {
	log.SetOutput(os.Stdout)
	log.SetFlags(0) // the platform adds the time to every line
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Getenv("PORT"), os.Getenv("CONFIG_SERVER_PORT")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, port, configPort string) error {
	if port == "" || configPort == "" {
		return errors.New("cannot start: PORT and CONFIG_SERVER_PORT must be set")
	}
	l, err := net.Listen("tcp", ":"+port) // on all addresses, because the router connects from outside
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	log.Printf("app listens on %s", l.Addr())
	return serve(ctx, l, handler("http://"+net.JoinHostPort("localhost", configPort)+"/config/"))
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
	return srv.Shutdown(ctx)
}

func logged(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		log.Printf("%s %s", r.Method, r.URL.Path)
		h.ServeHTTP(w, r)
	})
}

func handler(configURL string) http.Handler {
	client := &http.Client{Timeout: sidecarTimeout}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /config", func(w http.ResponseWriter, r *http.Request) {
		config, contentType, err := fetch(r.Context(), client, configURL)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(config) // fails only if the client has disconnected
	})
	return mux
}

// fetch requests the configuration from the sidecar. Its errors are one line each,
// because the app returns them to its own client.
func fetch(ctx context.Context, client *http.Client, url string) (config []byte, contentType string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, "", fmt.Errorf("cannot ask the config server: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, "", fmt.Errorf("the config server does not answer: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, "", fmt.Errorf("the config server answered %s", resp.Status)
	}
	config, err = io.ReadAll(io.LimitReader(resp.Body, maxConfig))
	if err != nil {
		return nil, "", fmt.Errorf("the config server broke off: %w", err)
	}
	return config, resp.Header.Get("Content-Type"), nil
}
