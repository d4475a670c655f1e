package smoke

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
)

const checkInterval = 300 * time.Millisecond

// watch finds crashes that no check caused.
type watch struct {
	client *client.Client
	apps   []subject

	mu    sync.Mutex
	known map[string]bool // crashes that a check caused; guarded by mu
}

func newWatch(daemon *client.Client, apps []subject) *watch {
	return &watch{client: daemon, apps: apps, known: map[string]bool{}}
}

func crashKey(c v3.Crash) string { return c.Instance + c.CrashedAt.String() }

// accept records that a check caused a crash.
func (w *watch) accept(c v3.Crash) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known[crashKey(c)] = true
}

func (w *watch) expected(c v3.Crash) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known[crashKey(c)]
}

// check returns the first crash that no check caused. It ignores a daemon that does not
// respond: other steps report that.
func (w *watch) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	for _, a := range w.apps {
		crashes, err := w.client.Processes().Crashes(ctx, a.guid)
		if err != nil {
			continue
		}
		for i := len(crashes) - 1; i >= 0; i-- { // the oldest first, because it caused the others
			if !w.expected(crashes[i]) {
				return crashed(a, crashes[i])
			}
		}
	}
	return nil
}

// guard returns a context that is cancelled when an app crashes.
func (w *watch) guard(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(checkInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := w.check(ctx); err != nil && ctx.Err() == nil {
				cancel(err)
				return
			}
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
	}
}

// crashed returns the failure for an app that crashed.
func crashed(a subject, c v3.Crash) *Failure {
	f := &Failure{
		Status: StatusCrashed, Err: fmt.Errorf("app %s crashed: %s", a.name, cmp.Or(c.Verdict.Sentence, c.Description)),
		Todo: cmp.Or(c.Verdict.Advice, "see the log lines above; to inspect the crash, run dew smoke --keep, then dew why "+a.name),
	}
	if c.First.OutOfMemory {
		f.Status = StatusMemory
	}
	return f
}
