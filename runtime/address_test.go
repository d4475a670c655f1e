package runtime

import (
	"errors"
	"net/netip"
	"testing"
)

func book(t *testing.T, subnet string) *addressBook {
	t.Helper()
	b, err := newAddressBook(testDB(t), netip.MustParsePrefix(subnet))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func take(t *testing.T, b *addressBook, id InstanceID) string {
	t.Helper()
	p, err := b.take(id)
	if err != nil {
		t.Fatal(err)
	}
	return p.String()
}

// The first address is the bridge's, the last the broadcast; between them every
// one is used, and one that came back is used again.
func TestAddressesGoRound(t *testing.T) {
	t.Parallel()
	b := book(t, "10.201.0.77/29") // .72 to .79
	for i, want := range []string{"10.201.0.74/29", "10.201.0.75/29", "10.201.0.76/29", "10.201.0.77/29", "10.201.0.78/29"} {
		if got := take(t, b, InstanceID(rune('a'+i))); got != want {
			t.Errorf("address %d = %s, want %s", i, got, want)
		}
	}
	if _, err := b.take("x"); !errors.Is(err, ErrNoAddress) {
		t.Errorf("take from a full subnet = %v, want ErrNoAddress", err)
	}
	for _, id := range []InstanceID{"a", "c"} {
		if err := b.release(id); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"10.201.0.74/29", "10.201.0.76/29"} {
		if got := take(t, b, InstanceID("again "+want)); got != want {
			t.Errorf("address = %s, want %s", got, want)
		}
	}
}

// One that was just given back is used last.
func TestAddressIsNotUsedAgainAtOnce(t *testing.T) {
	t.Parallel()
	b := book(t, "10.201.0.0/20")
	take(t, b, "a")
	if err := b.release("a"); err != nil {
		t.Fatal(err)
	}
	if got := take(t, b, "b"); got != "10.201.0.3/20" {
		t.Errorf("address = %s, want the next one", got)
	}
}

// After adoption the book has the addresses of the living and nobody else's.
func TestAddressesSettle(t *testing.T) {
	t.Parallel()
	b := book(t, "10.201.0.0/29")
	take(t, b, "dead")
	take(t, b, "alive")
	take(t, b, "moved")
	if err := b.settle(map[InstanceID]netip.Addr{
		"alive":   netip.MustParseAddr("10.201.0.3"),
		"moved":   netip.MustParseAddr("10.201.0.5"),
		"unknown": netip.MustParseAddr("10.201.0.6"),
		"none":    {},
	}); err != nil {
		t.Fatal(err)
	}
	if got := take(t, b, "new"); got != "10.201.0.2/29" {
		t.Errorf("address = %s, want the dead one's", got)
	}
	if got := take(t, b, "newer"); got != "10.201.0.4/29" {
		t.Errorf("address = %s, want the one that was left", got)
	}
	if _, err := b.take("x"); !errors.Is(err, ErrNoAddress) {
		t.Errorf("take = %v, want ErrNoAddress: all others are living", err)
	}
}

func TestAddressesNeedASubnet(t *testing.T) {
	t.Parallel()
	for _, p := range []netip.Prefix{{}, netip.MustParsePrefix("10.0.0.0/31"), netip.MustParsePrefix("fd00::/64")} {
		if _, err := newAddressBook(testDB(t), p); err == nil {
			t.Errorf("subnet %v was taken", p)
		}
	}
}
