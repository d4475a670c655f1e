package platform

import "github.com/dewrun/dew/app"

// Revise keeps the app as it is about to be started.
func (p *Platform) Revise(w Tx, a app.App) error {
	v, made, err := w.Registry.Revise(a)
	if err != nil || !made {
		return err
	}
	return p.RecordRevision(w, a, v.GUID, v.Version)
}

func (p *Platform) RecordRevision(w Tx, a app.App, guid string, version int) error {
	w.afterwards(func() { p.LogToApp(a.GUID, "Creating revision for app with guid "+a.GUID) })
	return w.Record("audit.app.revision.create", a, map[string]any{"revision_guid": guid, "revision_version": version})
}
