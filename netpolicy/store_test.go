package netpolicy

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/dewrun/dew/store"
)

func newStore(t *testing.T) *Store {
	t.Helper()
	db, err := store.Open(filepath.Join(t.TempDir(), "db"), store.Options{Format: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return NewStore(db)
}

func TestStore(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	p := Policy{Source: "a", Destination: "b", Protocol: "tcp", Ports: Ports{8080, 8080}}
	q := Policy{Source: "b", Destination: "c", Protocol: "udp", Ports: Ports{1, 65535}}
	changes := 0
	s.Listen(func(string) { changes++ })
	for range 2 { // the second time changes nothing
		if err := s.Add(true, p, q); err != nil {
			t.Fatal(err)
		}
	}
	all, err := s.All()
	if err != nil || len(all) != 2 || changes != 2 {
		t.Fatalf("%+v, %v, %d changes", all, err, changes)
	}
	if err := s.RemoveApp("c"); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(q); err != nil { // it does not exist any more
		t.Fatal(err)
	}
	if all, _ = s.All(); len(all) != 1 || all[0].Source != "a" {
		t.Errorf("%+v, want only the policy of a", all)
	}
	var many []Policy
	for port := range MaxPerSource + 1 {
		many = append(many, Policy{Source: "many", Destination: "b", Protocol: "tcp", Ports: Ports{port + 1, port + 1}})
	}
	if err := s.Add(true, many...); !errors.Is(err, ErrQuota) {
		t.Errorf("%v, want %v", err, ErrQuota)
	}
	if all, _ = s.All(); len(all) != 1 {
		t.Errorf("%d policies after a refused request, want 1", len(all))
	}
	if err := s.Add(false, many...); err != nil {
		t.Errorf("administrators: %v", err)
	}
}

// A root of an older dewd says once that rules are off.
func TestNotice(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	notices := func() (n int) {
		for range 3 {
			first, err := s.Notice()
			if err != nil {
				t.Fatal(err)
			}
			if first {
				n++
			}
		}
		return n
	}
	if n := notices(); n != 0 {
		t.Errorf("%d notices without settings", n)
	}
	v, err := s.Settings(func() (Settings, error) { return Settings{Older: true}, nil })
	if err != nil || v.Enforced || !v.Older {
		t.Fatalf("%+v, %v", v, err)
	}
	if n := notices(); n != 1 {
		t.Errorf("%d notices, want 1", n)
	}
	if v, err = s.Settings(nil); err != nil || !v.Told {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for text, p := range map[string]Policy{
		"missing source id":      {Destination: "b", Protocol: "tcp", Ports: Ports{1, 1}},
		"missing destination id": {Source: "a", Protocol: "tcp", Ports: Ports{1, 1}},
		"invalid destination protocol, specify either udp or tcp": {Source: "a", Destination: "b", Protocol: "icmp", Ports: Ports{1, 1}},
		"missing start port":                                                   {Source: "a", Destination: "b", Protocol: "tcp"},
		"invalid start port -1, must be in range 1-65535":                      {Source: "a", Destination: "b", Protocol: "tcp", Ports: Ports{-1, 1}},
		"invalid end port 65536, must be in range 1-65535":                     {Source: "a", Destination: "b", Protocol: "tcp", Ports: Ports{1, 65536}},
		"invalid port range 1243-999, start must be less than or equal to end": {Source: "a", Destination: "b", Protocol: "tcp", Ports: Ports{1243, 999}},
	} {
		if err := p.Validate(); err == nil || err.Error() != text {
			t.Errorf("%+v: %v, want %s", p, err, text)
		}
	}
}
