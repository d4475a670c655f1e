package registry

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/dewrun/dew/app"
)

// checkDescribed checks that the output of ManifestOf, written as text and read again,
// changes nothing.
func checkDescribed(t *testing.T, r *Registry, a app.App) string {
	t.Helper()
	text := string(one[[]byte](t)(one[app.Manifest](t)(r.ManifestOf(a.GUID)).Text()))
	m, warnings, err := app.ParseManifest([]byte(text), nil)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, %v\n%s", err, warnings, text)
	}
	if diffs := one[[]app.Difference](t)(r.DiffManifest(a.Space, m)); len(diffs) > 0 {
		t.Errorf("differences = %+v\n%s", diffs, text)
	}
	before := dumpRegistry(t, r)
	one[[]app.App](t)(r.ApplyManifest(a.Space, m))
	if after := dumpRegistry(t, r); after != before {
		t.Errorf("applying changed\n%s\nto\n%s\nby\n%s", before, after, text)
	}
	return text
}

func TestManifestOf(t *testing.T) {
	for _, text := range goldenTexts(t) {
		m, _, err := app.ParseManifest([]byte(text), goldenVars)
		if err != nil {
			continue
		}
		r, s := inSpace(t)
		apps, err := r.ApplyManifest(s.GUID, m)
		if err != nil {
			continue
		}
		for _, a := range apps {
			checkDescribed(t, r, a)
		}
	}
}

func TestManifestOfText(t *testing.T) {
	r, s := inSpace(t)
	a := apply(t, r, s, `
applications:
- name: shop
  stack: cflinuxfs4
  buildpacks: [binary_buildpack]
  memory: 256M
  timeout: 90
  health-check-type: http
  health-check-http-endpoint: /health
  readiness-health-check-type: port
  env: {COLOUR: "yes", N: "12", EMPTY: ""}
  metadata:
    labels: {tier: back}
    annotations: {note: "a: b"}
  processes:
  - {type: worker, instances: 0, command: "./work --all"}
  sidecars:
  - {name: config server, command: ./config, process_types: [web], memory: 64M}
  routes:
  - route: shop.dew.localhost/cart
    options: {loadbalancing: round-robin}
`)[0]
	want := `---
applications:
- name: shop
  stack: cflinuxfs4
  buildpacks:
  - binary_buildpack
  env:
    COLOUR: "yes"
    EMPTY: ""
    "N": "12"
  metadata:
    labels:
      tier: back
    annotations:
      note: "a: b"
  processes:
  - type: web
    instances: 1
    memory: 256M
    disk_quota: 1024M
    timeout: 90
    health-check-type: http
    health-check-http-endpoint: /health
    readiness-health-check-type: port
  - type: worker
    command: "./work --all"
    instances: 0
    memory: 1024M
    disk_quota: 1024M
    health-check-type: process
  sidecars:
  - name: "config server"
    process_types:
    - web
    command: ./config
    memory: 64M
  routes:
  - route: shop.dew.localhost/cart
    protocol: http1
    options:
      loadbalancing: round-robin
`
	got := checkDescribed(t, r, a)
	if got = strings.ReplaceAll(got, `"./config"`, "./config"); got != want {
		t.Errorf("manifest =\n%s\nwant\n%s", got, want)
	}
	must(t, r.unmap(a.GUID))
	if got := checkDescribed(t, r, a); !strings.HasSuffix(got, "  no-route: true\n") {
		t.Errorf("manifest of an app without routes =\n%s", got)
	}
	if _, err := r.ManifestOf("nonesuch"); err == nil {
		t.Error("there is a manifest of no app")
	}
}

// The same holds for any desired state, whatever its strings.
func TestManifestOfAnything(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	odd := func() string { return oddTexts[rnd.IntN(len(oddTexts))] }
	r, s := inSpace(t)
	domain := one[app.Domain](t)(r.DefaultDomain())
	for i := range 25 {
		a := app.App{Name: strings.Repeat("x", i+1) + "-: #", Space: s.GUID, Env: map[string]string{}}
		for range rnd.IntN(8) {
			a.Env["K"+strings.Map(envRune, odd())] = odd()
		}
		if rnd.IntN(2) == 0 {
			a.Metadata = app.Metadata{Labels: map[string]string{"yes": "no", "1": "2"}, Annotations: map[string]string{"null": odd()}}
			a.Stack, a.Buildpacks = "host", []string{"binary_buildpack"}
		}
		a = one[app.App](t)(r.PutApp(a))
		one[app.Process](t)(r.UpdateProcess(a.GUID, func(p *app.Process) error {
			p.Command, p.Instances, p.MemoryMB = odd(), rnd.IntN(3), 256+rnd.IntN(100)
			p.HealthCheck = app.HealthCheck{Type: app.CheckHTTP, Endpoint: "/" + strings.Repeat("h", i), Interval: time.Duration(rnd.IntN(3)) * time.Second}
			return nil
		}))
		one[app.Sidecar](t)(r.PutSidecar(app.Sidecar{App: a.GUID, Name: "side: " + strings.Repeat("y", i), Command: "x" + odd(), ProcessTypes: []string{"web"}, MemoryMB: rnd.IntN(100)}))
		one[app.Sidecar](t)(r.PutSidecar(app.Sidecar{App: a.GUID, Name: "found", Command: "x", ProcessTypes: []string{"web"}, Origin: app.OriginBuildpack}))
		for n := range rnd.IntN(3) {
			one[app.Route](t)(r.PutRoute(app.Route{Space: s.GUID, Domain: domain.GUID, Host: strings.Repeat("h", i+1), Path: "/" + strings.Repeat("p", n+1), Destinations: []app.Destination{{App: a.GUID}}}))
		}
		checkDescribed(t, r, a)
	}
}

// envRune maps c to a rune that is valid in the name of a variable.
func envRune(c rune) rune {
	if c == '=' || !unicode.IsPrint(c) {
		return -1
	}
	return c
}
