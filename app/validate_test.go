package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// keys returns the keys that err complains about.
func keys(err error) []string {
	var out []string
	for _, p := range Problems(err) {
		out = append(out, p.Key)
	}
	return out
}

func TestAppValidation(t *testing.T) {
	ok := App{Name: "shop", State: Started}
	for name, tt := range map[string]struct {
		change func(a *App)
		want   []string
	}{
		"good":             {func(*App) {}, nil},
		"a name in full":   {func(a *App) { a.Name = "my shop/ü_1.0 😀" }, nil},
		"long name":        {func(a *App) { a.Name = strings.Repeat("ü", 255) }, nil},
		"too long name":    {func(a *App) { a.Name = strings.Repeat("x", 256) }, []string{"name"}},
		"no name":          {func(a *App) { a.Name = "" }, []string{"name"}},
		"blank name":       {func(a *App) { a.Name = "  " }, []string{"name"}},
		"line break":       {func(a *App) { a.Name = "a\nb" }, []string{"name"}},
		"broken UTF-8":     {func(a *App) { a.Name = "a\xff" }, []string{"name"}},
		"state":            {func(a *App) { a.State = "RUNNING" }, []string{"state"}},
		"good variables":   {func(a *App) { a.Env = map[string]string{"PORTS": "1", "XVCAP_": "", "a.b": "multi\nline"} }, nil},
		"no variable name": {func(a *App) { a.Env = map[string]string{"": "1"} }, []string{"env"}},
		"variables of the platform": {
			func(a *App) { a.Env = map[string]string{"PORT": "1", "VCAP_X": "1", "VMC_X": "1", "vcap_y": "1"} },
			[]string{"env[PORT]", "env[VCAP_X]", "env[VMC_X]", "env[vcap_y]"},
		},
		"variables that no shell can have": {
			func(a *App) { a.Env = map[string]string{"A=B": "1", "C": "x\x00"} },
			[]string{"env[A=B]", "env[C]"},
		},
		"buildpacks":    {func(a *App) { a.Buildpacks = []string{"java_buildpack", " "} }, []string{"buildpacks[1]"}},
		"several wrong": {func(a *App) { a.Name, a.State = "", ""+"x" }, []string{"name", "state"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := ok
			tt.change(&a)
			if diff := cmp.Diff(keys(checkApp(a)), tt.want); diff != "" {
				t.Errorf("keys (-got +want):\n%s", diff)
			}
		})
	}
}

func TestProcessValidation(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(p *Process)
		want   []string
	}{
		"good":         {func(*Process) {}, nil},
		"none":         {func(p *Process) { p.Instances = 0 }, nil},
		"instances":    {func(p *Process) { p.Instances = -1 }, []string{"processes[worker].instances"}},
		"memory":       {func(p *Process) { p.MemoryMB = -1 }, []string{"processes[worker].memory"}},
		"disk":         {func(p *Process) { p.DiskMB = -1 }, []string{"processes[worker].disk_quota"}},
		"huge":         {func(p *Process) { p.MemoryMB = maxMB + 1 }, []string{"processes[worker].memory"}},
		"no type":      {func(p *Process) { p.Type = "" }, []string{"processes[].type"}},
		"blank type":   {func(p *Process) { p.Type = "a b" }, []string{"processes[a b].type"}},
		"slash type":   {func(p *Process) { p.Type = "a/b" }, []string{"processes[a/b].type"}},
		"long command": {func(p *Process) { p.Command = strings.Repeat("x", 4097) }, []string{"processes[worker].command"}},
		"zero byte":    {func(p *Process) { p.Command = "a\x00" }, []string{"processes[worker].command"}},
		"lines":        {func(p *Process) { p.Command = "a\nb" }, nil},
		"ports":        {func(p *Process) { p.Ports = []int{1, 65535} }, nil},
		"bad ports":    {func(p *Process) { p.Ports = []int{0, 65536} }, []string{"processes[worker].ports", "processes[worker].ports"}},
		"port twice":   {func(p *Process) { p.Ports = []int{80, 81, 80} }, []string{"processes[worker].ports"}},

		"http":           {func(p *Process) { p.HealthCheck = HealthCheck{Type: CheckHTTP, Endpoint: "/health?x=1", Port: 81} }, nil},
		"http default":   {func(p *Process) { p.HealthCheck = HealthCheck{Type: CheckHTTP} }, nil},
		"check type":     {func(p *Process) { p.HealthCheck.Type = "ping" }, []string{"processes[worker].health-check-type"}},
		"endpoint":       {func(p *Process) { p.HealthCheck = HealthCheck{Type: CheckHTTP, Endpoint: "health"} }, []string{"processes[worker].health-check-http-endpoint"}},
		"endpoint split": {func(p *Process) { p.HealthCheck = HealthCheck{Type: CheckHTTP, Endpoint: "/a\r\nb"} }, []string{"processes[worker].health-check-http-endpoint"}},
		"wrong type":     {func(p *Process) { p.HealthCheck = HealthCheck{Type: CheckPort, Endpoint: "/"} }, []string{"processes[worker].health-check-http-endpoint"}},
		"check port":     {func(p *Process) { p.HealthCheck.Port = -1 }, []string{"processes[worker].health-check-port"}},
		"durations": {
			func(p *Process) { p.HealthCheck.Timeout, p.HealthCheck.Interval = -1, -time.Second },
			[]string{"processes[worker].health-check-timeout", "processes[worker].health-check-interval"},
		},
		"readiness": {func(p *Process) { p.Readiness.Type = "x" }, []string{"processes[worker].readiness-health-check-type"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Process{Type: "worker"}
			tt.change(&p)
			if diff := cmp.Diff(keys(checkProcess(p.withDefaults())), tt.want); diff != "" {
				t.Errorf("keys (-got +want):\n%s", diff)
			}
		})
	}
}

func TestSidecarValidation(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(s *Sidecar)
		want   []string
	}{
		"good":          {func(*Sidecar) {}, nil},
		"no memory":     {func(s *Sidecar) { s.MemoryMB = 0 }, nil},
		"odd name":      {func(s *Sidecar) { s.Name = "Ä/b - 1" }, nil},
		"no name":       {func(s *Sidecar) { s.Name = "" }, []string{"sidecars[].name"}},
		"tab":           {func(s *Sidecar) { s.Name = "a\tb" }, []string{"sidecars[a\tb].name"}},
		"escape":        {func(s *Sidecar) { s.Name = "a\x1b[0m" }, []string{"sidecars[a\x1b[0m].name"}},
		"separator":     {func(s *Sidecar) { s.Name = "a\u2028b" }, []string{"sidecars[a\u2028b].name"}},
		"no command":    {func(s *Sidecar) { s.Command = " " }, []string{"sidecars[config server].command"}},
		"no types":      {func(s *Sidecar) { s.ProcessTypes = nil }, []string{"sidecars[config server].process_types"}},
		"empty type":    {func(s *Sidecar) { s.ProcessTypes = []string{"web", ""} }, []string{"sidecars[config server].process_types"}},
		"type twice":    {func(s *Sidecar) { s.ProcessTypes = []string{"web", "web"} }, []string{"sidecars[config server].process_types"}},
		"memory":        {func(s *Sidecar) { s.MemoryMB = -1 }, []string{"sidecars[config server].memory"}},
		"origin":        {func(s *Sidecar) { s.Origin = "x" }, []string{"sidecars[config server].origin"}},
		"several wrong": {func(s *Sidecar) { s.Command, s.ProcessTypes = "", nil }, []string{"sidecars[config server].command", "sidecars[config server].process_types"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := Sidecar{Name: "config server", Command: "./config", ProcessTypes: []string{"web", "worker"}, MemoryMB: 64, Origin: OriginUser}
			tt.change(&s)
			if diff := cmp.Diff(keys(checkSidecar(s)), tt.want); diff != "" {
				t.Errorf("keys (-got +want):\n%s", diff)
			}
		})
	}
}

// The sidecars of a process type together have less memory than the process,
// whichever of them is changed last.
func TestMemoryRule(t *testing.T) {
	put := func(name string, mb int, types ...string) func(r *Registry, a App) error {
		return func(r *Registry, a App) error {
			_, err := r.PutSidecar(Sidecar{App: a.GUID, Name: name, Command: "c", ProcessTypes: types, MemoryMB: mb})
			return err
		}
	}
	process := func(processType string, mb int) func(r *Registry, a App) error {
		return func(r *Registry, a App) error {
			ps, err := r.Processes(a.GUID)
			if err != nil {
				return err
			}
			p := Process{App: a.GUID, Type: processType}
			if i := slices.IndexFunc(ps, func(p Process) bool { return p.Type == processType }); i >= 0 {
				p = ps[i]
			}
			p.MemoryMB = mb
			_, err = r.PutProcess(p)
			return err
		}
	}
	for name, tt := range map[string]struct {
		steps []func(r *Registry, a App) error // the last one is to fail
		key   string                           // empty: it is not
		text  string
	}{
		"just less":        {[]func(*Registry, App) error{put("config server", 1023, "web")}, "", ""},
		"equal":            {[]func(*Registry, App) error{put("config server", 1024, "web")}, "sidecars[config server].memory", "less than its memory of 1024M"},
		"sum equal":        {[]func(*Registry, App) error{put("a", 1000, "web"), put("b", 24, "web")}, "sidecars[b].memory", "1024M together"},
		"sum less":         {[]func(*Registry, App) error{put("a", 1000, "web"), put("b", 23, "web")}, "", ""},
		"undeclared":       {[]func(*Registry, App) error{put("a", 1023, "web"), put("b", 0, "web")}, "", ""},
		"other type":       {[]func(*Registry, App) error{put("a", 1023, "web"), put("b", 1023, "worker")}, "", ""},
		"process shrinks":  {[]func(*Registry, App) error{put("a", 64, "web"), process("web", 64)}, "processes[web].memory", "64M"},
		"process fits":     {[]func(*Registry, App) error{put("a", 64, "web"), process("web", 65)}, "", ""},
		"process comes":    {[]func(*Registry, App) error{put("a", 64, "worker"), process("worker", 64)}, "processes[worker].memory", "64M"},
		"second type full": {[]func(*Registry, App) error{process("worker", 32), put("a", 64, "web", "worker")}, "sidecars[a].memory", "process worker"},
		"both full":        {[]func(*Registry, App) error{process("web", 64), put("a", 64, "web")}, "sidecars[a].memory", "process web"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t)
			a := one[App](t)(r.PutApp(App{Name: "shop"}))
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
	a := one[App](t)(r.PutApp(App{Name: "shop"}))
	s := one[Sidecar](t)(r.PutSidecar(Sidecar{App: a.GUID, Name: "s", Command: "c", ProcessTypes: []string{"web"}, MemoryMB: 600}))
	s.MemoryMB = 1000
	one[Sidecar](t)(r.PutSidecar(s))
}

func TestTakenNames(t *testing.T) {
	r := newRegistry(t)
	a := shop(t, r)
	b := one[App](t)(r.PutApp(App{Name: "Shop", Space: "s1"})) // case counts, as on the platform
	_, appErr := r.PutApp(App{Name: "shop", Space: "s1"})
	_, renameErr := r.UpdateApp(b.GUID, func(b *App) error { b.Name = "shop"; return nil })
	_, processErr := r.PutProcess(Process{App: a.GUID, Type: "worker"})
	_, sidecarErr := r.PutSidecar(Sidecar{App: a.GUID, Name: "Agent", Command: "c", ProcessTypes: []string{"web"}})
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
	one[Sidecar](t)(r.PutSidecar(Sidecar{App: b.GUID, Name: "agent", Command: "c", ProcessTypes: []string{"web"}})) // another app's
}

// What identifies a process or a sidecar stays.
func TestIdentity(t *testing.T) {
	r := newRegistry(t)
	a := shop(t, r)
	b := one[App](t)(r.PutApp(App{Name: "other", Space: "s1"}))
	worker := one[[]Process](t)(r.Processes(a.GUID))[1]
	s := one[[]Sidecar](t)(r.Sidecars(a.GUID))[0]
	for name, tt := range map[string]struct {
		do   func() error
		want []string
	}{
		"type":          {func() error { p := worker; p.Type = "x"; _, err := r.PutProcess(p); return err }, []string{"processes[x].type"}},
		"app":           {func() error { p := worker; p.App = b.GUID; _, err := r.PutProcess(p); return err }, []string{"processes[worker].app"}},
		"web":           {func() error { _, err := r.PutProcess(Process{GUID: "g", App: a.GUID, Type: Web}); return err }, []string{"processes[web].guid"}},
		"not web":       {func() error { _, err := r.PutProcess(Process{GUID: a.GUID, App: a.GUID, Type: "x"}); return err }, []string{"processes[x].guid", "processes[x].type"}},
		"sidecar's app": {func() error { s := s; s.App = b.GUID; _, err := r.PutSidecar(s); return err }, []string{"sidecars[agent].app"}},
	} {
		if diff := cmp.Diff(keys(tt.do()), tt.want); diff != "" {
			t.Errorf("%s: keys (-got +want):\n%s", name, diff)
		}
	}
	// The guid that an update is about is not up for change.
	p := one[Process](t)(r.UpdateProcess(worker.GUID, func(p *Process) error { p.GUID = "x"; return nil }))
	if p.GUID != worker.GUID {
		t.Errorf("guid = %s, want %s", p.GUID, worker.GUID)
	}
}

func TestProblems(t *testing.T) {
	a, b := &Invalid{Key: "a", Message: "x"}, &Invalid{Key: "b", Message: "y"}
	err := fmt.Errorf("cannot apply: %w", errors.Join(a, nil, fmt.Errorf("more: %w", errors.Join(b, errors.New("other")))))
	if diff := cmp.Diff(Problems(err), []*Invalid{a, b}); diff != "" {
		t.Errorf("problems (-got +want):\n%s", diff)
	}
	if got := Problems(errors.New("other")); len(got) != 0 {
		t.Errorf("problems = %v, want none", got)
	}
	var one *Invalid
	if !errors.As(err, &one) || one != a {
		t.Errorf("errors.As finds %v, want %v", one, a)
	}
}
