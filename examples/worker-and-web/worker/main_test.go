package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// It works at once and in every round, until it is stopped.
func TestWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*every+every/2)
		defer cancel()
		var at []time.Duration
		began := time.Now()
		work(ctx, func() { at = append(at, time.Since(began)) })
		if got, want := fmt.Sprint(at), fmt.Sprint([]time.Duration{0, every, 2 * every, 3 * every}); got != want {
			t.Errorf("worked at %s, want %s", got, want)
		}
	})
}

func TestStoppedBeforeItBegins(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	work(ctx, func() { t.Error("it worked") })
}

func TestAsk(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "clock.sock")
	c := newClock(socket)
	if _, err := c.ask(t.Context()); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("without a clock: %v", err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	status := http.StatusOK
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		fmt.Fprintln(w, "late, and asked "+r.URL.Path)
	})}
	go func() { _ = srv.Serve(l) }() // stops with the test
	t.Cleanup(func() { _ = srv.Close() })
	if now, err := c.ask(t.Context()); err != nil || now != "late, and asked /time" {
		t.Errorf("the clock says %q, %v", now, err)
	}
	status = http.StatusTeapot
	if _, err := c.ask(t.Context()); err == nil || !strings.Contains(err.Error(), "418") {
		t.Errorf("a clock that is broken: %v", err)
	}
}
