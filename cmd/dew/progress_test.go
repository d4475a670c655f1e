package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// waitFor runs a wait of some seconds in virtual time and returns what is written.
func waitFor(t *testing.T, c *console, during func(w *waiting)) string {
	t.Helper()
	var talk bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		c.out, c.err = io.Discard, statusOver(&talk)
		w := c.wait("Stopping app %s", "shop")
		during(w)
		w.end()
		w.end()
	})
	return talk.String()
}

func TestWaitSaysNothingOfAShortWait(t *testing.T) {
	for _, drawn := range []bool{true, false} {
		got := waitFor(t, &console{drawn: drawn}, func(*waiting) { time.Sleep(quietTime - time.Millisecond) })
		if got != "" {
			t.Errorf("drawn %v: %q is written", drawn, got)
		}
	}
}

func TestWaitWritesRarelyWithoutATerminal(t *testing.T) {
	got := waitFor(t, &console{json: true}, func(w *waiting) {
		time.Sleep(5 * time.Second)
		w.note("instance %d is STOPPING", 1)
		time.Sleep(90 * time.Second)
	})
	want := "Stopping app shop… 2s\n" +
		"Stopping app shop… 10s: instance 1 is STOPPING\n" +
		"Stopping app shop… 30s: instance 1 is STOPPING\n" +
		"Stopping app shop… 1m0s: instance 1 is STOPPING\n" +
		"Stopping app shop… 1m30s: instance 1 is STOPPING\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A terminal has one line, which makes room for others and is gone at the end.
func TestWaitDrawsOneLine(t *testing.T) {
	c := &console{drawn: true}
	got := waitFor(t, c, func(w *waiting) {
		time.Sleep(2500 * time.Millisecond)
		c.say("a line of the app")
		w.note("%s", "\x1b[2J"+strings.Repeat("long ", 30))
		time.Sleep(time.Second)
	})
	const first = clearLine + "Stopping app shop… 2s"
	last := clearLine + "Stopping app shop… 3s: ^[[2J" + strings.Repeat("long ", 30)[:50] + "…"
	want := first + clearLine + "a line of the app\n" + "Stopping app shop… 2s" + last + clearLine
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if n := len([]rune(strings.TrimPrefix(last, clearLine))); n >= defaultWidth {
		t.Errorf("the line has %d characters and wraps", n)
	}
}
