package builtin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dewrun/dew/runtime"
)

const (
	maxOutput        = 64 << 10         // bytes of a client's output that are read
	statementTimeout = 30 * time.Second // for an administrator's statements
	startTimeout     = time.Minute      // the time that statements wait for a starting server
	firstPoll        = 50 * time.Millisecond
	maxPoll          = time.Second
)

// scriptCommand returns the shell command that runs the script of the engine. The words
// are constants, so they need no quoting.
func scriptCommand(words ...string) string {
	return "exec sh " + confDir + "/" + scriptFile + " " + strings.Join(words, " ")
}

// session runs the script in the container of the server and returns its output. The
// input is passed on standard input, so that it does not appear in process lists.
func (b *servers) session(ctx context.Context, guid, input string, words ...string) (string, error) {
	s, err := b.c.Host.Exec(ctx, runtime.ExecTarget{Process: guid},
		runtime.ExecSpec{Kind: runtime.ExecCommand, Command: scriptCommand(words...)})
	if err != nil {
		return "", err
	}
	defer func() {
		if err := s.Close(); err != nil {
			b.c.Logger.Warn("cannot close a session of a database", "service_instance", guid, "err", err)
		}
	}()
	return runSession(ctx, s, input)
}

// runSession sends the input to a session and reads its output until it exits.
func runSession(ctx context.Context, s runtime.Session, input string) (string, error) {
	st := s.Streams()
	var out, stderr string
	var g errgroup.Group
	g.Go(func() error {
		_, err := io.WriteString(st.In, input)
		// A client that exits before it has read everything reports the reason itself.
		_ = errors.Join(err, st.In.Close())
		return nil
	})
	g.Go(func() (err error) { out, err = readBounded(st.Out); return err })
	g.Go(func() (err error) { stderr, err = readBounded(st.Err); return err })
	end, err := s.Wait(ctx)
	if err != nil {
		return "", err
	}
	if err := g.Wait(); err != nil {
		return "", fmt.Errorf("cannot read the response of the server: %w", err)
	}
	if end.Code != 0 {
		return out, errors.New(cmp.Or(oneLine(stderr), oneLine(out), end.Why, fmt.Sprintf("the client exited with status %d", end.Code)))
	}
	return out, nil
}

// readBounded reads to the end and returns the first maxOutput bytes.
func readBounded(r io.Reader) (string, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxOutput))
	if err == nil {
		_, err = io.Copy(io.Discard, r)
	}
	return string(b), err
}

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 500 {
		s = s[:500] + " …"
	}
	return s
}

// statements passes statements to the administrator's client.
func (b *servers) statements(ctx context.Context, rec record, text string) (string, error) {
	e, ok := engineOf(rec.Engine)
	if !ok {
		return "", fmt.Errorf("this dewd does not support the service %s", rec.Engine)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, statementTimeout, errors.New("the server did not respond in time"))
	defer cancel()
	out, err := b.session(ctx, rec.GUID, text, append([]string{"client"}, e.client...)...)
	if err == nil && e.checkOutput != nil {
		err = e.checkOutput(out)
	}
	return out, err
}

// runStatements runs statements on a server. It waits if the server is just starting.
func (b *servers) runStatements(ctx context.Context, rec record, text string) error {
	if err := b.waitReady(ctx, rec, startTimeout); err != nil {
		return err
	}
	if text == "" {
		return nil
	}
	_, err := b.statements(ctx, rec, text)
	return err
}

// checkLogin checks whether the administrator can log in.
func (b *servers) checkLogin(ctx context.Context, rec record) error {
	e, ok := engineOf(rec.Engine)
	if !ok {
		return fmt.Errorf("this dewd does not support the service %s", rec.Engine)
	}
	out, err := b.statements(ctx, rec, e.ping)
	if err == nil && strings.TrimSpace(out) != e.pong {
		err = fmt.Errorf("the server returned %q", oneLine(out))
	}
	return err
}

// tooManyCrashes is the number of crashes in a row after which to stop waiting. If the
// script itself gave up, the first crash is enough.
const tooManyCrashes = 3

// waitReady waits until the server runs with the record's version, is healthy, and the
// administrator can log in.
func (b *servers) waitReady(ctx context.Context, rec record, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	last := errors.New("the server has not started yet")
	for interval := firstPoll; ; interval = min(2*interval, maxPoll) {
		st, found := b.status(rec)
		switch {
		case found && st.State == runtime.Running:
			if last = b.checkLogin(ctx, rec); last == nil {
				return nil
			}
		case found && st.State == runtime.Crashed:
			last = errors.New(b.failureReason(rec, st))
			if st.GivenUp || st.CrashCount >= tooManyCrashes || b.scriptError(rec.GUID) != "" {
				return last
			}
		}
		if !wait(ctx, interval) {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("the server is not ready after %s: %w", limit, last)
			}
			return context.Cause(ctx)
		}
	}
}

// status returns the instance that runs with the record's version.
func (b *servers) status(rec record) (runtime.Status, bool) {
	sts := b.c.Host.Instances(rec.GUID)
	i := slices.IndexFunc(sts, func(st runtime.Status) bool { return st.Version == rec.Version })
	if i < 0 {
		return runtime.Status{}, false
	}
	return sts[i], true
}

// failureReason returns the reason why a server does not run: the script's message, or
// how it exited.
func (b *servers) failureReason(rec record, st runtime.Status) string {
	reason := cmp.Or(b.scriptError(rec.GUID), st.Details, "the server exited")
	if e, ok := engineOf(rec.Engine); ok && b.inCluster() && b.c.LastError != nil {
		if line := oneLine(b.c.LastError(rec.GUID, e.source())); line != "" {
			reason += ": " + line
		}
	}
	free, err := b.free()
	if err == nil && !b.inCluster() && (free < b.c.Reserve || strings.Contains(strings.ToLower(reason), "no space left")) {
		reason += fmt.Sprintf(" (%d MB are free on the disk of %s; free some disk space)", free>>20, b.c.Dir)
	}
	return reason
}

// waitStopped waits until the server has stopped completely.
func (b *servers) waitStopped(ctx context.Context, guid string) error {
	for interval := firstPoll; ; interval = min(2*interval, maxPoll) {
		if len(b.c.Host.Instances(guid)) == 0 {
			return nil
		}
		if !wait(ctx, interval) {
			return fmt.Errorf("cannot stop the server: %w", context.Cause(ctx))
		}
	}
}

// wait waits for d. It returns false if ctx is cancelled first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Shell returns an interactive session with the server as its administrator. The caller
// opens it with Exec, with or without a terminal.
func (b *Broker) Shell(instance string) (runtime.ExecTarget, runtime.ExecSpec, error) {
	rec, err := b.get(instance)
	if err != nil {
		return runtime.ExecTarget{}, runtime.ExecSpec{}, err
	}
	e, ok := engineOf(rec.Engine)
	if !ok || !rec.usable() {
		return runtime.ExecTarget{}, runtime.ExecSpec{}, fmt.Errorf("service instance %s has no server", instance)
	}
	return runtime.ExecTarget{Process: rec.GUID},
		runtime.ExecSpec{Kind: runtime.ExecCommand, Command: scriptCommand(append([]string{"shell"}, e.shell(rec)...)...)}, nil
}
