package platform

import (
	"errors"
	"slices"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
)

// HandleApps tells the jobs how to do what handlers start.
func (p *Platform) HandleApps() {
	p.Builds.Record(p.recordBuild)
	p.Jobs.Handle(OpApplyManifest, p.doApplyManifest)
	p.Jobs.Handle(OpDeleteUnmapped, p.doDeleteUnmapped)
	p.stagingOperations()
}

func InvalidSpace(err error) error {
	if errors.Is(err, app.ErrNotFound) {
		return Refuse("Invalid space. Ensure that the space exists and you have access to it.")
	}
	return err
}

// CheckStaging refuses what could not be staged, before anything is pushed.
func (p *Platform) CheckStaging(space, stack string, buildpacks []string) error {
	if err := p.Stacks().Check(stack); err != nil {
		return Refuse("Stack must be an existing stack: %v", err)
	}
	if err := p.Packages.CheckFolders(space, buildpacks); err != nil {
		return err
	}
	return p.Catalog.Check(buildpacks)
}

// CheckFolders refuses folders of this machine that others than its administrators
// name as buildpacks: the daemon reads them for whoever does.
func CheckFolders(buildpacks []string, admin bool) error {
	if i := slices.IndexFunc(buildpacks, droplet.IsFolder); i >= 0 && !admin {
		return Refuse("buildpack \"%s\" is a folder of the machine that runs the apps, and only its administrators may name one: "+
			"upload yours with dew push -b FOLDER, ask them for a buildpack (dew create-buildpack), or use a git URL", buildpacks[i])
	}
	return nil
}

func hasDroplet(a *app.App) error {
	if a.Droplet == "" {
		return Refuse("%s", v3.DetailAssignDroplet)
	}
	return nil
}
