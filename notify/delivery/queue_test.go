package delivery

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

func openDB(t testing.TB, path string) *store.DB {
	t.Helper()
	return testkit.Open(store.Open(path, store.Options{NoSync: true}))(t)
}

func newQueue(t testing.TB) *Queue {
	t.Helper()
	return NewQueue(openDB(t, filepath.Join(t.TempDir(), "dew.db")))
}

func people(n int) (ps []Person) {
	for i := range n {
		ps = append(ps, Person{GUID: fmt.Sprintf("user-%d", i), Email: fmt.Sprintf("user-%d@example.com", i)})
	}
	return ps
}

func enqueue(t testing.TB, q *Queue, n Notice, to ...Person) []Message {
	t.Helper()
	ms, err := q.Enqueue(t.Context(), n, to)
	if err != nil {
		t.Fatal(err)
	}
	return ms
}

func settle(t testing.TB, q *Queue, now time.Time, os ...Outcome) {
	t.Helper()
	if err := q.Settle(os, now); err != nil {
		t.Fatal(err)
	}
}

func status(t testing.TB, q *Queue, id string) Status {
	t.Helper()
	m, err := q.Message(id)
	if err != nil {
		t.Fatal(err)
	}
	return m.Status
}

// A person who is named twice, by guid or by address, gets one message.
func TestEnqueueOncePerPerson(t *testing.T) {
	q := newQueue(t)
	ms := enqueue(t, q, Notice{Client: "c"},
		Person{GUID: "a", Email: "x@example.com"}, Person{GUID: "b", Email: "x@example.com"}, Person{GUID: "a"}, Person{Email: "x@example.com"}, Person{Email: "x@example.com"})
	var got []string
	for _, m := range ms {
		got = append(got, m.Recipient())
		if m.Status != Queued || status(t, q, m.ID) != Queued {
			t.Errorf("message to %s is %s, want queued", m.Recipient(), m.Status)
		}
	}
	if want := []string{"a", "b", "x@example.com"}; !slices.Equal(got, want) {
		t.Errorf("recipients = %q, want %q", got, want)
	}
	if ms := enqueue(t, q, Notice{Client: "c"}); len(ms) != 0 {
		t.Errorf("messages to nobody = %v", ms)
	}
	if n, err := q.Waiting(); err != nil || n != 3 {
		t.Errorf("Waiting = %d, %v; want 3", n, err)
	}
}

// The queue survives when the file is closed and opened again.
func TestQueueSurvives(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dew.db")
	db := openDB(t, path)
	ms := enqueue(t, NewQueue(db), Notice{Client: "c", Text: "hello"}, people(3)...)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	q := NewQueue(openDB(t, path))
	ids, later, err := q.Next(time.Now(), 10, nil)
	if err != nil || len(ids) != 3 || !later.IsZero() {
		t.Errorf("next = %q, %v, %v; want 3 ids", ids, later, err)
	}
	n, err := q.notices.Get(ms[0].Notice)
	if err != nil || n.Text != "hello" {
		t.Errorf("notice = %+v, %v", n, err)
	}
}

func TestNext(t *testing.T) {
	q := newQueue(t)
	ms := enqueue(t, q, Notice{Client: "c"}, people(5)...)
	now := time.Now()
	settle(t, q, now, Outcome{Message: ms[0].ID, Status: Retry, Problem: errors.New("no")})
	ids, _, err := q.Next(now, 2, nil)
	if err != nil || len(ids) != 2 || slices.Contains(ids, ms[0].ID) {
		t.Fatalf("next = %q, %v; want 2 others than %s", ids, err, ms[0].ID)
	}
	underWay := map[string]bool{ids[0]: true, ids[1]: true}
	more, _, err := q.Next(now, 10, underWay)
	if err != nil || len(more) != 2 || underWay[more[0]] || underWay[more[1]] {
		t.Errorf("next = %q, %v; want the other 2 than %q", more, err, ids)
	}
	underWay[more[0]], underWay[more[1]] = true, true
	none, later, err := q.Next(now, 10, underWay)
	if err != nil || len(none) != 0 || !later.Equal(now.Add(time.Minute)) {
		t.Errorf("next = %q, %v, %v; want nothing before a minute has passed", none, later, err)
	}
}

// Retries follow after 1, 2, 4, ... 512 minutes: ten times and no more.
func TestRetries(t *testing.T) {
	q := newQueue(t)
	id := enqueue(t, q, Notice{Client: "c"}, people(1)...)[0].ID
	now := time.Now()
	var waits []time.Duration
	for range 11 {
		settle(t, q, now, Outcome{Message: id, Status: Retry, Problem: errors.New("no")})
		m, err := q.Message(id)
		if err != nil {
			t.Fatal(err)
		}
		if m.Status == Failed {
			break
		}
		if m.Status != Retry || m.Problem != "no" {
			t.Errorf("message = %+v", m)
		}
		waits = append(waits, m.Due.Sub(now))
		now = m.Due
	}
	var want []time.Duration
	for i := range 10 {
		want = append(want, time.Minute<<i)
	}
	if diff := cmp.Diff(waits, want); diff != "" {
		t.Errorf("waits (-got +want):\n%s", diff)
	}
	if got := status(t, q, id); got != Failed {
		t.Errorf("status at the end = %s, want failed", got)
	}
	if ids, later, err := q.Next(now.Add(1000*time.Hour), 10, nil); len(ids) != 0 || !later.IsZero() || err != nil {
		t.Errorf("next after the end = %q, %v, %v", ids, later, err)
	}
}

// The counts of a campaign match the states of its messages, over all its notices.
func TestCampaignTally(t *testing.T) {
	q := newQueue(t)
	a := enqueue(t, q, Notice{Client: "c", Campaign: "x", Version: V2}, people(3)...)
	b := enqueue(t, q, Notice{Client: "c", Campaign: "x", Version: V2}, Person{Email: "e@example.com"})
	enqueue(t, q, Notice{Client: "c", Campaign: "y"}, people(1)...)
	now := time.Now()
	settle(t, q, now,
		Outcome{Message: a[0].ID, Status: Delivered}, Outcome{Message: a[1].ID, Status: Undeliverable},
		Outcome{Message: a[2].ID, Status: Retry, Problem: errors.New("no")}, Outcome{Message: b[0].ID, Status: Delivered})
	got, err := q.Campaign("x")
	if err != nil {
		t.Fatal(err)
	}
	want := Tally{Total: 4, Retry: 1, Delivered: 2, Undeliverable: 1, Started: a[0].Updated}
	if diff := cmp.Diff(got, want, cmp.Comparer(time.Time.Equal)); diff != "" {
		t.Errorf("tally (-got +want):\n%s", diff)
	}
	settle(t, q, now.Add(time.Minute), Outcome{Message: a[2].ID, Status: Delivered})
	if got, err = q.Campaign("x"); err != nil || got.Delivered != 3 || got.Retry != 0 || !got.Ended.Equal(now.Add(time.Minute)) {
		t.Errorf("tally = %+v, %v; want 3 delivered and an end", got, err)
	}
	if none, err := q.Campaign("nobody's"); err != nil || none != (Tally{}) {
		t.Errorf("tally of no campaign = %+v, %v", none, err)
	}
}

// A message is dropped a day after it ended. Its notice is dropped with the last
// message. The counts of a campaign stay.
func TestSweep(t *testing.T) {
	q := newQueue(t)
	ms := enqueue(t, q, Notice{Client: "c", Text: "plain"}, people(2)...)
	cs := enqueue(t, q, Notice{Client: "c", Campaign: "x"}, people(1)...)
	end := time.Now()
	settle(t, q, end, Outcome{Message: ms[0].ID, Status: Delivered}, Outcome{Message: cs[0].ID, Status: Delivered})
	settle(t, q, end.Add(time.Hour), Outcome{Message: ms[1].ID, Status: Failed})

	if err := q.Sweep(end); err != nil { // nothing is old enough
		t.Fatal(err)
	}
	if got := status(t, q, ms[0].ID); got != Delivered {
		t.Errorf("status = %s", got)
	}
	if err := q.Sweep(end.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Message(ms[0].ID); !errors.Is(err, ErrNoMessage) {
		t.Errorf("Message = %v, want ErrNoMessage", err)
	}
	if _, err := q.notices.Get(ms[0].Notice); err != nil {
		t.Errorf("the notice of a message that is kept is gone: %v", err)
	}
	if err := q.Sweep(end.Add(2 * time.Hour)); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{ms[0].Notice, cs[0].Notice} {
		if _, err := q.notices.Get(gone); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("notice %s = %v, want it gone", gone, err)
		}
	}
	if tallies, err := q.tallies.All(); err != nil || len(tallies) != 1 {
		t.Errorf("tallies = %+v, %v; want the campaign's alone", tallies, err)
	}
	if got, err := q.Campaign("x"); err != nil || got.Delivered != 1 {
		t.Errorf("tally = %+v, %v", got, err)
	}
}

// Sweep drops more messages than fit into one transaction.
func TestSweepMany(t *testing.T) {
	q := newQueue(t)
	var os []Outcome
	for _, m := range enqueue(t, q, Notice{Client: "c"}, people(sweepBatch+1)...) {
		os = append(os, Outcome{Message: m.ID, Status: Delivered})
	}
	now := time.Now()
	settle(t, q, now, os...)
	if err := q.Sweep(now.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if left, err := q.messages.All(); err != nil || len(left) != 0 {
		t.Errorf("messages left = %d, %v", len(left), err)
	}
}

func TestSendersTo(t *testing.T) {
	q := newQueue(t)
	for _, client := range []string{"b", "a", "b"} {
		m := enqueue(t, q, Notice{Client: client}, Person{GUID: "user"})[0]
		settle(t, q, time.Now(), Outcome{Message: m.ID, Client: client, Status: Undeliverable})
	}
	m := enqueue(t, q, Notice{Client: "c"}, Person{GUID: "user-2"})[0]
	settle(t, q, time.Now(), Outcome{Message: m.ID, Client: "c", Status: Delivered})
	if got, err := q.SendersTo("user"); err != nil || !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("SendersTo = %q, %v; want a and b", got, err)
	}
	if got, err := q.SendersTo("nobody"); err != nil || len(got) != 0 {
		t.Errorf("SendersTo nobody = %q, %v", got, err)
	}
}
