package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// listenAsSystemd returns a function that waits for the next notification.
func listenAsSystemd(t *testing.T) func() string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return func() string {
		t.Helper()
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 256)
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
}

func TestSystemdIsNotified(t *testing.T) {
	next := listenAsSystemd(t)
	s := service{quiet}
	s.ready()
	if got := next(); got != "READY=1" {
		t.Errorf("told %q, want READY=1", got)
	}
	s.stopping()
	if got := next(); got != "STOPPING=1" {
		t.Errorf("told %q, want STOPPING=1", got)
	}
}

// The watchdog gets notifications of a healthy daemon, and none of an unhealthy one.
func TestWatchdog(t *testing.T) {
	next := listenAsSystemd(t)
	t.Setenv("WATCHDOG_USEC", strconv.FormatInt((30*time.Millisecond).Microseconds(), 10))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	asked := 0
	go func() {
		defer close(done)
		service{quiet}.watch(ctx, func() error {
			if asked++; asked <= 2 {
				return errors.New("stuck")
			}
			return nil
		})
	}()
	if got := next(); got != "WATCHDOG=1" {
		t.Errorf("told %q, want WATCHDOG=1", got)
	}
	cancel()
	<-done
	if asked < 3 {
		t.Errorf("asked %d times before it told, want 3: the first two were not well", asked)
	}
}

func TestNoWatchdog(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "")
	service{quiet}.watch(t.Context(), func() error { t.Error("asked without a watchdog"); return nil })
}

func TestNotifyFailureIsLogged(t *testing.T) {
	var out strings.Builder
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "nobody"))
	service{slog.New(slog.NewTextHandler(&out, nil))}.ready()
	if !strings.Contains(out.String(), "cannot notify systemd") {
		t.Errorf("log = %q, want a warning", out.String())
	}
}
