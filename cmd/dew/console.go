package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"
)

// console is where a command speaks: data goes to out, talk to err.
type console struct {
	out, err io.Writer
	in       io.Reader
	color    bool          // out shows colours
	screen   bool          // out is a terminal
	drawn    bool          // err is a terminal: progress may be drawn
	asks     bool          // somebody can answer a question
	json     bool          // data as JSON
	follows  bool          // the lines of apps are shown as they come
	lines    *bufio.Reader // over in, from the first question on
	quiet    time.Duration // how long a wait says nothing; 0: quietTime
}

func newConsole(out, err, in *os.File) *console {
	isTerminal := func(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
	return &console{
		out: out, err: err, in: in,
		color:  isTerminal(out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
		screen: isTerminal(out), drawn: isTerminal(err),
		asks: isTerminal(in) && isTerminal(err),
	}
}

// say tells the user what goes on.
func (c *console) say(format string, args ...any) {
	fmt.Fprintf(c.err, format+"\n", args...)
}

// warn tells what the user should know and may not expect.
func (c *console) warn(text string) {
	if c.drawn {
		text = shown(text) // names of files inside of an instance can be anything
	}
	c.say("warning: %s", text)
}

// encode writes data as JSON. A list of nothing is a list: programs go through it.
func (c *console) encode(v any) error {
	if list := reflect.ValueOf(v); list.Kind() == reflect.Slice && list.IsNil() {
		v = []any{}
	}
	enc := json.NewEncoder(c.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("cannot write the data: %w", err)
	}
	return nil
}

// confirm asks a question that only "y" answers with yes. With nobody there to
// answer it fails and names -f, which answers.
func (c *console) confirm(ctx context.Context, question string) (bool, error) {
	if !c.asks {
		return false, &failure{status: statusUsage, err: fmt.Errorf("%s needs an answer, and there is no terminal to ask on", question), todo: "give -f to answer yes"}
	}
	answer, err := c.ask(ctx, question+"? [yN]: ")
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", err
}

// ask asks for one line.
func (c *console) ask(ctx context.Context, prompt string) (string, error) {
	fmt.Fprint(c.err, prompt)
	return await(ctx, c.line)
}

// line reads the next line of what was typed or piped in.
func (c *console) line() (string, error) {
	if c.lines == nil {
		c.lines = bufio.NewReader(c.in)
	}
	text, err := c.lines.ReadString('\n')
	if err != nil && text == "" {
		return "", fmt.Errorf("cannot read the answer: %w", err)
	}
	return strings.TrimRight(text, "\r\n"), nil
}

// secret asks for one line that is not shown.
func (c *console) secret(ctx context.Context, prompt string) (string, error) {
	f, isFile := c.in.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return c.ask(ctx, prompt)
	}
	fd := int(f.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", fmt.Errorf("cannot ask on this terminal: %w", err)
	}
	fmt.Fprint(c.err, prompt)
	text, err := await(ctx, func() (string, error) {
		b, err := term.ReadPassword(fd)
		return string(b), err
	})
	fmt.Fprintln(c.err)
	if ctx.Err() != nil {
		_ = term.Restore(fd, before) // whoever interrupts wants to see what is typed next
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the answer: %w", err)
	}
	return text, nil
}

// await waits for an answer, but not beyond the end of ctx: a read from a terminal
// cannot be interrupted.
func await(ctx context.Context, read func() (string, error)) (string, error) {
	type answer struct {
		text string
		err  error
	}
	given := make(chan answer, 1)
	go func() {
		text, err := read()
		given <- answer{text, err}
	}()
	select {
	case a := <-given:
		return a.text, a.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// table writes rows in columns; the first is the head. Cells that are empty at the
// end of a row keep the columns of the next ones where they are.
func (c *console) table(rows [][]string) error {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 4, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(c.out, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// facts writes names with what is known of them; what is not is left out.
func (c *console) facts(rows [][]string) error {
	return c.table(slices.DeleteFunc(rows, func(row []string) bool { return row[1] == "" }))
}

// The colours of a terminal.
const (
	bold   = "\x1b[1m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	cyan   = "\x1b[36m"
	plain  = "\x1b[0m"
)

// paint colours text if out shows colours.
func (c *console) paint(colour, text string) string {
	if !c.color {
		return text
	}
	return colour + text + plain
}
