package console

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"
)

const (
	// QuietTime is how long a wait prints nothing. Most waits are shorter.
	QuietTime = 2 * time.Second
	// redrawTime is how often a terminal shows the elapsed time.
	redrawTime = time.Second
	// fullPause is the time between two lines about a long wait without a terminal.
	fullPause = 30 * time.Second
	// clearLine clears the current line of a terminal.
	clearLine = "\r\x1b[K"
	// defaultWidth is the width of a terminal that does not report its size.
	defaultWidth = 80
)

// statusLine writes to a terminal and redraws its last line. It is safe for concurrent
// use.
type statusLine struct {
	mu   sync.Mutex
	w    io.Writer // guarded by mu
	text string    // the drawn text; guarded by mu
}

// StatusLineOver returns a status line on w, or w itself if it is one.
func StatusLineOver(w io.Writer) *statusLine {
	if s, ok := w.(*statusLine); ok {
		return s
	}
	return &statusLine{w: w}
}

// Write writes above the drawn line.
func (s *statusLine) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.text == "" {
		return s.w.Write(b)
	}
	_, _ = io.WriteString(s.w, clearLine) // the next write returns the same error
	n, err := s.w.Write(b)
	if bytes.HasSuffix(b, []byte("\n")) {
		_, _ = io.WriteString(s.w, s.text)
	} else {
		s.text = ""
	}
	return n, err
}

// draw replaces the drawn line; an empty text removes it.
func (s *statusLine) draw(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text == "" && s.text == "" {
		return
	}
	// A longer line would wrap, and only a part of it could be cleared.
	s.text = runewidth.Truncate(text, s.width()-1, "…")
	_, _ = io.WriteString(s.w, clearLine+s.text) // failing to draw is not an error of the command
}

func (s *statusLine) width() int {
	if f, ok := s.w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 1 {
			return width
		}
	}
	return defaultWidth
}

// Writer is the underlying writer, for a child process that detects a terminal itself.
func (s *statusLine) Writer() io.Writer { return s.w }

// Waiting shows the reason and the duration of a wait. Waits do not nest.
type Waiting struct {
	line  *statusLine
	what  string
	began time.Time
	stop  func()
	done  chan struct{}

	mu   sync.Mutex
	last string // guarded by mu
}

// Wait shows a progress message until End is called. It writes nothing for QuietTime.
// Then a terminal shows a line with the elapsed time, which is redrawn and removed at
// the end. Without a terminal a line is written after 2, 10 and 30 seconds, then every
// 30 seconds.
func (c *Console) Wait(format string, args ...any) *Waiting {
	stop := make(chan struct{})
	w := &Waiting{
		line: StatusLineOver(c.Err), what: fmt.Sprintf(format, args...), began: time.Now(),
		stop: sync.OnceFunc(func() { close(stop) }), done: make(chan struct{}),
	}
	go w.show(cmp.Or(c.Quiet, QuietTime), c.ErrTerminal, stop)
	return w
}

// Note sets the text about the progress.
func (w *Waiting) Note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = fmt.Sprintf(format, args...)
}

// End removes the line. It can be called more than once.
func (w *Waiting) End() {
	w.stop()
	<-w.done
}

func (w *Waiting) show(next time.Duration, drawn bool, stop <-chan struct{}) {
	defer close(w.done)
	defer w.line.draw("")
	for {
		t := time.NewTimer(time.Until(w.began.Add(next)))
		select {
		case <-stop:
			t.Stop()
			return
		case <-t.C:
		}
		if drawn {
			w.line.draw(Printable(w.Text(next)))
			next += redrawTime
			continue
		}
		fmt.Fprintln(w.line, w.Text(next))
		next = nextMark(next)
	}
}

// Text is the line that is shown after the elapsed time.
func (w *Waiting) Text(elapsed time.Duration) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := fmt.Sprintf("%s… %s", w.what, elapsed)
	if w.last != "" {
		text += ": " + w.last
	}
	return text
}

// nextMark is the elapsed time at which a wait without a terminal writes again.
func nextMark(elapsed time.Duration) time.Duration {
	for _, mark := range []time.Duration{10 * time.Second, fullPause} {
		if elapsed < mark {
			return mark
		}
	}
	return elapsed + fullPause
}
