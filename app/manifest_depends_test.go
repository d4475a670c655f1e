package app

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// checkOrder fails unless every app appears once, after the apps that it depends on.
func checkOrder(t *testing.T, m Manifest) {
	t.Helper()
	var seen []string
	for _, a := range m.StartOrder() {
		for _, name := range a.DependsOn {
			if !slices.Contains(seen, name) {
				t.Errorf("%s comes before %s", a.Name, name)
			}
		}
		seen = append(seen, a.Name)
	}
	if len(seen) != len(m.Applications) {
		t.Errorf("%d apps are ordered to %v", len(m.Applications), seen)
	}
}

func TestStartOrder(t *testing.T) {
	const text = `applications:
- {name: web, depends-on: [db, cache]}
- {name: alone}
- {name: cache, depends-on: [db]}
- {name: last, depends-on: [web]}
- {name: db}
`
	m, warnings, err := ParseManifest([]byte(text), map[string]any{})
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, %v", warnings, err)
	}
	checkOrder(t, m)
	names := func(apps []ManifestApp) (out []string) {
		for _, a := range apps {
			out = append(out, a.Name)
		}
		return out
	}
	if diff := cmp.Diff([]string{"alone", "db", "cache", "web", "last"}, names(m.StartOrder())); diff != "" {
		t.Error(diff)
	}
	m.Applications = m.Applications[:2] // as if the user had selected some apps
	if diff := cmp.Diff([]string{"web", "alone"}, names(m.StartOrder())); diff != "" {
		t.Error(diff)
	}
}

// cf sends the key depends-on with the manifest. There it is not an error, whatever its
// value is.
func TestDependsOnWhenSent(t *testing.T) {
	for _, value := range []string{"[db]", "[nobody, web]", "{db: {condition: service_healthy}}"} {
		m, warnings, err := ParseManifest([]byte("applications:\n- name: web\n  depends-on: "+value+"\n"), nil)
		if err != nil || len(m.Applications[0].DependsOn) > 0 {
			t.Errorf("%s: %v, %v", value, m.Applications, err)
		}
		if diff := cmp.Diff([]string{`app "web", line 3: depends-on: has no effect here: only dew push starts apps in this order`}, warnings); diff != "" {
			t.Error(diff)
		}
	}
	m, _, err := ParseManifest([]byte("applications:\n- {name: a, depends-on: [b]}\n- name: b\n"), map[string]any{})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := m.YAML(); err != nil || strings.Contains(string(b), keyDependsOn) {
		t.Errorf("it is sent: %s, %v", b, err)
	}
}
