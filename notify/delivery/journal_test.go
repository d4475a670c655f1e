package delivery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestParseJournal(t *testing.T) {
	for _, tt := range []struct {
		name, content string
		want          map[string]handover
	}{
		{"empty", "", nil},
		{"handed over", "data a\n", map[string]handover{"a": handedOver}},
		{"accepted", "data a\ndata b\naccepted a\n", map[string]handover{"a": accepted, "b": handedOver}},
		{"accepted stays", "accepted a\ndata a\n", map[string]handover{"a": accepted}},
		{"settled", "data a\ndata b\nsettled a\n", map[string]handover{"b": handedOver}},
		{"sent again", "data a\nsettled a\ndata a\n", map[string]handover{"a": handedOver}},
		{"cut off", "data a\naccepted a", map[string]handover{"a": handedOver}},
		{"other lines", "\nnoise\n \ndata \nlater a\n", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := parseJournal(tt.content); !maps.Equal(got, tt.want) {
				t.Errorf("parseJournal = %v, want %v", got, tt.want)
			}
		})
	}
}

// The beginning of a file never says more than the whole file.
func FuzzParseJournal(f *testing.F) {
	f.Add("data a\naccepted a\ndata b\n", 9)
	f.Add("accepted a", 3)
	f.Fuzz(func(t *testing.T, content string, cut int) {
		whole := parseJournal(content)
		for id, state := range parseJournal(content[:min(max(cut, 0), len(content))]) {
			if whole[id] != state && whole[id] != accepted && !strings.Contains(content, "settled "+id) {
				t.Errorf("%q is %s in a part, and %q in the whole", id, state, whole[id])
			}
		}
	})
}

func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, err := openJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	content := func() string {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(j.record("a", handedOver))
	must(j.record("a", accepted))
	must(j.record("b", handedOver))
	must(j.record("refused", handedOver))
	must(j.forget([]string{"a", "refused"}))
	must(j.close())
	if j, err = openJournal(path); err != nil {
		t.Fatal(err)
	}
	// The line of "a" was still there: whoever settles it again changes nothing. The
	// refused one does not count as sent twice.
	if got := fmt.Sprint(j.with(accepted), j.with(handedOver)); got != "[a] [b]" {
		t.Errorf("entries = %s, want [a] [b]", got)
	}
	must(j.forget([]string{"a", "b"}))
	if content() != "" {
		t.Errorf("file = %q, want nothing", content())
	}
	must(j.record("waits", handedOver))
	for n := range maxJournal/len("accepted 000000\n") + 1 {
		id := fmt.Sprintf("%06d", n)
		must(j.record(id, accepted))
		must(j.forget([]string{id}))
	}
	if got := content(); len(got) >= maxJournal || !strings.HasPrefix(got, "data waits\n") {
		t.Errorf("the file has %d bytes and starts with %.20q", len(got), got)
	}
	must(j.close())
}

// dyingMailer hands mails over like an SMTP client. The test decides what comes of them.
type dyingMailer struct {
	*fakeMailer
	after func(m Mail) error // after the server has the mail
}

func (d *dyingMailer) Send(ctx context.Context, m Mail) error {
	if m.Handover != nil {
		if err := m.Handover.BeforeData(); err != nil {
			return err
		}
	}
	if err := d.fakeMailer.Send(ctx, m); err != nil {
		return err
	}
	return d.after(m)
}

// The results of accepted mails are recorded after a restart, even if the store did not
// get them.
func TestCourierReadsJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w := &courierWorld{t: t, path: filepath.Join(dir, "dew.db"), mailer: &fakeMailer{}, dir: &fakeDirectory{users: map[string]string{}}, make: plain}
		w.journal = filepath.Join(dir, "journal")
		db := openDB(t, w.path)
		ms := enqueue(t, NewQueue(db), Notice{Client: "c"}, people(5)...)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		content := "data " + ms[0].ID + "\naccepted " + ms[0].ID + "\ndata " + ms[1].ID + "\naccepted unknown\n"
		if err := os.WriteFile(w.journal, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		w.start()
		defer func() { w.stop() }()
		w.pass(time.Second)
		for _, m := range ms {
			w.want(m.ID, Delivered)
		}
		if got := w.mailer.count(); len(got) != 4 || got[ms[0].ID] != 0 || got[ms[1].ID] != 1 {
			t.Errorf("sent = %v, want all but the accepted one", got)
		}
	})
}

// A mail whose hand-over cannot be recorded is not sent.
func TestCourierJournalFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w := &courierWorld{t: t, path: filepath.Join(dir, "dew.db"), mailer: &fakeMailer{}, dir: &fakeDirectory{users: map[string]string{}}, make: plain}
		w.wrap = &dyingMailer{fakeMailer: w.mailer, after: func(Mail) error { return nil }}
		w.journal = filepath.Join(dir, "no folder", "journal")
		db := openDB(t, w.path)
		c := w.courier(NewQueue(db))
		if err := c.Run(t.Context()); err == nil || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Run = %v, want the error of the file", err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}
