package registry

import "github.com/dewrun/dew/app"

// checkIdentity guards what never changes about a process.
func checkIdentity(old, p app.Process) error {
	var ps app.Violations
	if (p.Type == app.Web) != (p.GUID == p.App) {
		ps.Add(app.KeyOfProcess(p, "guid"), "the %s process, and no other, has the guid of its app", app.Web)
	}
	if old.GUID == "" {
		return ps.Err()
	}
	if old.App != p.App {
		ps.Add(app.KeyOfProcess(p, "app"), "a process stays with its app")
	}
	if old.Type != p.Type {
		ps.Add(app.KeyOfProcess(p, "type"), "a process stays %q: make another one", old.Type)
	}
	return ps.Err()
}

func checkSidecarApp(old, s app.Sidecar) error {
	if old.GUID == "" || old.App == s.App {
		return nil
	}
	return &app.Invalid{Key: app.SidecarKey(s, "app"), Message: "a sidecar stays with its app"}
}
