package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

// reactor collects its input and calls a function once when a text contains the words.
type reactor struct {
	words string
	do    func()

	mu   sync.Mutex
	text bytes.Buffer
}

func (r *reactor) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.do != nil && bytes.Contains(b, []byte(r.words)) {
		r.do()
		r.do = nil
	}
	return r.text.Write(b)
}

func (r *reactor) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// pushTo pushes the app with a console that reports waits at once.
func pushTo(ctx context.Context, t *testing.T, d *fakeDaemon, talk io.Writer) error {
	t.Helper()
	c := &console.Console{Out: io.Discard, Err: talk, In: strings.NewReader(""), Quiet: time.Millisecond}
	return newApp("dev", c).RunContext(ctx, []string{"dew", "--run", d.run, "push", "shop", "--no-manifest", "-p", folder(t, map[string]string{"a": "a"})})
}

// A second push waits for the first one and says so. It does not show the lines of the
// first one.
func TestPushWaitsForAnother(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.ahead = []v3.Build{{GUID: "build-0", State: v3.BuildStaging}}
	talk := &reactor{words: "Waiting for another push that is staging app shop… ", do: func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.ahead = nil
		d.lateLines = []string{"-----> this build"}
	}}
	d.say("STG", "0", "-----> the other build")
	d.lines[0].Timestamp = time.Now().Add(time.Minute).UnixNano() // after the start of the push
	if err := pushTo(t.Context(), t, d, talk); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(talk.String(), "   -----> the other build") || !strings.Contains(talk.String(), "   -----> this build") {
		t.Errorf("other lines are shown:\n%s", talk)
	}
}

// Ctrl-C stops the push but not the staging, and the push says so.
func TestPushInterrupted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(d *fakeDaemon)
		at      string // text after which the test interrupts
		want    string
	}{
		"staging": {func(d *fakeDaemon) { d.outcome.State = v3.BuildStaging }, "Staging app shop… ", "Interrupted, but dewd continues staging app shop\n     To follow it: dew logs shop"},
		"queued":  {func(d *fakeDaemon) { d.ahead = []v3.Build{{GUID: "build-0", State: v3.BuildStaging}} }, "Waiting for another push", "Interrupted, but dewd continues staging app shop"},
		"starting": {func(d *fakeDaemon) {
			d.stats = []v3.InstanceStats{{State: v3.StateStarting, Details: new("it boots")}}
		}, "it boots", "Interrupted, but dewd continues starting app shop\n     To see its status: dew app shop"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t)
			c.prepare(d)
			ctx, cancel := context.WithCancelCause(t.Context())
			talk := &reactor{words: c.at, do: func() { cancel(context.Canceled) }}
			err := pushTo(ctx, t, d, talk)
			if !errors.Is(err, context.Canceled) || !strings.Contains(talk.String(), c.want) {
				t.Errorf("push = %v, and says\n%s", err, talk)
			}
		})
	}
}
