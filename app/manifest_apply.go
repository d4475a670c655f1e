package app

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dewrun/dew/app/routeoptions"
	"github.com/dewrun/dew/yamlfile"
)

// Desired is everything about one app that a manifest can change, except its routes.
type Desired struct {
	App       App
	Processes []Process
	Sidecars  []Sidecar
}

// IsNew reports whether the app does not exist yet.
func (d Desired) IsNew() bool { return d.App.GUID == "" }

// PlanManifest returns the desired state after a manifest is applied to old. Planning
// again on the result gives the same.
func PlanManifest(old Desired, m *ManifestApp) (Desired, error) {
	next := Desired{App: m.Applied(old.App), Processes: slices.Clone(old.Processes), Sidecars: slices.Clone(old.Sidecars)}
	for _, w := range m.ProcessSettings() {
		i := slices.IndexFunc(next.Processes, func(p Process) bool { return p.Type == w.Type })
		if i < 0 {
			i = len(next.Processes)
			next.Processes = append(next.Processes, Process{App: old.App.GUID, Type: w.Type})
		}
		next.Processes[i] = w.Manifest.Applied(next.Processes[i])
	}
	for i := range m.Sidecars {
		j := slices.IndexFunc(next.Sidecars, func(s Sidecar) bool { return SameName(s.Name, m.Sidecars[i].Name) })
		if j < 0 {
			j = len(next.Sidecars)
			next.Sidecars = append(next.Sidecars, Sidecar{App: old.App.GUID})
		}
		next.Sidecars[j] = m.Sidecars[i].Applied(next.Sidecars[j])
	}
	return next, m.Explain(errors.Join(checkLifecycle(old.App, next.App), next.Validate(m)))
}

// Applied returns the app with the values of the manifest.
func (m *ManifestApp) Applied(a App) App {
	a = a.Clone()
	for _, k := range appKeys {
		if k.apply != nil {
			k.apply(m, &a)
		}
	}
	return a
}

// Applied returns the process with the values of the manifest.
func (m *ManifestProcess) Applied(p Process) Process {
	p = p.Clone()
	// Only checks of type http have an endpoint.
	if m.HealthCheckType != nil && *m.HealthCheckType != CheckHTTP {
		p.HealthCheck.Endpoint = ""
	}
	if m.ReadinessHealthCheckType != nil && *m.ReadinessHealthCheckType != CheckHTTP {
		p.Readiness.Endpoint = ""
	}
	for _, k := range ProcessKeys {
		k.apply(m, &p)
	}
	return p.WithDefaults()
}

// Applied returns the sidecar with the values of the manifest. Its origin becomes the
// user, even if a buildpack added it.
func (m *ManifestSidecar) Applied(s Sidecar) Sidecar {
	s = s.Clone()
	s.Name, s.Command, s.Origin = m.Name, m.Command, OriginUser
	s.ProcessTypes = slices.Clone(m.ProcessTypes)
	if m.MemoryMB != nil {
		s.MemoryMB = *m.MemoryMB
	}
	return s
}

// Validate checks the whole desired state against the rules.
func (d Desired) Validate(m *ManifestApp) error {
	errs := []error{ValidateApp(d.App)}
	for _, p := range d.Processes {
		errs = append(errs, ValidateProcess(p))
		if err := ValidateProcessMemory(p, d.Sidecars); err != nil {
			errs = append(errs, d.blame(p, m, err))
		}
	}
	for i, s := range d.Sidecars {
		errs = append(errs, ValidateSidecar(s))
		if slices.ContainsFunc(d.Sidecars[:i], func(o Sidecar) bool { return SameName(o.Name, s.Name) }) {
			errs = append(errs, &Invalid{Key: SidecarKey(s, "name"), Message: "another sidecar of the app has this name (case is ignored): choose another name"})
		}
	}
	return errors.Join(errs...)
}

// blame returns the error for the last sidecar of the manifest that uses memory of the
// process, if there is one. The user can fix that line.
func (d Desired) blame(p Process, m *ManifestApp, otherwise error) error {
	for _, ms := range slices.Backward(m.Sidecars) {
		if ms.MemoryMB == nil || !slices.Contains(ms.ProcessTypes, p.Type) {
			continue
		}
		others := slices.DeleteFunc(slices.Clone(d.Sidecars), func(s Sidecar) bool { return SameName(s.Name, ms.Name) })
		return ValidateSidecarMemory(ms.Applied(Sidecar{}), others, []Process{p})
	}
	return otherwise
}

// CheckProtocol checks that the route allows the protocol in the manifest.
func (m *ManifestApp) CheckProtocol(i int, rt Route) error {
	if m.Routes[i].Protocol == "" {
		return nil
	}
	var ps Violations
	CheckProtocol(&ps, fmt.Sprintf("routes[%d].protocol", i), m.Routes[i].Protocol, rt.Protocols()...)
	if err := ps.Err(); err != nil {
		return m.Explain(err)
	}
	return nil
}

// RouteKey returns the key of the route with index i in messages.
func RouteKey(i int) string { return fmt.Sprintf("routes[%d].route", i) }

// checkManifestRoute checks the parts of a route that do not depend on the domains.
func checkManifestRoute(i int, mr ManifestRoute) error {
	var ps Violations
	_, path, _, err := SplitRoute(mr.Route)
	if err != nil {
		ps.Add(RouteKey(i), "%v", err)
	}
	CheckPath(&ps, RouteKey(i), path)
	ps.RouteOptions(fmt.Sprintf("routes[%d].options", i), func(problem routeoptions.Problem) { routeoptions.CheckNew(mr.Options, true, problem) })
	if mr.Protocol != "" {
		CheckProtocol(&ps, fmt.Sprintf("routes[%d].protocol", i), mr.Protocol, ProtocolHTTP1, ProtocolHTTP2, ProtocolTCP)
	}
	return ps.Err()
}

// SplitRoute splits host.domain/path or domain:port. The name is in lower case.
func SplitRoute(s string) (name, path string, port int, err error) {
	name, path, _ = strings.Cut(s, "/")
	name, number, ported := strings.Cut(name, ":")
	for label := range strings.SplitSeq(strings.TrimPrefix(name, AnyHost+"."), ".") {
		if !HostLabel.MatchString(label) {
			return "", "", 0, fmt.Errorf("must be a host and a domain without a scheme, such as shop.example.com/cart, or a domain and a port, such as tcp.example.com:20000, not %q", yamlfile.Shorten(s))
		}
	}
	if ported {
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil || n == 0 || path != "" {
			return "", "", 0, fmt.Errorf("must have a port from 1 to 65535 and no path after the colon, such as tcp.example.com:20000, not %q", yamlfile.Shorten(s))
		}
		port = int(n)
	}
	if path = strings.TrimRight(path, "/"); path != "" {
		path = "/" + path
	}
	return strings.ToLower(name), path, port, nil
}

// lifecycleOf returns the lifecycle of an app after the manifest is applied.
func (m *ManifestApp) lifecycleOf(a App) string {
	if m.Docker != nil {
		return LifecycleDocker
	}
	if m.Lifecycle != "" || a.GUID == "" {
		return "" // staged from files
	}
	return a.Lifecycle
}

// checkLifecycle refuses to change the lifecycle of an app, as Cloud Foundry does.
func checkLifecycle(old, next App) error {
	if old.GUID == "" || old.Lifecycle == next.Lifecycle {
		return nil
	}
	was, is := "a buildpack app", "a Docker app"
	if old.Docker() {
		was, is = is, was
	}
	return &Invalid{Key: "lifecycle", Message: fmt.Sprintf("Lifecycle type cannot be changed: app '%s' is %s and cannot become %s: choose another app name, or delete the existing app first", old.Name, was, is)}
}
