package delivery

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// listed returns the statuses and recipients of a list, in its order.
func listed(t testing.TB, q *Queue, s Selection, limit int) (string, int) {
	t.Helper()
	ms, total, err := q.List(s, limit)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range ms {
		if m.Notice.Client != "c" || m.Notice.ID == "" {
			t.Errorf("message %s has the notice %+v", m.ID, m.Notice)
		}
		out = append(out, fmt.Sprintf("%s %s", m.Status, m.Email))
	}
	return strings.Join(out, ", "), total
}

func TestQueueListAndRetry(t *testing.T) {
	q := NewQueue(openDB(t, t.TempDir()+"/dew.db"))
	ms := enqueue(t, q, Notice{Client: "c", Campaign: "x"}, people(5)...)
	now := time.Now()
	refused := fmt.Errorf("550 no such user: %w", ErrRefused)
	settle(t, q, now, Outcome{Message: ms[0].ID, Status: Failed, Problem: refused})
	settle(t, q, now.Add(time.Second), Outcome{Message: ms[1].ID, Status: Undeliverable, Problem: ErrUndeliverable},
		Outcome{Message: ms[2].ID, Status: Retry, Problem: errors.New("421 busy")}, Outcome{Message: ms[3].ID, Status: Delivered})
	failed, waiting := Selection{Failed: true}, Selection{Waiting: true}
	for _, tt := range []struct {
		s     Selection
		limit int
		want  string
		total int
	}{
		{failed, 9, "undeliverable user-1@example.com, failed user-0@example.com", 2},
		{failed, 1, "undeliverable user-1@example.com", 2},
		{waiting, 9, "queued user-4@example.com, retry user-2@example.com", 2},
		{Selection{true, true}, 3, "undeliverable user-1@example.com, failed user-0@example.com, queued user-4@example.com", 4},
		{Selection{}, 9, "", 0},
	} {
		if got, total := listed(t, q, tt.s, tt.limit); got != tt.want || total != tt.total {
			t.Errorf("%+v, at most %d: %s (of %d), want %s (of %d)", tt.s, tt.limit, got, total, tt.want, tt.total)
		}
	}
	if n, err := q.Failed(); n != 2 || err != nil {
		t.Errorf("failed = %d, %v, want 2", n, err)
	}

	// A delivered or unknown message changes nothing, even with others in the request.
	if n, err := q.RetryNow([]string{ms[0].ID, ms[3].ID}); n != 0 || !errors.Is(err, ErrSettled) {
		t.Errorf("retry of a delivered message = %d, %v", n, err)
	}
	if n, err := q.RetryNow([]string{ms[0].ID, "none"}); n != 0 || !errors.Is(err, ErrNoMessage) {
		t.Errorf("retry of an unknown message = %d, %v", n, err)
	}
	if n, err := q.RetryNow([]string{ms[0].ID}); n != 1 || err != nil {
		t.Errorf("retry = %d, %v, want 1", n, err)
	}
	if m, err := q.Message(ms[0].ID); err != nil || m.Status != Queued || m.Attempts != 0 || m.Problem == "" {
		t.Errorf("message = %+v, %v, want it queued with its last problem", m, err)
	}
	if n, err := q.RetryAll(waiting); n != 3 || err != nil {
		t.Errorf("retry of those that wait = %d, %v, want 3", n, err)
	}
	if ids, _, err := q.Next(time.Now(), 10, nil); len(ids) != 3 || err != nil {
		t.Errorf("due = %v, %v, want 3", ids, err)
	}
	if sum, err := q.Campaign("x"); err != nil || sum.Queued != 2 || sum.Retry != 1 || sum.Failed != 0 || sum.Undeliverable != 1 || !sum.Ended.IsZero() {
		t.Errorf("campaign = %+v, %v", sum, err)
	}
	// The messages that were queued again survive the cleanup of those that ended.
	if err := q.Sweep(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got, _ := listed(t, q, Selection{true, true}, 9); strings.Count(got, ",") != 2 {
		t.Errorf("after the cleanup: %s, want three messages", got)
	}
}

// A message of an older dewd, whose entries do not fit, does not stop the cleanup.
func TestSweepAfterRetry(t *testing.T) {
	q := NewQueue(openDB(t, t.TempDir()+"/dew.db"))
	ms := enqueue(t, q, Notice{Client: "c"}, people(2)...)
	now := time.Now()
	settle(t, q, now, Outcome{Message: ms[0].ID, Status: Failed})
	for _, a := range []dueMessage{{At: now.Add(time.Second), Message: ms[0].ID}, {At: now, Message: ms[1].ID}, {At: now, Message: "gone"}} {
		if err := q.ended.Put(a.key(), a); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Sweep(now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got, total := listed(t, q, Selection{true, true}, 9); total != 1 || got != "queued user-1@example.com" {
		t.Errorf("left = %s, want the queued one", got)
	}
}

// gauge returns the value of a metric.
func gauge(t testing.TB, m *Metrics, name string) float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(m)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// While no message ends, the metric, the log and the status say so. A retry delivers the
// mails that wait at once.
func TestCourierStandsStill(t *testing.T) {
	inCourierWorld(t, func(w *courierWorld) {
		w.stop()
		var log bytes.Buffer
		w.logger = slog.New(slog.NewTextHandler(&log, nil))
		w.start()
		w.mailer.fail(errors.New("421 4.3.2 shutting down"))
		began := time.Now()
		ms := enqueue(t, w.q, Notice{Client: "c"}, people(3)...)
		w.pass(4 * time.Minute)
		if !w.current.StalledSince().IsZero() || gauge(t, w.metrics, "dew_notify_queue_stalled") != 0 {
			t.Error("the queue stands still too early")
		}
		w.pass(3 * time.Minute)
		if since := w.current.StalledSince(); since.Before(began) || since.Sub(began) > time.Minute || gauge(t, w.metrics, "dew_notify_queue_stalled") != 1 {
			t.Errorf("the queue stands still since %s, want %s", since, began)
		}
		if text := log.String(); !strings.Contains(text, "the queue of mails stands still; check the mail server") || !strings.Contains(text, "421 4.3.2 shutting down") {
			t.Errorf("the log says nothing of it: %s", text)
		}
		w.mailer.fail(nil)
		if n, err := w.q.RetryAll(Selection{Waiting: true}); n != len(ms) || err != nil {
			t.Errorf("retried = %d, %v, want %d", n, err, len(ms))
		}
		w.pass(time.Second)
		for _, m := range ms {
			w.want(m.ID, Delivered)
		}
		if !w.current.StalledSince().IsZero() {
			t.Error("the queue still stands still after a delivery")
		}
		w.pass(time.Minute)
		if gauge(t, w.metrics, "dew_notify_queue_stalled") != 0 {
			t.Error("the metric still says that the queue stands still")
		}
	})
}
