// Command notify sends one notification of each recipient kind. The kinds are a user, a
// space, an organization, everyone, users with a scope, and a mail address. As an app
// it does so for every POST /send; "notify send" does it once.
//
//	settings ─▶ token (client credentials) ─▶ register the kinds ─▶ send six times ─▶ the result of each
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "notify: "+err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	s, err := settingsFrom(os.LookupEnv)
	if err != nil {
		return err
	}
	if len(args) == 1 && args[0] == "send" {
		results, err := sendAll(ctx, s)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(results)
	}
	port := os.Getenv("PORT")
	if port == "" {
		return fmt.Errorf("cannot listen: PORT is not set (notify send sends once, without an address)")
	}
	return serve(ctx, ":"+port, s)
}

// serve serves until ctx is done.
func serve(ctx context.Context, address string, s settings) error {
	srv := &http.Server{Addr: address, Handler: handler(s), ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = srv.Shutdown(context.WithoutCancel(ctx)) })
	defer stop()
	if err := srv.ListenAndServe(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

func handler(s settings) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "POST /send sends one notification of each recipient kind.")
	})
	mux.HandleFunc("POST /send", func(w http.ResponseWriter, r *http.Request) {
		results, err := sendAll(r.Context(), s)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(results) // ignore a client that has disconnected
	})
	return mux
}
