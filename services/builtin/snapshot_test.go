//go:build integration

package builtin

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/dewrun/dew/services"
)

// A snapshot of a busy server is consistent. It has no partial transaction, and all
// transactions that were confirmed before it.
func TestSnapshotUnderLoad(t *testing.T) {
	c := engineTests[0]
	w := newWorld(t)
	w.boot()
	guid := guidOf(c)
	w.succeed(request(services.Create, guid, c.engine, smallPlan, c.parameters))
	a := w.bind(c, "binding-a")
	w.want(c, a, "CREATE TABLE p (n int); CREATE TABLE q (n int)", "")

	ctx, enough := context.WithCancel(w.ctx())
	var writers sync.WaitGroup
	for range 3 {
		writers.Go(func() { write(ctx, a.URI) })
	}
	w.eventually("it works", guid, func() error {
		if out, err := w.try(c, a, "SELECT count(*) > 200 FROM p"); err != nil || out != "t" {
			return fmt.Errorf("%s, %w", out, err)
		}
		return nil
	})
	before, err := w.try(c, a, "SELECT count(*) FROM p")
	w.must(err)
	s, err := w.broker.Snapshot(w.ctx(), guid)
	w.must(err)
	then, err := w.try(c, a, "SELECT count(*) FROM p") // at least as many rows as the snapshot has
	w.must(err)
	w.eventually("it goes on", guid, func() error {
		out, err := w.try(c, a, "SELECT count(*) > 200 + "+then+" FROM p")
		if err != nil || out != "t" {
			return fmt.Errorf("%s, %w", out, err)
		}
		return nil
	})
	after, err := w.try(c, a, "SELECT count(*) FROM p")
	w.must(err)
	enough()
	writers.Wait()
	w.must(w.broker.Restore(w.ctx(), guid, s.ID))
	w.want(c, a, "SELECT (SELECT count(*) FROM p) = (SELECT count(*) FROM q)", "t")
	w.want(c, a, "SELECT count(*) >= "+before+" AND count(*) < "+after+" FROM p", "t")
}

// write runs many transactions with one client after the other until ctx is cancelled.
func write(ctx context.Context, uri string) {
	text := strings.Repeat("BEGIN; INSERT INTO p VALUES (1); INSERT INTO q VALUES (1); COMMIT;\n", 500)
	for ctx.Err() == nil {
		cmd := exec.CommandContext(ctx, "psql", "-X", "-q", uri)
		cmd.Stdin = strings.NewReader(text)
		_ = cmd.Run() // killed when ctx is cancelled
	}
}
