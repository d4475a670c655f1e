package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// with returns an environment.
func with(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// nextPort is below the kernel's range for outgoing connections, so that no connection
// takes a port that was free. It starts at a different number in every test process.
var nextPort = 10000 + os.Getpid()%1000*5

// freePort returns a port that no program listens on. No two calls return the same.
func freePort(t *testing.T) string {
	t.Helper()
	for range 1000 {
		nextPort++
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(nextPort))
		if err == nil {
			_ = l.Close()
			return strconv.Itoa(nextPort)
		}
	}
	t.Fatal("no port is free")
	return ""
}

// runMode runs a mode until the test ends, and checks that it then stops without an
// error.
func runMode(t *testing.T, mode string, env func(string) string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, []string{mode}, env) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", mode, err)
		}
	})
}

// waitForResponse waits until the address responds.
func waitForResponse(t *testing.T, address string) {
	t.Helper()
	if err := await(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("answer %s", resp.Status)
	}
}

func TestUnknownMode(t *testing.T) {
	for _, args := range [][]string{nil, {"dance"}, {"exit", "now"}} {
		if err := run(t.Context(), args, with()); err == nil || !strings.Contains(err.Error(), "the mode must be exit") {
			t.Errorf("%q: %v, want the modes there are", args, err)
		}
	}
}

func TestExitEndsAtOnce(t *testing.T) {
	if err := run(t.Context(), []string{"exit"}, with()); err != nil {
		t.Error(err)
	}
}

// It is idle until it is stopped, and then exits without an error.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		if err := run(ctx, []string{"idle"}, with()); err != nil || time.Since(began) != time.Hour {
			t.Errorf("ended after %s: %v", time.Since(began), err)
		}
	})
}

// It crashes after its time has passed, not when it is stopped.
func TestCrash(t *testing.T) {
	port := freePort(t)
	runMode(t, "crash", with("PORT", port))
	waitForResponse(t, "127.0.0.1:"+port)

	done, cancel := context.WithCancelCause(t.Context())
	cancel(errCrash)
	if err := crash(done, with("PORT", port)); !errors.Is(err, errCrash) {
		t.Errorf("the end of its time gives %v, want %v", err, errCrash)
	}
}

func TestLocalListensOnLocalhostOnly(t *testing.T) {
	port := freePort(t)
	runMode(t, "local", with("PORT", port))
	waitForResponse(t, "127.0.0.1:"+port)
	// If it listened on all addresses, this one would be in use.
	l, err := net.Listen("tcp", "127.0.0.2:"+port)
	if err != nil {
		t.Fatalf("it listens on more than localhost: %v", err)
	}
	_ = l.Close()
}

// An app that waits for its sidecar listens only when the sidecar does.
func TestServeWaitsForItsSidecar(t *testing.T) {
	port, sidecar := freePort(t), freePort(t)
	short, cancel := context.WithTimeout(t.Context(), 2*pause)
	defer cancel()
	if err := run(short, []string{"serve"}, with("PORT", "none", "SIDECAR_ADDRESS", "127.0.0.1:"+sidecar)); err != nil {
		t.Errorf("it listens before its sidecar does: %v", err)
	}
	runMode(t, "serve", with("PORT", port, "SIDECAR_ADDRESS", "127.0.0.1:"+sidecar))
	runMode(t, "serve", with("PORT", sidecar))
	waitForResponse(t, "127.0.0.1:"+port)
}

func TestServeNeedsAPort(t *testing.T) {
	if err := run(t.Context(), []string{"serve"}, with("PORT", "none")); err == nil || !strings.Contains(err.Error(), "cannot listen") {
		t.Errorf("serve: %v, want that it cannot listen", err)
	}
}

func TestEatStopsWhenTold(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, []string{"eat"}, with()); err != nil {
		t.Error(err)
	}
}

// A write that the kernel refuses ends the mode fill.
func TestFill(t *testing.T) {
	err := run(t.Context(), []string{"fill"}, with("SPOOL_FILE", "/dev/full"))
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "cannot spool the next ticket") {
		t.Errorf("err = %v, want ENOSPC", err)
	}
	if err := run(t.Context(), []string{"fill"}, with("SPOOL_FILE", "/dev/null/spool")); err == nil || !strings.Contains(err.Error(), "cannot create the spool") {
		t.Errorf("err = %v, want that of the folder", err)
	}
}
