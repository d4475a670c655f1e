package console

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

// Console is the input and output of a command: data goes to Out, messages to Err.
type Console struct {
	Out, Err    io.Writer
	In          io.Reader
	Color       bool          // out shows colours
	OutTerminal bool          // out is a terminal
	ErrTerminal bool          // err is a terminal: progress is drawn there
	Interactive bool          // in and err are terminals: questions can be asked
	JSON        bool          // data as JSON
	FollowsLogs bool          // the log lines of apps are shown as they arrive
	lines       *bufio.Reader // reads In (nil before the first question)
	Quiet       time.Duration // how long a wait prints nothing (0: QuietTime)
}

// New is a console on the files of a process.
func New(out, err, in *os.File) *Console {
	isTerminal := func(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
	return &Console{
		Out: out, Err: err, In: in,
		Color:       isTerminal(out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
		OutTerminal: isTerminal(out), ErrTerminal: isTerminal(err),
		Interactive: isTerminal(in) && isTerminal(err),
	}
}

// Say writes a message to the user.
func (c *Console) Say(format string, args ...any) {
	fmt.Fprintf(c.Err, format+"\n", args...)
}

// Warn writes a warning to the user.
func (c *Console) Warn(text string) {
	if c.ErrTerminal {
		text = Printable(text) // file names inside an instance can contain control characters
	}
	c.Say("warning: %s", text)
}

// Encode writes data as JSON. A nil slice is an empty list, because programs iterate
// over it.
func (c *Console) Encode(v any) error {
	if list := reflect.ValueOf(v); list.Kind() == reflect.Slice && list.IsNil() {
		v = []any{}
	}
	enc := json.NewEncoder(c.Out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("cannot write the data: %w", err)
	}
	return nil
}

// Confirm asks a question; only "y" and "yes" confirm. Without a terminal it
// fails, and the error says to pass -f.
func (c *Console) Confirm(ctx context.Context, question string) (bool, error) {
	if !c.Interactive {
		return false, &Failure{Status: StatusUsage, Err: fmt.Errorf("confirmation needed: pass -f to %s", actionOf(question)), Advice: "Without a terminal dew cannot ask you"}
	}
	answer, err := c.Ask(ctx, question+"? [yN]: ")
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", err
}

// actionOf is the action that a question asks about: "delete app shop" for "Really delete
// app shop".
func actionOf(question string) string {
	action := strings.TrimPrefix(question, "Really ")
	return strings.ToLower(action[:1]) + action[1:]
}

// Ask asks for one line.
func (c *Console) Ask(ctx context.Context, prompt string) (string, error) {
	fmt.Fprint(c.Err, prompt)
	return await(ctx, c.line)
}

// line reads the next line of the input.
func (c *Console) line() (string, error) {
	if c.lines == nil {
		c.lines = bufio.NewReader(c.In)
	}
	text, err := c.lines.ReadString('\n')
	if err != nil && text == "" {
		return "", fmt.Errorf("cannot read the answer: %w", err)
	}
	return strings.TrimRight(text, "\r\n"), nil
}

// Secret asks for one line that is not shown.
func (c *Console) Secret(ctx context.Context, prompt string) (string, error) {
	f, isFile := c.In.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return c.Ask(ctx, prompt)
	}
	fd := int(f.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", fmt.Errorf("cannot read from this terminal: %w", err)
	}
	fmt.Fprint(c.Err, prompt)
	text, err := await(ctx, func() (string, error) {
		b, err := term.ReadPassword(fd)
		return string(b), err
	})
	fmt.Fprintln(c.Err)
	if ctx.Err() != nil {
		_ = term.Restore(fd, before) // show what the user types after the interruption
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the answer: %w", err)
	}
	return text, nil
}

// await waits for an answer until ctx is done, because a read from a terminal cannot be
// interrupted.
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

// Table writes rows in columns; the first row is the head. Empty cells at the end of a
// row keep the columns of the next rows aligned.
func (c *Console) Table(rows [][]string) error {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 4, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(c.Out, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// Facts writes rows of a name and a value. It leaves out rows without a value.
func (c *Console) Facts(rows [][]string) error {
	return c.Table(slices.DeleteFunc(rows, func(row []string) bool { return row[1] == "" }))
}

// The colours of a terminal.
const (
	Bold     = "\x1b[1m"
	Red      = "\x1b[31m"
	Green    = "\x1b[32m"
	Yellow   = "\x1b[33m"
	cyan     = "\x1b[36m"
	NoColour = "\x1b[0m"
)

// Paint colours text if Out shows colours.
func (c *Console) Paint(colour, text string) string {
	if !c.Color {
		return text
	}
	return colour + text + NoColour
}

// ConfirmUnless asks the question unless force is set.
func ConfirmUnless(ctx context.Context, out *Console, force bool, question string) (bool, error) {
	if force {
		return true, nil
	}
	return out.Confirm(ctx, question)
}
