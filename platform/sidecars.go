package platform

import "github.com/dewrun/dew/app"

func (w Tx) RecordSidecar(a app.App, how string, c app.Sidecar) error {
	return w.Record("audit.app.update", a, map[string]any{"request": map[string]any{
		"sidecar": map[string]any{"action": how, "guid": c.GUID, "name": c.Name},
	}})
}
