package app

import "time"

// ProcessKey is a key of a process in a manifest: its spellings, its field in the
// manifest and its field in the process. Reading, writing, applying and comparing
// manifests all use the one table ProcessKeys.
type ProcessKey struct {
	Name       string
	other      string // another spelling
	kind       keyKind
	inManifest func(m *ManifestProcess) any // **string, **int, **int64 or **time.Duration
	inProcess  func(p *Process) any         // *string, *int, **int64 or *time.Duration
}

type keyKind int

const (
	keyText    keyKind = iota
	keyCommand         // text; null removes the present value
	keyCheck
	keyCount
	keyAmount
	keyRate
	keySeconds
)

// ProcessKeys is the table of all keys of a process.
var ProcessKeys = []ProcessKey{
	{
		Name: "command", kind: keyCommand,
		inManifest: func(m *ManifestProcess) any { return &m.Command },
		inProcess:  func(p *Process) any { return &p.Command },
	},
	{
		Name: "instances", kind: keyCount,
		inManifest: func(m *ManifestProcess) any { return &m.Instances },
		inProcess:  func(p *Process) any { return &p.Instances },
	},
	{
		Name: "memory", kind: keyAmount,
		inManifest: func(m *ManifestProcess) any { return &m.MemoryMB },
		inProcess:  func(p *Process) any { return &p.MemoryMB },
	},
	{
		Name: "disk_quota", other: "disk-quota", kind: keyAmount,
		inManifest: func(m *ManifestProcess) any { return &m.DiskMB },
		inProcess:  func(p *Process) any { return &p.DiskMB },
	},
	{
		Name: "log-rate-limit-per-second", kind: keyRate,
		inManifest: func(m *ManifestProcess) any { return &m.LogRate },
		inProcess:  func(p *Process) any { return &p.LogRate },
	},
	{
		Name: "timeout", kind: keySeconds,
		inManifest: func(m *ManifestProcess) any { return &m.Timeout },
		inProcess:  func(p *Process) any { return &p.HealthCheck.Timeout },
	},
	{
		Name: "health-check-type", kind: keyCheck,
		inManifest: func(m *ManifestProcess) any { return &m.HealthCheckType },
		inProcess:  func(p *Process) any { return &p.HealthCheck.Type },
	},
	{
		Name: "health-check-http-endpoint", kind: keyText,
		inManifest: func(m *ManifestProcess) any { return &m.HealthCheckHTTPEndpoint },
		inProcess:  func(p *Process) any { return &p.HealthCheck.Endpoint },
	},
	{
		Name: "health-check-invocation-timeout", kind: keySeconds,
		inManifest: func(m *ManifestProcess) any { return &m.HealthCheckInvocationTimeout },
		inProcess:  func(p *Process) any { return &p.HealthCheck.InvocationTimeout },
	},
	{
		Name: "health-check-interval", kind: keySeconds,
		inManifest: func(m *ManifestProcess) any { return &m.HealthCheckInterval },
		inProcess:  func(p *Process) any { return &p.HealthCheck.Interval },
	},
	{
		Name: "readiness-health-check-type", kind: keyCheck,
		inManifest: func(m *ManifestProcess) any { return &m.ReadinessHealthCheckType },
		inProcess:  func(p *Process) any { return &p.Readiness.Type },
	},
	{
		Name: "readiness-health-check-http-endpoint", kind: keyText,
		inManifest: func(m *ManifestProcess) any { return &m.ReadinessHealthCheckHTTPEndpoint },
		inProcess:  func(p *Process) any { return &p.Readiness.Endpoint },
	},
	{
		Name: "readiness-health-check-invocation-timeout", kind: keySeconds,
		inManifest: func(m *ManifestProcess) any { return &m.ReadinessHealthCheckInvocationTimeout },
		inProcess:  func(p *Process) any { return &p.Readiness.InvocationTimeout },
	},
	{
		Name: "readiness-health-check-interval", kind: keySeconds,
		inManifest: func(m *ManifestProcess) any { return &m.ReadinessHealthCheckInterval },
		inProcess:  func(p *Process) any { return &p.Readiness.Interval },
	},
}

// Given reports whether the manifest has the key.
func (k ProcessKey) Given(m *ManifestProcess) bool {
	switch f := k.inManifest(m).(type) {
	case **string:
		return *f != nil
	case **int:
		return *f != nil
	case **int64:
		return *f != nil
	case **time.Duration:
		return *f != nil
	}
	panic("app: key " + k.Name + " has a field of an unknown type")
}

// clear removes the key from the manifest.
func (k ProcessKey) clear(m *ManifestProcess) {
	switch f := k.inManifest(m).(type) {
	case **string:
		*f = nil
	case **int:
		*f = nil
	case **int64:
		*f = nil
	case **time.Duration:
		*f = nil
	}
}

// apply sets the value of the manifest in p.
func (k ProcessKey) apply(m *ManifestProcess, p *Process) {
	if !k.Given(m) {
		return
	}
	switch f := k.inManifest(m).(type) {
	case **string:
		*k.inProcess(p).(*string) = **f
	case **int:
		*k.inProcess(p).(*int) = **f
	case **int64:
		rate := k.inProcess(p).(**int64)
		*rate = nil
		if v := **f; v >= 0 {
			*rate = &v
		}
	case **time.Duration:
		*k.inProcess(p).(*time.Duration) = **f
	}
}

// setManifest sets the value of p in the manifest, unless it is empty.
func (k ProcessKey) setManifest(p Process, m *ManifestProcess) {
	switch f := k.inManifest(m).(type) {
	case **string:
		if v := *k.inProcess(&p).(*string); v != "" {
			*f = &v
		}
	case **int:
		v := *k.inProcess(&p).(*int)
		*f = &v
	case **int64:
		if rate := *k.inProcess(&p).(**int64); rate != nil {
			v := *rate
			*f = &v
		}
	case **time.Duration:
		if v := *k.inProcess(&p).(*time.Duration); v != 0 {
			*f = &v
		}
	}
}

// Value returns the value of the process as a manifest has it; nil stands for none.
func (k ProcessKey) Value(p Process) any {
	switch v := k.inProcess(&p).(type) {
	case *string:
		if *v == "" {
			return nil
		}
		return *v
	case *time.Duration:
		if *v == 0 {
			return nil
		}
		return int(*v / time.Second)
	case **int64:
		return formatRate(*v)
	case *int:
		if k.kind == keyAmount {
			return FormatMB(*v)
		}
		return *v
	}
	return nil
}

// processOf returns an empty process with the values of the manifest.
func processOf(m *ManifestProcess) Process {
	p := Process{Type: m.Type}
	for _, k := range ProcessKeys {
		k.apply(m, &p)
	}
	return p
}

// ProcessSetting is the keys of one process type in a manifest, and their position.
type ProcessSetting struct {
	Type     string
	Manifest ManifestProcess
	Index    int // index in processes; -1: at app level
}

// ProcessSettings returns the processes in the manifest. Keys in the entry of the web
// process win over keys at app level.
func (m *ManifestApp) ProcessSettings() []ProcessSetting {
	top := m.ManifestProcess
	var out []ProcessSetting
	for i, p := range m.Processes {
		out = append(out, ProcessSetting{Type: p.Type, Manifest: p, Index: i})
		if p.Type != Web {
			continue
		}
		for _, k := range ProcessKeys {
			if k.Given(&p) {
				k.clear(&top)
			}
		}
	}
	return append([]ProcessSetting{{Type: Web, Manifest: top, Index: -1}}, out...)
}

// Spelling returns the spelling of a key in the manifest. Clients that show a difference
// look for it in the text.
func (m *ManifestApp) Spelling(w ProcessSetting, k ProcessKey) string {
	prefix := ""
	if w.Index >= 0 {
		prefix = KeyOfProcess(Process{Type: w.Type}, "")
	}
	if k.other != "" && m.lines[prefix+k.other] > 0 {
		return k.other
	}
	return k.Name
}
