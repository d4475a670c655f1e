package logs

import (
	"bufio"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

// linePrinter writes lines, many at a time. Goroutines of several apps can share it.
type linePrinter struct {
	o     options
	out   *console.Console
	talk  sync.Mutex // held while a message is printed
	mu    sync.Mutex // guards the fields below
	w     *bufio.Writer
	buf   []byte
	width int     // of the longest name so far, with several apps
	open  *appLog // with --raw, the app whose line is not complete yet
}

func newLinePrinter(o options, out *console.Console) *linePrinter {
	return &linePrinter{o: o, out: out, w: bufio.NewWriterSize(out.Out, 64<<10)}
}

// say prints a message for the user, separate from the log lines.
func (p *linePrinter) say(format string, args ...any) {
	p.talk.Lock()
	defer p.talk.Unlock()
	p.out.Say(format, args...)
}

// line writes a line of an app. An error stops the command, because its output cannot
// be written.
func (p *linePrinter) line(a *appLog, l *v3.Line) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, err := p.format(p.buf[:0], a, l)
	if err != nil {
		return err
	}
	p.buf = b
	_, err = p.w.Write(b)
	return err
}

// texts writes the texts of lines of the only app.
func (p *linePrinter) texts(b []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.w.Write(b)
	return err
}

func (p *linePrinter) format(b []byte, a *appLog, l *v3.Line) ([]byte, error) {
	switch {
	case p.out.JSON:
		text, err := appLine{App: a.name, Line: *l}.MarshalJSON() // json.Marshal would validate it again
		if err != nil {
			return b, fmt.Errorf("cannot write line %d: %w", l.Seq, err)
		}
		b = append(b, text...)
	case p.o.Raw && slices.Contains(l.Flags, v3.FlagGap):
		p.say("%s: %s", a.name, l.Text) // it is not output of the app
		return b, nil
	case p.o.Raw:
		if p.open != nil && p.open != a {
			b = append(b, '\n')
		}
		b = append(b, l.Text...)
		if p.open = nil; slices.Contains(l.Flags, v3.FlagCut) {
			p.open = a
			return b, nil // the next line continues it
		}
	default:
		if p.o.several() {
			p.width = max(p.width, utf8.RuneCountInString(a.name))
			b = appendName(b, a, p.width, p.out.Color)
		}
		b = console.AppendLine(b, l, console.LineStyle{Color: p.out.Color, Terminal: p.out.OutTerminal})
	}
	return append(b, '\n'), nil
}

func (p *linePrinter) flush() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.w.Flush()
}

// appLine is a line with the name of its app.
type appLine struct {
	App  string
	Line v3.Line
}

// MarshalJSON puts the name before the fields of the line.
func (l appLine) MarshalJSON() ([]byte, error) {
	name, err := json.Marshal(l.App)
	if err != nil {
		return nil, err
	}
	line, err := l.Line.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return slices.Concat([]byte(`{"app":`), name, []byte{','}, line[1:]), nil
}

// appendName appends the name of an app in its own colour and column.
func appendName(b []byte, a *appLog, width int, color bool) []byte {
	if color {
		b = append(b, a.colour...)
	}
	b = append(b, a.name...)
	for range width - utf8.RuneCountInString(a.name) {
		b = append(b, ' ')
	}
	b = append(b, " |"...)
	if color {
		b = append(b, console.NoColour...)
	}
	return append(b, ' ')
}
