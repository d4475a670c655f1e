package userns

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFor(t *testing.T) {
	seen := map[uint32]netip.Addr{}
	network := netip.MustParsePrefix("10.201.16.0/20")
	for a := network.Addr().Next().Next(); network.Contains(a); a = a.Next() {
		r := For(netip.PrefixFrom(a, 20))
		if other, ok := seen[r.First]; ok {
			t.Fatalf("%s and %s share the users from %d", a, other, r.First)
		}
		if seen[r.First] = a; r.First%Size != 0 || r.First < 0x7000_0000 || r.First >= 0x7ffe_0000 {
			t.Fatalf("%s has the users from %#x", a, r.First)
		}
	}
	if (Range{}).Enabled() || !For(network).Enabled() {
		t.Error("only the zero range is that of the machine")
	}
}

func TestParseOverlay(t *testing.T) {
	got, ok := ParseOverlay([]string{"index=off", "workdir=/s/1/work", "upperdir=/s/1/fs", "lowerdir=/s/3/fs:/s/2/fs"})
	want := Overlay{Lower: []string{"/s/3/fs", "/s/2/fs"}, Upper: "/s/1/fs", Work: "/s/1/work", Others: []string{"index=off"}}
	if d := cmp.Diff(want, got); d != "" || !ok {
		t.Error(ok, d)
	}
	for _, options := range [][]string{nil, {"lowerdir=/a:/b"}, {"lowerdir=/a", "upperdir=/s/1/fs", "workdir=/elsewhere/work"}, {"upperdir=/s/fs", "workdir=/s/work"}} {
		if _, ok := ParseOverlay(options); ok {
			t.Errorf("%v has a writable layer", options)
		}
	}
}

func FuzzParseOverlay(f *testing.F) {
	f.Add("lowerdir=/a:/b", "upperdir=/s/fs")
	f.Fuzz(func(t *testing.T, a, b string) {
		o, ok := ParseOverlay([]string{a, b})
		if ok && (o.Upper == "" || slices.Contains(o.Lower, "x:y")) {
			t.Errorf("%+v", o)
		}
	})
}
