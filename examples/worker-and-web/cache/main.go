// Command cache is a sidecar that stores short notes for its app, over a UNIX socket
// and in memory. Every instance has its own notes, which are lost when it stops.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	maxNotes        = 1000
	maxNote         = 4 << 10 // in bytes
	shutdownTimeout = 5 * time.Second
)

func main() {
	log.SetOutput(os.Stdout)
	log.SetFlags(0) // the platform adds the time to every line
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	// All processes of an instance share this folder, and each instance has its own.
	if err := run(ctx, filepath.Join(os.TempDir(), "cache.sock")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, socket string) error {
	// A leftover socket would prevent listening.
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot listen: %w", err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	log.Printf("cache listens on %s", socket)
	return serve(ctx, l, (&cache{notes: map[string][]byte{}}).handler())
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

// cache stores notes by their names.
type cache struct {
	mu    sync.Mutex // guards notes
	notes map[string][]byte
}

func (c *cache) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /notes/{name}", func(w http.ResponseWriter, r *http.Request) {
		note, found := c.get(r.PathValue("name"))
		if !found {
			http.Error(w, "there is no such note", http.StatusNotFound)
			return
		}
		_, _ = w.Write(note) // fails only if the client has disconnected
	})
	mux.HandleFunc("PUT /notes/{name}", func(w http.ResponseWriter, r *http.Request) {
		note, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxNote))
		if err != nil {
			http.Error(w, fmt.Sprintf("a note has at most %d bytes", maxNote), http.StatusRequestEntityTooLarge)
			return
		}
		if !c.put(r.PathValue("name"), note) {
			http.Error(w, fmt.Sprintf("there are %d notes already", maxNotes), http.StatusInsufficientStorage)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

func (c *cache) get(name string) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	note, found := c.notes[name]
	return note, found // its bytes never change
}

// put stores a note. It reports false if there is no more room.
func (c *cache) put(name string, note []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.notes[name]; !known && len(c.notes) >= maxNotes {
		return false
	}
	c.notes[name] = note
	return true
}
