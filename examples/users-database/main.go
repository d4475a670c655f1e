// Command users-database is a web app with a database behind it: it makes its
// tables, fills them with made-up users, lists them and empties them.
//
//	GET /migrate             {"migrated": true}
//	GET /users/add/{amount}  {"amount": 2, "users added": [...]}
//	GET /users               {"count": 2, "users": [...]}
//	GET /users/delete        {"users": []}
//
// What changes data should be POST and DELETE in an app that people rely on; here
// a browser's address line is enough to try it.
package main

import (
	"context"
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

func main() {
	log.SetOutput(os.Stdout)
	log.SetFlags(0) // the platform puts the time before every line
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
	s, err := findSettings(env)
	if err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}
	db, err := openUsers(s)
	if err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}
	defer db.close()
	l, err := net.Listen("tcp", ":"+port) // on all addresses: the router comes from outside
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	log.Printf("app listens on %s, its database is %s", l.Addr(), s)
	return serve(ctx, l, handler(db))
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
