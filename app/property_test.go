package app

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/testkit"
)

// pick returns one of some values.
func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// randomManifest returns a manifest with some of the keys. Most of them are valid.
func randomManifest(r *rand.Rand) string {
	var b strings.Builder
	fmt.Fprintf(&b, "applications:\n- name: %s\n", pick(r, "shop", "cart"))
	process := func(indent string) {
		for _, line := range []string{
			"command: " + pick(r, "./run", "sleep 1", "null"), "memory: " + pick(r, "64M", "1G", "128MB"), "disk_quota: " + pick(r, "256M", "1G"),
			"instances: " + pick(r, "0", "1", "3"), "health-check-type: " + pick(r, "port", "process", "http"), "timeout: " + pick(r, "30", "60"),
			"log-rate-limit-per-second: " + pick(r, "-1", "16K", "0"),
		} {
			if r.IntN(2) == 0 {
				b.WriteString(indent + line + "\n")
			}
		}
	}
	process("  ")
	if r.IntN(2) == 0 {
		fmt.Fprintf(&b, "  env: {A: %d, B: %q}\n", r.IntN(3), pick(r, "", "x y", "ü"))
	}
	if r.IntN(2) == 0 {
		fmt.Fprintf(&b, "  metadata:\n    labels: {tier: %s}\n", pick(r, "a", "b", "null"))
	}
	if r.IntN(2) == 0 {
		fmt.Fprintf(&b, "  processes:\n  - type: %s\n", pick(r, "web", "worker"))
		process("    ")
	}
	if r.IntN(2) == 0 {
		fmt.Fprintf(&b, "  sidecars:\n  - name: %s\n    process_types: [web]\n    command: %s\n", pick(r, "proxy", "config"), pick(r, "./a", "./b"))
	}
	return b.String()
}

// A manifest that is applied twice gives the same state as once, from any state.
func TestApplyIsIdempotent(t *testing.T) {
	r := testkit.Random(t)
	applied := 0
	for range 400 {
		state := Desired{App: App{GUID: "g", Name: "shop", Space: "s", State: Stopped}}
		for range 3 { // the state after a manifest is the start of the next one
			text := randomManifest(r)
			m, _, err := ParseManifest([]byte(text), nil)
			if err != nil {
				continue
			}
			once, err := PlanManifest(state, &m.Applications[0])
			if err != nil {
				continue
			}
			applied++
			twice, err := PlanManifest(once, &m.Applications[0])
			if err != nil {
				t.Fatalf("the second time: %v\n%s", err, text)
			}
			if diff := cmp.Diff(once, twice); diff != "" {
				t.Fatalf("the second time changes (-once +twice):\n%s\n%s", diff, text)
			}
			state = once
		}
	}
	if applied < 300 {
		t.Errorf("%d manifests were applied: the test checks too few", applied)
	}
}

// part is a part of a selector, and its meaning.
type part struct {
	text    string
	matches func(labels map[string]string) bool
}

func randomPart(r *rand.Rand) part {
	key, a, b := pick(r, "x", "y", "example.com/z"), pick(r, "1", "2", ""), pick(r, "2", "3")
	has := func(l map[string]string) bool { _, ok := l[key]; return ok }
	in := func(l map[string]string) bool { return has(l) && (l[key] == a || l[key] == b) }
	is := func(l map[string]string) bool { return has(l) && l[key] == a }
	not := func(f func(map[string]string) bool) func(map[string]string) bool {
		return func(l map[string]string) bool { return !f(l) }
	}
	return pick(r,
		part{key, has}, part{"!" + key, not(has)}, part{key + "=" + a, is}, part{key + " == " + a, is}, part{key + "!=" + a, not(is)},
		part{fmt.Sprintf("%s in (%s, %s)", key, a, b), in}, part{fmt.Sprintf("%s notin (%s,%s)", key, a, b), not(in)})
}

// A selector selects what all its parts select, as a simple model does.
func TestSelectorsAgreeWithAModel(t *testing.T) {
	r := testkit.Random(t)
	for range 5000 {
		var parts []part
		var text []string
		for range 1 + r.IntN(3) {
			p := randomPart(r)
			parts, text = append(parts, p), append(text, p.text)
		}
		selector, err := ParseSelector(strings.Join(text, ","))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		labels := map[string]string{}
		for _, key := range []string{"x", "y", "example.com/z"} {
			if r.IntN(2) == 0 {
				labels[key] = pick(r, "", "1", "2", "3")
			}
		}
		want := !slices.ContainsFunc(parts, func(p part) bool { return !p.matches(labels) })
		if got := selector.Matches(labels); got != want {
			t.Fatalf("%s with %v = %v, want %v", text, labels, got, want)
		}
	}
}

// A change of metadata sets and removes exactly its keys, and again changes nothing.
func TestMergeTexts(t *testing.T) {
	r := testkit.Random(t)
	for range 5000 {
		old, change, want := map[string]string{}, map[string]*string{}, map[string]string{}
		for _, key := range []string{"a", "b", "c"} {
			if r.IntN(2) == 0 {
				old[key] = pick(r, "1", "2")
				want[key] = old[key]
			}
			switch r.IntN(3) {
			case 0:
				change[key] = nil
				delete(want, key)
			case 1:
				v := pick(r, "3", "4")
				change[key], want[key] = &v, v
			}
		}
		before := maps.Clone(old)
		got := MergeTexts(old, change)
		if !maps.Equal(got, want) || !maps.Equal(MergeTexts(got, change), want) || !maps.Equal(old, before) {
			t.Fatalf("%v with %v = %v, want %v", before, change, got, want)
		}
	}
}
