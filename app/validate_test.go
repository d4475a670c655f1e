package app

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// keys returns the keys of the errors in err.
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
			if diff := cmp.Diff(keys(ValidateApp(a)), tt.want); diff != "" {
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
		"huge":         {func(p *Process) { p.MemoryMB = MaxMB + 1 }, []string{"processes[worker].memory"}},
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
			if diff := cmp.Diff(keys(ValidateProcess(p.WithDefaults())), tt.want); diff != "" {
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
			if diff := cmp.Diff(keys(ValidateSidecar(s)), tt.want); diff != "" {
				t.Errorf("keys (-got +want):\n%s", diff)
			}
		})
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
