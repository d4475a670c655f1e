package inbox

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/notify/delivery"
)

func newInbox(t testing.TB) *Inbox {
	t.Helper()
	return New(openDB(t, filepath.Join(t.TempDir(), "dew.db")))
}

func storeMail(t testing.TB, i *Inbox, ms ...delivery.Mail) {
	t.Helper()
	for _, m := range ms {
		if err := i.Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
}

func ids(ks []StoredMail) (out []string) {
	for _, k := range ks {
		out = append(out, k.ID)
	}
	return out
}

func TestInboxStores(t *testing.T) {
	i := newInbox(t)
	storeMail(t, i, sampleMail(1), sampleMail(2), sampleMail(1)) // the first one is sent twice, which can happen
	ks, err := i.List(Filter{}, 0)
	if err != nil || !slices.Equal(ids(ks), []string{"id-2", "id-1"}) {
		t.Fatalf("List = %v, %v; want the newest first, each once", ids(ks), err)
	}
	if ks[0].Text != "" || ks[0].HTML != "" || ks[0].Size != len("text<p>html</p>") || ks[0].Seq != 2 {
		t.Errorf("head = %+v, want no bodies", ks[0])
	}
	k, err := i.Get("id-1")
	if err != nil || k.Mail != sampleMail(1) {
		t.Errorf("Get = %+v, %v", k, err)
	}
	if _, err := i.Get("id-3"); !errors.Is(err, ErrNoMail) {
		t.Errorf("Get = %v, want ErrNoMail", err)
	}
	bad := sampleMail(4)
	bad.To = "nobody"
	if err := i.Send(t.Context(), bad); !errors.Is(err, delivery.ErrUndeliverable) {
		t.Errorf("Send = %v, want ErrUndeliverable", err)
	}
}

func TestInboxFilter(t *testing.T) {
	i := newInbox(t)
	a, b, c := sampleMail(1), sampleMail(2), sampleMail(3)
	a.To, a.User = "Ann@Example.com", "guid-a"
	b.Kind, c.Subject = "alarm", "The house is on fire"
	storeMail(t, i, a, b, c)
	for _, tt := range []struct {
		name  string
		f     Filter
		limit int
		want  []string
	}{
		{"all", Filter{}, 0, []string{"id-3", "id-2", "id-1"}},
		{"some", Filter{}, 2, []string{"id-3", "id-2"}},
		{"address", Filter{To: "ann@example.com"}, 0, []string{"id-1"}},
		{"guid", Filter{To: "guid-a"}, 0, []string{"id-1"}},
		{"kind", Filter{Kind: "alarm"}, 0, []string{"id-2"}},
		{"subject", Filter{Subject: "on fire"}, 0, []string{"id-3"}},
		{"after", Filter{After: 2}, 0, []string{"id-3"}},
		{"both", Filter{Kind: "alarm", Subject: "fire"}, 0, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := i.List(tt.f, tt.limit); err != nil || !slices.Equal(ids(got), tt.want) {
				t.Errorf("List = %v, %v; want %v", ids(got), err, tt.want)
			}
		})
	}
}

// The oldest mails are dropped, by number and by size. The numbering continues, even
// after a restart.
func TestInboxBounds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dew.db")
	db := openDB(t, path)
	i := New(db)
	i.maxMails = 3
	for n := range 5 {
		storeMail(t, i, sampleMail(n))
	}
	if ks, err := i.List(Filter{}, 0); err != nil || !slices.Equal(ids(ks), []string{"id-4", "id-3", "id-2"}) {
		t.Errorf("List = %v, %v", ids(ks), err)
	}
	if bodies, err := i.bodies.All(); err != nil || len(bodies) != 3 {
		t.Errorf("bodies = %d, %v; want 3", len(bodies), err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	i = New(openDB(t, path))
	i.maxBytes = int64(2 * len("text<p>html</p>"))
	storeMail(t, i, sampleMail(5))
	ks, err := i.List(Filter{}, 0)
	if err != nil || !slices.Equal(ids(ks), []string{"id-5", "id-4"}) || ks[0].Seq != 6 {
		t.Errorf("List = %+v, %v; want the last two, number 6 first", ks, err)
	}
	huge := sampleMail(6)
	huge.Text = fmt.Sprintf("%1000d", 1)
	storeMail(t, i, huge)
	if ks, err := i.List(Filter{}, 0); err != nil || !slices.Equal(ids(ks), []string{"id-6"}) {
		t.Errorf("List = %v, %v; want the last one, however large", ids(ks), err)
	}
}

func TestInboxManyAtOnce(t *testing.T) {
	i := newInbox(t)
	var senders sync.WaitGroup
	for n := range 50 {
		senders.Go(func() { storeMail(t, i, sampleMail(n)) })
	}
	senders.Wait()
	ks, err := i.List(Filter{}, 0)
	if err != nil || len(ks) != 50 || ks[0].Seq != 50 {
		t.Errorf("mails = %d, %v; want 50", len(ks), err)
	}
}

func TestInboxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInbox(t)
		storeMail(t, i, sampleMail(1), sampleMail(2))
		if k, err := i.Wait(t.Context(), Filter{}, time.Minute); err != nil || k.ID != "id-1" || k.Text != "text" {
			t.Errorf("Wait = %+v, %v; want the oldest, in full", k, err)
		}
		began := time.Now()
		if _, err := i.Wait(t.Context(), Filter{To: "nobody@example.com"}, time.Minute); !errors.Is(err, ErrNoMail) || time.Since(began) != time.Minute {
			t.Errorf("Wait = %v after %s, want ErrNoMail after a minute", err, time.Since(began))
		}
		time.AfterFunc(10*time.Second, func() { storeMail(t, i, sampleMail(3), sampleMail(4)) })
		if k, err := i.Wait(t.Context(), Filter{To: "user-4@example.com"}, time.Minute); err != nil || k.ID != "id-4" {
			t.Errorf("Wait = %+v, %v", k, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := i.Wait(ctx, Filter{After: 4}, time.Minute); !errors.Is(err, context.Canceled) {
			t.Errorf("Wait = %v, want the end of the context", err)
		}
	})
}
