package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/term"

	"github.com/dewrun/dew/cli/console"
)

// canDraw reports whether the input and the output are a terminal that can be drawn on.
func canDraw(out *console.Console) bool {
	in, ok := out.In.(*os.File)
	return ok && out.OutTerminal && term.IsTerminal(int(in.Fd())) && os.Getenv("TERM") != "dumb" && os.Getenv("TERM") != ""
}

// watch runs the screen until the user quits.
//
// Ctrl-C is a key while the screen is shown, and a signal while log lines are shown. It
// cancels the context of the command, so that watch must not use its cancellation.
func watch(ctx context.Context, m *model, out *console.Console) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	m.ctx, m.style.color = ctx, out.Color
	p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(out.In), tea.WithOutput(out.Out), tea.WithoutSignalHandler())

	messages := out.Err
	out.Err = noticeWriter{p}
	defer func() { out.Err = messages }()

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	interrupted := make(chan error, 1)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-signals:
				end := m.current.Load()
				if end != nil {
					(*end)()
				}
				if end == nil || s == syscall.SIGTERM {
					interrupted <- context.Canceled
					p.Quit()
					return
				}
			}
		}
	}()
	_, err := p.Run()
	select {
	case stopped := <-interrupted:
		return stopped
	default:
	}
	if errors.Is(err, tea.ErrProgramPanic) {
		return err
	}
	if err != nil {
		return fmt.Errorf("cannot use the terminal: %w", err)
	}
	return nil
}

// noticeWriter shows the warnings of the daemon on the last line of the screen.
type noticeWriter struct{ p *tea.Program }

var _ io.Writer = noticeWriter{}

// Write never waits: the event loop does not receive messages while it shows log lines.
func (w noticeWriter) Write(b []byte) (int, error) {
	text := clean(strings.TrimSpace(string(b)))
	go w.p.Send(noticeMsg{text: text, tone: warning})
	return len(b), nil
}
