package sshd

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/runtime"
)

func terminalOf(process string) TerminalRequest {
	return TerminalRequest{
		Who: auth.Principal{ID: "u1", Name: "ann", IsUser: true}, Process: process, Size: runtime.Size{Columns: 80, Rows: 24}, Peer: "192.0.2.1:5",
	}
}

func TestOpenTerminal(t *testing.T) {
	w := newWorld(t, Limits{})
	term, err := w.s.OpenTerminal(t.Context(), terminalOf(workerGUID))
	if err != nil {
		t.Fatal(err)
	}
	st := term.Streams()
	if _, err := io.WriteString(st.In, "size\nexit 3\n"); err != nil {
		t.Fatal(err)
	}
	_ = st.In.Close()
	if b, err := io.ReadAll(st.Out); err != nil || string(b) != "80x24\n" {
		t.Errorf("output = %q %v", b, err)
	}
	if end, err := term.Wait(t.Context()); err != nil || end.Code != 3 {
		t.Errorf("end = %+v %v", end, err)
	}
	if err := term.Close(); err != nil {
		t.Error(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.accesses) != 1 || w.accesses[0].Type != "worker" || w.accesses[0].Who.Name != "ann" || w.accesses[0].Err != nil {
		t.Errorf("accesses = %+v", w.accesses)
	}
	if len(w.lines) != 1 || !strings.Contains(w.lines[0], "Successful remote access by 192.0.2.1:5") {
		t.Errorf("lines = %v", w.lines)
	}
}

func TestTerminalRefused(t *testing.T) {
	w := newWorld(t, Limits{Sessions: 1, Connections: 2})
	first, err := w.s.OpenTerminal(t.Context(), terminalOf(appGUID))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.s.OpenTerminal(t.Context(), terminalOf(appGUID)); err == nil || !strings.Contains(err.Error(), "already has 1 sessions") {
		t.Errorf("above the limit of sessions: %v", err)
	}
	second, err := w.s.OpenTerminal(t.Context(), terminalOf(workerGUID))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.s.OpenTerminal(t.Context(), terminalOf(workerGUID)); err == nil || !strings.Contains(err.Error(), "already 2 connections") {
		t.Errorf("above the limit of connections: %v", err)
	}
	for range 2 { // Close can be repeated
		_, _ = first.Close(), second.Close()
	}
	if len(w.s.connections) != 0 || len(w.s.connected) != 0 {
		t.Errorf("%d connections, %v sessions are counted, want none", len(w.s.connections), w.s.connected)
	}
	w.deny(errors.New("no"))
	if _, err := w.s.OpenTerminal(t.Context(), terminalOf(appGUID)); err == nil || err.Error() != "no" {
		t.Errorf("denied: %v", err)
	}
	if last := w.accesses[len(w.accesses)-1]; last.Err == nil {
		t.Errorf("access = %+v, want the refusal", last)
	}
	w.deny(nil)
	missing := terminalOf("aaaaaaaa-0000-4000-8000-00000000000f")
	if _, err := w.s.OpenTerminal(t.Context(), missing); !errors.Is(err, errNoProcess) {
		t.Errorf("no process: %v", err)
	}
}

func TestWatchTerminal(t *testing.T) {
	yes := func(context.Context) bool { return true }
	for name, tt := range map[string]struct {
		limits Limits
		denied error
		alive  bool
		want   string
	}{
		"idle":        {Limits{Alive: time.Millisecond, Idle: time.Millisecond}, nil, true, "idle"},
		"not allowed": {Limits{Alive: time.Millisecond}, errors.New("lost the role"), true, "lost the role"},
		"lost":        {Limits{Alive: time.Millisecond}, nil, false, "does not respond"},
	} {
		w := newWorld(t, tt.limits)
		term, err := w.s.OpenTerminal(t.Context(), terminalOf(appGUID))
		if err != nil {
			t.Fatal(err)
		}
		w.deny(tt.denied)
		alive := yes
		if !tt.alive {
			alive = func(context.Context) bool { return false }
		}
		if err := term.Watch(t.Context(), alive); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
		_ = term.Close()
	}
	w := newWorld(t, Limits{})
	term, err := w.s.OpenTerminal(t.Context(), terminalOf(appGUID))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := term.Watch(ctx, yes); err != nil {
		t.Errorf("a cancelled watch = %v", err)
	}
	_ = term.Close()
}

// The server waits for its terminals, and opens none while it stops.
func TestServerWaitsForTerminals(t *testing.T) {
	w := newWorld(t, Limits{})
	term, err := w.s.OpenTerminal(t.Context(), terminalOf(appGUID))
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() {
		w.stop()
		close(stopped)
	}()
	w.eventually("new terminals are refused", func() bool {
		other, err := w.s.OpenTerminal(t.Context(), terminalOf(workerGUID))
		if err == nil {
			_ = other.Close()
		}
		return errors.Is(err, errStopped)
	})
	select {
	case <-stopped:
		t.Error("the server stopped before its terminal was closed")
	default:
	}
	_ = term.Close()
	<-stopped
}
