package crashmail

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/notify"
	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

// placeDirectory returns the same users for every space, and separate administrators.
type placeDirectory struct {
	delivery.Directory
	people, admins []delivery.Person
}

func (d placeDirectory) InSpace(context.Context, string) (delivery.Audience, error) {
	return delivery.Audience{Space: delivery.Place{Name: "dev"}, People: each(d.people)}, nil
}

func (d placeDirectory) WithScope(_ context.Context, scope string) (delivery.Audience, error) {
	if scope != auth.ScopeAdmin {
		return delivery.Audience{People: each(nil)}, nil
	}
	return delivery.Audience{People: each(d.admins)}, nil
}

func each(people []delivery.Person) func(yield func(delivery.Person, error) bool) {
	return func(yield func(delivery.Person, error) bool) {
		for _, p := range people {
			if !yield(p, nil) {
				return
			}
		}
	}
}

func people(n int) (ps []delivery.Person) {
	for i := range n {
		ps = append(ps, delivery.Person{GUID: fmt.Sprintf("user-%d", i), Email: fmt.Sprintf("user-%d@example.com", i)})
	}
	return ps
}

// If no user has a role in the space, the administrators are notified.
func TestCrashesAreReportedToAdmins(t *testing.T) {
	c, q, a := newCrashes(t)
	c.directory = placeDirectory{admins: people(3)}
	if err := c.Set(a.GUID, true); err != nil {
		t.Fatal(err)
	}
	crashed(t, c, Crash{App: a.GUID, Instance: "i-1", Type: "web", Description: "APP/PROC/WEB: Exited with status 1", Count: 1, At: time.Now()})
	if n := waitingMessages(t, q); n != 3 {
		t.Errorf("messages = %d, want one for each of 3 administrators", n)
	}
}

func newCrashes(t testing.TB) (*Crashes, *delivery.Queue, app.App) {
	t.Helper()
	db := testkit.Open(store.Open(filepath.Join(t.TempDir(), "dew.db"), store.Options{NoSync: true}))(t)
	reg := registry.New(db)
	space, err := reg.EnsureDefaults("dew.localhost")
	if err != nil {
		t.Fatal(err)
	}
	a, err := reg.PutApp(app.App{Name: "shop", Space: space.GUID})
	if err != nil {
		t.Fatal(err)
	}
	q := delivery.NewQueue(db)
	return New(db, reg, placeDirectory{people: people(2)}, q, slog.New(slog.DiscardHandler)), q, a
}

func crashed(t testing.TB, c *Crashes, crash Crash) {
	t.Helper()
	if err := c.notify(t.Context(), crash); err != nil {
		t.Fatal(err)
	}
}

func waitingMessages(t testing.TB, q *delivery.Queue) int {
	t.Helper()
	n, err := q.Waiting()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// If enabled, each crash is reported once to all users of the space.
func TestCrashesAreReported(t *testing.T) {
	c, q, a := newCrashes(t)
	crash := Crash{App: a.GUID, Instance: "i-1", Type: "web", Description: "APP/PROC/WEB: Exited with status 1", Count: 1, At: time.Now()}
	crashed(t, c, crash)
	if n := waitingMessages(t, q); n != 0 {
		t.Errorf("messages of an app that nobody watches = %d", n)
	}
	for range 2 { // enabling twice changes nothing
		if err := c.Set(a.GUID, true); err != nil {
			t.Fatal(err)
		}
	}
	crashed(t, c, crash) // from before notifications were enabled
	if n := waitingMessages(t, q); n != 0 {
		t.Errorf("messages about an old crash = %d", n)
	}
	crash.At = time.Now()
	crashed(t, c, crash)
	crashed(t, c, crash) // the completed record
	if n := waitingMessages(t, q); n != 2 {
		t.Errorf("messages = %d, want one for each of 2", n)
	}
	ns, err := store.In[delivery.Notice](c.db, "notify notices").All()
	if err != nil || len(ns) != 1 {
		t.Fatalf("notices = %v, %v", ns, err)
	}
	n := ns[0]
	if n.Client != notify.PlatformClient || n.Kind != KindCrash || n.Subject != "App shop crashed" || n.Space.Name != "dev" ||
		!strings.Contains(n.Text, "APP/PROC/WEB: Exited with status 1") || !strings.Contains(n.Text, "dew starts another instance immediately") {
		t.Errorf("notice = %+v", n)
	}
	if err := c.Set(a.GUID, false); err != nil {
		t.Fatal(err)
	}
	if on, err := c.Enabled(a.GUID); err != nil || on {
		t.Errorf("Enabled = %t, %v", on, err)
	}
	crash.Instance = "i-2"
	crashed(t, c, crash)
	if n := waitingMessages(t, q); n != 2 {
		t.Errorf("messages after switching off = %d, want still 2", n)
	}
}

func TestCrashLoopsAreReportedRarely(t *testing.T) {
	var reported []int
	for n := 1; n <= 40; n++ {
		if shouldNotify(Crash{Count: n}) {
			reported = append(reported, n)
		}
	}
	if len(reported) != 6 || reported[5] != 32 {
		t.Errorf("told = %v, want 1 2 4 8 16 32", reported)
	}
	if !shouldNotify(Crash{Count: 200, GivenUp: true}) {
		t.Error("the end is not told")
	}
}

// A deleted app is no longer watched.
func TestCrashOfADeletedApp(t *testing.T) {
	c, _, _ := newCrashes(t)
	if err := c.Set("gone", true); err != nil {
		t.Fatal(err)
	}
	crashed(t, c, Crash{App: "gone", Count: 1, At: time.Now()})
	if on, err := c.Enabled("gone"); err != nil || on {
		t.Errorf("Enabled = %t, %v", on, err)
	}
}

func TestOrdinal(t *testing.T) {
	for n, want := range map[int]string{1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th", 21: "21st", 102: "102nd", 111: "111th"} {
		if got := ordinal(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
	if text := crashNotice(app.App{Name: "shop"}, Crash{Count: 2}).Text; !strings.Contains(text, "for the 2nd time in a row") {
		t.Errorf("the mail says %q", text)
	}
}
