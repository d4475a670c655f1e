package app

import "testing"

func FuzzPortRange(f *testing.F) {
	for _, s := range []string{"", "20000-20099", "1024", "1023-2000", "3000-2000", "a-b", "1-", "-1", " 2000-2001 ", "99999-99999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var p, again PortRange
		if p.UnmarshalText([]byte(s)) != nil {
			return
		}
		if err := again.UnmarshalText([]byte(p.String())); err != nil || again != p {
			t.Errorf("%q: %v, %v, %v", s, p, again, err)
		}
		if p != (PortRange{}) && (!p.Has(p.First) || !p.Has(p.Last) || p.Has(p.Last+1) || p.Has(p.First-1) || p.First < 1024 || p.Last > 65535) {
			t.Errorf("%q: %+v", s, p)
		}
		if p.Has(0) {
			t.Errorf("%q has port 0", s)
		}
	})
}
