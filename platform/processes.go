package platform

import (
	"context"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/runtime"
)

// LogRate returns a log rate limit in the form of the desired state: nil means no
// limit.
func LogRate(n v3.Int) *int64 {
	if n <= NoLogLimit {
		return nil
	}
	rate := int64(n)
	return &rate
}

// NoLogLimit is the value for unlimited logs in the API.
const NoLogLimit = -1

// Processes gives handlers access to the running instances. supervisor.Supervisor
// implements it.
type Processes interface {
	// Instances returns the status of the slots of a process.
	Instances(process string) []runtime.Status
	// Usage returns the resources that an instance uses now. It returns false if they
	// are not known.
	Usage(ctx context.Context, process string, index int) (runtime.Usage, bool)
	// Signal sends a signal to the main process, or to the sidecar with the name.
	Signal(ctx context.Context, process string, index int, sidecar string, sent runtime.SentSignal) error
	// RestartInstance stops an instance and starts another in its place.
	RestartInstance(process string, index int) error
}

// SSHEndpoint is the address of the SSH server of instances, and the fingerprint of
// its key.
type SSHEndpoint struct {
	Address     string // host:port
	Fingerprint string // fingerprint of the host key, in the form that clients compare
}

// For returns the address for a client that reached the API at a host. A server that
// listens on all addresses is at the same host.
func (e SSHEndpoint) For(host string) string {
	own, port, err := net.SplitHostPort(e.Address)
	if err != nil || !net.ParseIP(own).IsUnspecified() {
		return e.Address
	}
	return net.JoinHostPort(host, port)
}

// The messages of Cloud Foundry about a web process that is being deployed.
const (
	NoUpdateNow = "Cannot update this process while a deployment is in flight."
	NoScaleNow  = "Cannot scale this process while a deployment is in flight."
)

// byManifest is the key that marks events caused by a manifest.
const byManifest = "manifest_triggered"

// CheckNoDeployment refuses to change a web process during a deployment. Otherwise
// the new instances would start from another desired state than the deployed one.
func CheckNoDeployment(reg *registry.Registry, p app.Process, refusal string) error {
	if p.Type != app.Web {
		return nil
	}
	d, active, err := reg.ActiveDeployment(p.App)
	if err == nil && active && d.Progressing() {
		return Refuse("%s", refusal)
	}
	return err
}

// RecordNew records the processes that an app did not have before.
func (w Tx) RecordNew(a app.App, before []app.Process, marks map[string]any) error {
	now, err := w.Registry.Processes(a.GUID)
	if err != nil {
		return err
	}
	for _, p := range now {
		if slices.ContainsFunc(before, func(old app.Process) bool { return old.GUID == p.GUID }) {
			continue
		}
		if err := w.RecordProcess("create", a, p, marks); err != nil {
			return err
		}
	}
	return nil
}

// RecordProcess records an event about a process of an app, with additional data from
// marks.
func (w Tx) RecordProcess(what string, a app.App, p app.Process, marks map[string]any) error {
	data := map[string]any{"process_guid": p.GUID, "process_type": p.Type}
	maps.Copy(data, marks)
	return w.Record("audit.app.process."+what, a, data)
}

// recordDesired records the changes that a manifest requests for the processes of an
// app.
func (w Tx) recordDesired(a app.App, m app.Manifest) error {
	i := slices.IndexFunc(m.Applications, func(one app.ManifestApp) bool { return one.Name == a.Name })
	if i < 0 {
		return nil
	}
	for _, asked := range processesOf(m.Applications[i]) {
		update, scale := updatesOf(asked), scalesOf(asked)
		if len(update)+len(scale) == 0 {
			continue
		}
		p, err := w.processIn(a, asked.Type)
		if err != nil {
			return err
		}
		if err := w.recordAsked("update", a, p, update); err != nil {
			return err
		}
		if err := w.recordAsked("scale", a, p, scale); err != nil {
			return err
		}
	}
	return nil
}

func (w Tx) recordAsked(what string, a app.App, p app.Process, request map[string]any) error {
	if len(request) == 0 {
		return nil
	}
	return w.RecordProcess(what, a, p, map[string]any{"request": request, byManifest: true})
}

func (w Tx) processIn(a app.App, kind string) (app.Process, error) {
	ps, err := w.Registry.Processes(a.GUID)
	if err != nil {
		return app.Process{}, err
	}
	i := slices.IndexFunc(ps, func(p app.Process) bool { return p.Type == kind })
	if i < 0 {
		return app.Process{}, notFound("Process")
	}
	return ps[i], nil
}

// checkNoDeployments refuses a manifest that changes a web process during its
// deployment.
func (w Tx) checkNoDeployments(space string, m app.Manifest) error {
	for _, one := range m.Applications {
		a, err := w.Registry.AppIn(space, one.Name)
		if IsNotFound(err) {
			continue // the app does not exist yet
		}
		if err != nil {
			return err
		}
		for _, asked := range processesOf(one) {
			refusal := NoUpdateNow
			switch {
			case len(updatesOf(asked)) > 0:
			case len(scalesOf(asked)) > 0:
				refusal = NoScaleNow
			default:
				continue
			}
			err := CheckNoDeployment(w.Registry, app.Process{App: a.GUID, Type: asked.Type}, refusal)
			if isA[*Error](err) {
				return &app.JobError{Code: v3.CodeUnprocessable, Title: v3.TitleUnprocessable, Detail: "For application '" + one.Name + "': " + refusal}
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// processesOf returns the processes in a manifest. Keys at app level belong to the web
// process.
func processesOf(m app.ManifestApp) []app.ManifestProcess {
	if slices.ContainsFunc(m.Processes, func(p app.ManifestProcess) bool { return p.Type == app.Web }) {
		return m.Processes
	}
	web := m.ManifestProcess
	web.Type = app.Web
	return append([]app.ManifestProcess{web}, m.Processes...)
}

// updatesOf returns the values in a manifest that a PATCH of the process can also
// change. It hides the command, because many users can read events.
func updatesOf(p app.ManifestProcess) map[string]any {
	out := map[string]any{}
	if p.Command != nil {
		out["command"] = Hidden
	}
	for name, text := range map[string]*string{
		"health_check_type": p.HealthCheckType, "health_check_http_endpoint": p.HealthCheckHTTPEndpoint,
		"readiness_health_check_type": p.ReadinessHealthCheckType, "readiness_health_check_http_endpoint": p.ReadinessHealthCheckHTTPEndpoint,
	} {
		if text != nil {
			out[name] = *text
		}
	}
	for name, span := range map[string]*time.Duration{
		"timeout":                         p.Timeout,
		"health_check_invocation_timeout": p.HealthCheckInvocationTimeout, "health_check_interval": p.HealthCheckInterval,
		"readiness_health_check_invocation_timeout": p.ReadinessHealthCheckInvocationTimeout,
		"readiness_health_check_interval":           p.ReadinessHealthCheckInterval,
	} {
		if span != nil {
			out[name] = int(*span / time.Second)
		}
	}
	return out
}

// scalesOf returns the values in a manifest that scaling can also change.
func scalesOf(p app.ManifestProcess) map[string]any {
	out := map[string]any{}
	for name, n := range map[string]*int{"instances": p.Instances, "memory_in_mb": p.MemoryMB, "disk_in_mb": p.DiskMB} {
		if n != nil {
			out[name] = *n
		}
	}
	if p.LogRate != nil {
		out["log_rate_limit_in_bytes_per_second"] = *p.LogRate
	}
	return out
}

// RecordSidecar records an event about a sidecar.
func (w Tx) RecordSidecar(a app.App, how string, c app.Sidecar) error {
	return w.Record("audit.app.update", a, map[string]any{"request": map[string]any{
		"sidecar": map[string]any{"action": how, "guid": c.GUID, "name": c.Name},
	}})
}
