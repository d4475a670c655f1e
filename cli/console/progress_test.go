package console

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// waitFor runs a wait of some seconds in virtual time and returns the output.
func waitFor(t *testing.T, c *Console, during func(w *Waiting)) string {
	t.Helper()
	var talk bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		c.Out, c.Err = io.Discard, StatusLineOver(&talk)
		w := c.Wait("Stopping app %s", "shop")
		during(w)
		w.End()
		w.End()
	})
	return talk.String()
}

func TestWaitSaysNothingOfAShortWait(t *testing.T) {
	for _, drawn := range []bool{true, false} {
		got := waitFor(t, &Console{ErrTerminal: drawn}, func(*Waiting) { time.Sleep(QuietTime - time.Millisecond) })
		if got != "" {
			t.Errorf("drawn %v: %q is written", drawn, got)
		}
	}
}

func TestWaitWritesRarelyWithoutATerminal(t *testing.T) {
	got := waitFor(t, &Console{JSON: true}, func(w *Waiting) {
		time.Sleep(5 * time.Second)
		w.Note("instance %d is STOPPING", 1)
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

// A terminal shows one progress line, which makes room for other output and is removed
// at the end.
func TestWaitDrawsOneLine(t *testing.T) {
	c := &Console{ErrTerminal: true}
	got := waitFor(t, c, func(w *Waiting) {
		time.Sleep(2500 * time.Millisecond)
		c.Say("a line of the app")
		w.Note("%s", "\x1b[2J"+strings.Repeat("long ", 30))
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
