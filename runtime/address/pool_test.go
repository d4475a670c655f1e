package address

import (
	"errors"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/store"
)

func newTestPool(t *testing.T, subnet string) *Pool {
	t.Helper()
	b, err := NewPool(testDB(t), netip.MustParsePrefix(subnet))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func allocate(t *testing.T, b *Pool, id runtime.InstanceID) string {
	t.Helper()
	p, err := b.Allocate(id)
	if err != nil {
		t.Fatal(err)
	}
	return p.String()
}

// The first address is the bridge's, and the last the broadcast address. All addresses
// between them are used, and released ones are used again.
func TestAddressesGoRound(t *testing.T) {
	t.Parallel()
	b := newTestPool(t, "10.201.0.77/29") // .72 to .79
	for i, want := range []string{"10.201.0.74/29", "10.201.0.75/29", "10.201.0.76/29", "10.201.0.77/29", "10.201.0.78/29"} {
		if got := allocate(t, b, runtime.InstanceID(rune('a'+i))); got != want {
			t.Errorf("address %d = %s, want %s", i, got, want)
		}
	}
	if _, err := b.Allocate("x"); !errors.Is(err, ErrNoAddress) {
		t.Errorf("take from a full subnet = %v, want ErrNoAddress", err)
	}
	for _, id := range []runtime.InstanceID{"a", "c"} {
		if err := b.Release(id); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"10.201.0.74/29", "10.201.0.76/29"} {
		if got := allocate(t, b, runtime.InstanceID("again "+want)); got != want {
			t.Errorf("address = %s, want %s", got, want)
		}
	}
}

// A released address is used last.
func TestAddressIsNotUsedAgainAtOnce(t *testing.T) {
	t.Parallel()
	b := newTestPool(t, "10.201.0.0/20")
	allocate(t, b, "a")
	if err := b.Release("a"); err != nil {
		t.Fatal(err)
	}
	if got := allocate(t, b, "b"); got != "10.201.0.3/20" {
		t.Errorf("address = %s, want the next one", got)
	}
}

// After adoption the pool has only the addresses of the adopted instances.
func TestAddressesSettle(t *testing.T) {
	t.Parallel()
	b := newTestPool(t, "10.201.0.0/29")
	allocate(t, b, "dead")
	allocate(t, b, "alive")
	allocate(t, b, "moved")
	if err := b.Settle(map[runtime.InstanceID]netip.Addr{
		"alive":   netip.MustParseAddr("10.201.0.3"),
		"moved":   netip.MustParseAddr("10.201.0.5"),
		"unknown": netip.MustParseAddr("10.201.0.6"),
		"none":    {},
	}); err != nil {
		t.Fatal(err)
	}
	if got := allocate(t, b, "new"); got != "10.201.0.2/29" {
		t.Errorf("address = %s, want the dead one's", got)
	}
	if got := allocate(t, b, "newer"); got != "10.201.0.4/29" {
		t.Errorf("address = %s, want the one that was left", got)
	}
	if _, err := b.Allocate("x"); !errors.Is(err, ErrNoAddress) {
		t.Errorf("take = %v, want ErrNoAddress: all others are living", err)
	}
}

func TestAddressesNeedASubnet(t *testing.T) {
	t.Parallel()
	for _, p := range []netip.Prefix{{}, netip.MustParsePrefix("10.0.0.0/31"), netip.MustParsePrefix("fd00::/64")} {
		if _, err := NewPool(testDB(t), p); err == nil {
			t.Errorf("subnet %v was taken", p)
		}
	}
}

func testDB(t *testing.T) *store.DB {
	t.Helper()
	db, err := store.Open(filepath.Join(t.TempDir(), "dew.db"), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}
