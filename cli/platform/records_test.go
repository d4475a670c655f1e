package platform

import (
	"testing"

	"github.com/dewrun/dew/cli/console"
)

func FuzzRules(f *testing.F) {
	for _, s := range []string{`[]`, `null`, `[{"protocol":"icmp","destination":"0.0.0.0/0","type":0,"code":-1}]`, `[{"port":1}]`, `[] []`, `{`, ``} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		rules, err := parseRules([]byte(s))
		if err != nil {
			return
		}
		again, err := parseRules([]byte(console.CompactJSON(rules)))
		if err != nil || console.CompactJSON(again) != console.CompactJSON(rules) {
			t.Errorf("%q was read as %s and then as %s, %v", s, console.CompactJSON(rules), console.CompactJSON(again), err)
		}
	})
}
