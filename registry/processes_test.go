package registry

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
)

// The sidecars of a process type together have less memory than the process,
// whichever of them is changed last.
func TestMemoryRule(t *testing.T) {
	put := func(name string, mb int, types ...string) func(r *Registry, a app.App) error {
		return func(r *Registry, a app.App) error {
			_, err := r.PutSidecar(app.Sidecar{App: a.GUID, Name: name, Command: "c", ProcessTypes: types, MemoryMB: mb})
			return err
		}
	}
	process := func(processType string, mb int) func(r *Registry, a app.App) error {
		return func(r *Registry, a app.App) error {
			ps, err := r.Processes(a.GUID)
			if err != nil {
				return err
			}
			p := app.Process{App: a.GUID, Type: processType}
			if i := slices.IndexFunc(ps, func(p app.Process) bool { return p.Type == processType }); i >= 0 {
				p = ps[i]
			}
			p.MemoryMB = mb
			_, err = r.PutProcess(p)
			return err
		}
	}
	for name, tt := range map[string]struct {
		steps []func(r *Registry, a app.App) error // the last one must fail
		key   string                               // empty means that it succeeds
		text  string
	}{
		"just less":        {[]func(*Registry, app.App) error{put("config server", 1023, "web")}, "", ""},
		"equal":            {[]func(*Registry, app.App) error{put("config server", 1024, "web")}, "sidecars[config server].memory", "less than the memory of the process, 1024M"},
		"sum equal":        {[]func(*Registry, app.App) error{put("a", 1000, "web"), put("b", 24, "web")}, "sidecars[b].memory", "1024M together"},
		"sum less":         {[]func(*Registry, app.App) error{put("a", 1000, "web"), put("b", 23, "web")}, "", ""},
		"undeclared":       {[]func(*Registry, app.App) error{put("a", 1023, "web"), put("b", 0, "web")}, "", ""},
		"other type":       {[]func(*Registry, app.App) error{put("a", 1023, "web"), put("b", 1023, "worker")}, "", ""},
		"process shrinks":  {[]func(*Registry, app.App) error{put("a", 64, "web"), process("web", 64)}, "processes[web].memory", "64M"},
		"process fits":     {[]func(*Registry, app.App) error{put("a", 64, "web"), process("web", 65)}, "", ""},
		"process comes":    {[]func(*Registry, app.App) error{put("a", 64, "worker"), process("worker", 64)}, "processes[worker].memory", "64M"},
		"second type full": {[]func(*Registry, app.App) error{process("worker", 32), put("a", 64, "web", "worker")}, "sidecars[a].memory", "process worker"},
		"both full":        {[]func(*Registry, app.App) error{process("web", 64), put("a", 64, "web")}, "sidecars[a].memory", "process web"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t)
			a := one[app.App](t)(r.PutApp(app.App{Name: "shop"}))
			last := len(tt.steps) - 1
			for _, step := range tt.steps[:last] {
				must(t, step(r, a))
			}
			err := tt.steps[last](r, a)
			if tt.key == "" {
				must(t, err)
				return
			}
			if diff := cmp.Diff(keys(err), []string{tt.key}); diff != "" {
				t.Fatalf("keys of %v (-got +want):\n%s", err, diff)
			}
			if !strings.Contains(err.Error(), tt.text) || !strings.HasPrefix(err.Error(), tt.key+": ") {
				t.Errorf("error = %v, want the key and %q", err, tt.text)
			}
		})
	}
}

// A sidecar that is changed is not counted twice.
func TestMemoryRuleOnChange(t *testing.T) {
	r := newRegistry(t)
	a := one[app.App](t)(r.PutApp(app.App{Name: "shop"}))
	s := one[app.Sidecar](t)(r.PutSidecar(app.Sidecar{App: a.GUID, Name: "s", Command: "c", ProcessTypes: []string{"web"}, MemoryMB: 600}))
	s.MemoryMB = 1000
	one[app.Sidecar](t)(r.PutSidecar(s))
}

func TestTakenNames(t *testing.T) {
	r := newRegistry(t)
	a := shop(t, r)
	b := one[app.App](t)(r.PutApp(app.App{Name: "Shop", Space: "s1"})) // names are case-sensitive, as on Cloud Foundry
	_, appErr := r.PutApp(app.App{Name: "shop", Space: "s1"})
	_, renameErr := r.UpdateApp(b.GUID, func(b *app.App) error { b.Name = "shop"; return nil })
	_, processErr := r.PutProcess(app.Process{App: a.GUID, Type: "worker"})
	_, sidecarErr := r.PutSidecar(app.Sidecar{App: a.GUID, Name: "Agent", Command: "c", ProcessTypes: []string{"web"}})
	for _, tt := range []struct {
		err  error
		want string
	}{
		{appErr, "name"}, {renameErr, "name"}, {processErr, "processes[worker].type"}, {sidecarErr, "sidecars[Agent].name"},
	} {
		if diff := cmp.Diff(keys(tt.err), []string{tt.want}); diff != "" {
			t.Errorf("keys of %v (-got +want):\n%s", tt.err, diff)
		}
	}
	one[app.Sidecar](t)(r.PutSidecar(app.Sidecar{App: b.GUID, Name: "agent", Command: "c", ProcessTypes: []string{"web"}})) // a sidecar of another app
}

// The identifying fields of a process or a sidecar cannot change.
func TestIdentity(t *testing.T) {
	r := newRegistry(t)
	a := shop(t, r)
	b := one[app.App](t)(r.PutApp(app.App{Name: "other", Space: "s1"}))
	worker := one[[]app.Process](t)(r.Processes(a.GUID))[1]
	s := one[[]app.Sidecar](t)(r.Sidecars(a.GUID))[0]
	for name, tt := range map[string]struct {
		do   func() error
		want []string
	}{
		"type":          {func() error { p := worker; p.Type = "x"; _, err := r.PutProcess(p); return err }, []string{"processes[x].type"}},
		"app":           {func() error { p := worker; p.App = b.GUID; _, err := r.PutProcess(p); return err }, []string{"processes[worker].app"}},
		"web":           {func() error { _, err := r.PutProcess(app.Process{GUID: "g", App: a.GUID, Type: app.Web}); return err }, []string{"processes[web].guid"}},
		"not web":       {func() error { _, err := r.PutProcess(app.Process{GUID: a.GUID, App: a.GUID, Type: "x"}); return err }, []string{"processes[x].guid", "processes[x].type"}},
		"sidecar's app": {func() error { s := s; s.App = b.GUID; _, err := r.PutSidecar(s); return err }, []string{"sidecars[agent].app"}},
	} {
		if diff := cmp.Diff(keys(tt.do()), tt.want); diff != "" {
			t.Errorf("%s: keys (-got +want):\n%s", name, diff)
		}
	}
	// An update cannot change the guid.
	p := one[app.Process](t)(r.UpdateProcess(worker.GUID, func(p *app.Process) error { p.GUID = "x"; return nil }))
	if p.GUID != worker.GUID {
		t.Errorf("guid = %s, want %s", p.GUID, worker.GUID)
	}
}

// A changed log rate limit needs a new container, and so does its removal.
func TestLogRateIsPartOfDesiredState(t *testing.T) {
	slow, same, fast := int64(10), int64(10), int64(11)
	for _, tt := range []struct {
		a, b    *int64
		differs bool
	}{{nil, nil, false}, {nil, &slow, true}, {&slow, nil, true}, {&slow, &same, false}, {&slow, &fast, true}} {
		if got := processDiffers(app.Process{LogRate: tt.a}, app.Process{LogRate: tt.b}); got != tt.differs {
			t.Errorf("%v and %v differ: %v", tt.a, tt.b, got)
		}
	}
	bad := int64(-5)
	if err := app.ValidateProcess(app.Process{Type: "web", MemoryMB: 1, DiskMB: 1, HealthCheck: app.HealthCheck{Type: app.CheckProcess}, LogRate: &bad}); err == nil {
		t.Error("a negative limit was taken")
	}
}

// Two concurrent callers that add a sidecar cannot both take the last memory.
func TestMemoryRuleHoldsConcurrently(t *testing.T) {
	r := newRegistry(t)
	a := one[app.App](t)(r.PutApp(app.App{Name: "shop"}))
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} {
		wg.Go(func() {
			_, err := r.PutSidecar(app.Sidecar{App: a.GUID, Name: name, Command: "c", ProcessTypes: []string{"web"}, MemoryMB: 600})
			if err != nil && len(app.Problems(err)) != 1 {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := app.DeclaredMB(one[[]app.Sidecar](t)(r.Sidecars(a.GUID)), app.Web); got != 600 {
		t.Errorf("declared = %dM, want 600M", got)
	}
}
