package probe

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/creack/pty"
)

const onOutput = "Log lines"

func outputAttacks() []attack {
	o := func(name, want string, run func(w *target) (string, error)) attack {
		return attack{Probe{Group: onOutput, Name: name, Want: want}, run}
	}
	return []attack{
		o("print escape sequences for the terminal of a reader", "`dew logs` prints them as text", escapes),
		o("print a line that looks like one of dew or of another app", "the line keeps its own source", fakePrefix),
		o("put line ends and escape sequences into the access log", "one line, without control characters", accessLog),
		o("print into the log of another app", "the line is only in the own log", otherLog),
	}
}

// logs runs `dew logs` in a terminal.
func (w *target) logs() (string, error) {
	cmd := exec.CommandContext(w.t.Context(), filepath.Join(w.Bin, "dew"), "logs", "attacker", "--recent")
	cmd.Env = append(os.Environ(), "DEW_RUN="+w.Run, "DEW_HOME="+w.attackerHome, "TERM=xterm", "NO_COLOR=1")
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: 2000})
	if err != nil {
		return "", err
	}
	defer terminal.Close()
	b, _ := io.ReadAll(terminal) // it ends with an error when the program exits
	return string(b), cmd.Wait()
}

// line waits for lines of the app's log with a mark, as a person sees them. Lines about
// requests are left out, because the URL of an attempt has its text.
func (w *target) line(mark string) ([]string, error) { return w.lines("", mark) }

// lines is line for the lines that also have another text.
func (w *target) lines(source, mark string) (lines []string, err error) {
	err = w.until(func() error {
		out, err := w.logs()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		lines = lines[:0]
		for l := range strings.SplitSeq(out, "\r\n") {
			if strings.Contains(l, mark) && strings.Contains(l, source) && (source != "" || !strings.Contains(l, "[RTR/")) {
				lines = append(lines, l)
			}
		}
		if len(lines) == 0 {
			return fmt.Errorf("no line has %s", mark)
		}
		return nil
	})
	return lines, err
}

func escapes(w *target) (string, error) {
	const text = "mark-escapes \x1b[2J\x1b]0;title\x07\x1b[1;1Hx\x9b31m\b\b\r[fake]"
	if got, err := w.try("print", "text", text); err != nil || got != "done" {
		return got, fmt.Errorf("not printed: %w", err)
	}
	lines, err := w.line("mark-escapes")
	if err != nil {
		return "", err
	}
	if len(lines) != 1 || strings.ContainsAny(lines[0], "\x1b\x07\b\r") {
		return fmt.Sprintf("%q", lines), errors.New("control characters reach the terminal")
	}
	_, seen, _ := strings.Cut(lines[0], "mark-escapes ")
	return "`" + seen + "`", nil
}

func fakePrefix(w *target) (string, error) {
	const text = "mark-prefix\n   2026-01-01T00:00:00.00+0000 [API/0] OUT mark-prefix Process has crashed\n[CELL/0] OUT mark-prefix"
	if got, err := w.try("print", "text", text); err != nil || got != "done" {
		return got, fmt.Errorf("not printed: %w", err)
	}
	var lines []string
	err := w.until(func() (err error) {
		if lines, err = w.line("mark-prefix"); err == nil && len(lines) < 3 {
			err = fmt.Errorf("%d of 3 lines", len(lines))
		}
		return err
	})
	if err != nil {
		return "", err
	}
	for _, l := range lines {
		before, _, _ := strings.Cut(l, "mark-prefix")
		if !strings.Contains(before, "[APP/PROC/WEB/0]") || strings.HasPrefix(strings.TrimSpace(l), "[") {
			return fmt.Sprintf("%q", l), errors.New("a line has another source")
		}
	}
	return fmt.Sprintf("%d lines of APP/PROC/WEB/0", len(lines)), nil
}

func accessLog(w *target) (string, error) {
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "http://"+w.Router+"/mark-access%0a%1b[2J%0d[API/0]", http.NoBody)
	if err != nil {
		return "", err
	}
	r.Host = "attacker.dew.localhost"
	r.Header.Set("User-Agent", "agent\x1b[2J\" mark-access")
	r.Header.Set("Referer", "\"mark-access\t\x1b")
	if _, err := send(r); err != nil && !strings.Contains(err.Error(), "invalid header") {
		return "", err
	}
	if _, err := raw(w.Router, "GET /mark-access%0a%1b[2J%0d[API/0]?\"x HTTP/1.1\r\nHost: attacker.dew.localhost\r\nUser-Agent: \"mark-access \\\" x\r\nConnection: close\r\n\r\n"); err != nil {
		return "", err
	}
	lines, err := w.lines("[RTR/", "mark-access")
	if err != nil {
		return "", err
	}
	for _, l := range lines {
		if !strings.Contains(l, "[RTR/") || strings.ContainsAny(l, "\x1b\r") {
			return fmt.Sprintf("%q", l), errors.New("the line is not one of the router")
		}
	}
	return "one line of RTR for each request", nil
}

func otherLog(w *target) (string, error) {
	if got, err := w.try("print", "text", "mark-other "+w.victim.app+" "+w.victim.process); err != nil || got != "done" {
		return got, fmt.Errorf("not printed: %w", err)
	}
	if _, err := w.line("mark-other"); err != nil {
		return "", err
	}
	out, all, err := w.runDew("", w.victimHome, "logs", "victim", "--recent")
	if err != nil {
		return all, err
	}
	if strings.Contains(out, "mark-other") {
		return "found", errors.New("the other log has the line")
	}
	return "not in the other log", nil
}

// firstStatus sends bytes and returns the status of the first answer. The server can stop
// reading before the end.
func firstStatus(address, request string) (int, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	go func() { _, _ = c.Write([]byte(request)) }()
	var status int
	if _, err := fmt.Fscanf(c, "HTTP/1.1 %d", &status); err != nil {
		return 0, fmt.Errorf("no answer: %w", err)
	}
	return status, nil
}
