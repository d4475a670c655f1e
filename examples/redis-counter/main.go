// Command redis-counter is a web app that counts its visits in Redis. All its instances
// share the count, which survives a restart.
//
//	GET /  {"count": 1}
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

	"github.com/redis/go-redis/v9"
)

const (
	key             = "visits"
	askTimeout      = 5 * time.Second
	shutdownTimeout = 5 * time.Second
)

func main() {
	log.SetOutput(os.Stdout)
	log.SetFlags(0) // the platform adds the time to every line
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := start(ctx, os.Getenv); err != nil {
		log.Fatal(err)
	}
}

func start(ctx context.Context, env func(string) string) error {
	port := env("PORT")
	if port == "" {
		return errors.New("cannot start: PORT must be set")
	}
	o, err := findRedis(env)
	if err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}
	c := redis.NewClient(o)
	defer func() { _ = c.Close() }()      // the program exits
	l, err := net.Listen("tcp", ":"+port) // on all addresses, because the router connects from outside
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	log.Printf("app listens on %s, its Redis is %s", l.Addr(), o.Addr)
	return serve(ctx, l, handler(c))
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

// handler counts every visit of the front page.
func handler(c *redis.Client) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
		defer cancel()
		n, err := c.Incr(ctx, key).Result()
		if err != nil {
			log.Printf("cannot count: %v", err)
			answer(w, http.StatusServiceUnavailable, map[string]any{"error": "cannot count: " + err.Error()})
			return
		}
		answer(w, http.StatusOK, map[string]any{"count": n})
	})
	return mux
}

func answer(w http.ResponseWriter, status int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // fails only if the client has disconnected
}
