package platform

import (
	"errors"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/registry"
)

// DeployedDroplet returns the droplet to deploy: the one in the request, that of the
// revision, or the app's current one.
func (w Tx) DeployedDroplet(n app.NewDeployment) (droplet.Droplet, error) {
	a, err := w.Registry.App(n.App)
	if err != nil {
		return droplet.Droplet{}, missing("App", err)
	}
	guid, gone := n.Droplet, "Unable to assign current droplet. Ensure the droplet exists and belongs to this app."
	switch {
	case n.Revision != "":
		back, err := w.Registry.Revision(n.Revision)
		if IsNotFound(err) || err == nil && back.App != a.GUID {
			return droplet.Droplet{}, Refuse("The revision does not exist")
		}
		if err != nil {
			return droplet.Droplet{}, err
		}
		guid, gone = back.Droplet, "Unable to deploy this revision, the droplet for this revision no longer exists."
	case guid == "" && a.Droplet == "":
		return droplet.Droplet{}, Refuse("Invalid droplet. Please specify a droplet in the request or set a current droplet for the app.")
	case guid == "":
		guid = a.Droplet
	}
	d, err := w.Droplet(guid)
	switch {
	case errors.Is(err, droplet.ErrNotFound), err == nil && d.App != a.GUID:
		return d, Refuse("%s", gone)
	case err == nil && d.State == droplet.DropletAwaiting:
		return d, Refuse("Unable to assign current droplet. Its files were not uploaded yet.")
	}
	return d, err
}

// CheckNotDeploying refuses to change the droplet of an app while a deployment is
// active.
func CheckNotDeploying(reg *registry.Registry, appGUID string) error {
	d, _, err := reg.ActiveDeployment(appGUID)
	if err == nil && d.GUID != "" && d.Progressing() {
		return Refuse("Unable to assign current droplet while the app has a deployment in progress. Wait for the deployment to complete or cancel it.")
	}
	return err
}

// Revise stores a revision of the app before it is started.
func (p *Platform) Revise(w Tx, a app.App) error {
	v, made, err := w.Registry.Revise(a)
	if err != nil || !made {
		return err
	}
	return p.RecordRevision(w, a, v.GUID, v.Version)
}

// RecordRevision records a revision of an app.
func (p *Platform) RecordRevision(w Tx, a app.App, guid string, version int) error {
	w.afterwards(func() { p.LogToApp(a.GUID, "Creating revision for app with guid "+a.GUID) })
	return w.Record("audit.app.revision.create", a, map[string]any{"revision_guid": guid, "revision_version": version})
}
