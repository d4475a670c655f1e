package plan

import (
	"fmt"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/services/bindingfiles"
)

// bindingForm returns the form of the files from which an app reads its services.
func bindingForm(a app.App) bindingfiles.Form { return bindingfiles.Of(a.K8sBindings, a.VCAPBindings) }

// withServices adds the variable from which the app learns of its services.
func (d Desired) withServices(env map[string]string) map[string]string {
	name, value := bindingForm(d.App).Variable()
	if name == "" {
		name, value = "VCAP_SERVICES", d.bindings.Variable()
	}
	env[name] = value
	return env
}

// bindingFiles returns the files about the services of the app, or nil if it reads
// VCAP_SERVICES. A *StartError says that there can be no such files.
func (d Desired) bindingFiles() (map[string]string, error) {
	form := bindingForm(d.App)
	if form == bindingfiles.None {
		return nil, nil
	}
	files, err := form.Files(d.bindings.Variable())
	if err != nil {
		return nil, refuse(d, err.Error())
	}
	return files, nil
}

// stagingFiles returns these files for a build.
func (p *Planner) stagingFiles(s droplet.Staging) (map[string]string, error) {
	a, err := p.c.Registry.App(s.App)
	if err != nil {
		return nil, fmt.Errorf("cannot read the app of a build: %w", err)
	}
	d := Desired{App: a, bindings: droplet.Bindings{JSON: s.Services}}
	files, err := d.bindingFiles()
	if err != nil {
		return nil, &droplet.StagingError{Kind: droplet.StagingFailed, Reason: err.Error()}
	}
	return files, nil
}
