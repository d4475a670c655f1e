// Command users-database is a web app with a database. It creates its tables, fills
// them with generated users, lists them and empties them.
//
//	GET /migrate             {"migrated": true}
//	GET /users/add/{amount}  {"amount": 2, "users added": [...]}
//	GET /users               {"count": 2, "users": [...]}
//	GET /users/delete        {"users": []}
//
// A real app should use POST and DELETE for changes of data. Here, a browser's address
// line is enough to try it.
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
	s, err := findSettings(env)
	if err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}
	db, err := openUsers(s)
	if err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}
	defer db.close()
	l, err := net.Listen("tcp", ":"+port) // on all addresses, because the router connects from outside
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	log.Printf("app listens on %s, its database is %s", l.Addr(), s)
	return serve(ctx, l, handler(db))
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
