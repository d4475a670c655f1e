package platform

import (
	"cmp"
	"errors"
	"slices"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
)

// HandleApps registers the jobs for operations on apps.
func (p *Platform) HandleApps() {
	p.Builds.Record(p.recordBuild)
	p.Jobs.Handle(OpApplyManifest, p.doApplyManifest)
	p.Jobs.Handle(OpDeleteUnmapped, Deletions{p}.deleteUnmappedRoutes)
	p.stagingOperations()
}

// InvalidSpace returns the error for a request with a space that does not exist, or
// that the caller cannot see.
func InvalidSpace(err error) error {
	if errors.Is(err, app.ErrNotFound) {
		return Refuse("Invalid space. Ensure that the space exists and you have access to it.")
	}
	return err
}

// CheckStaging refuses a stack and buildpacks that cannot be used for staging, before
// any bits are pushed.
func (p *Platform) CheckStaging(space, stack string, buildpacks []string) error {
	if err := p.Stacks().Check(stack); err != nil {
		return Refuse("Stack must be an existing stack: %v", err)
	}
	if err := p.Packages.CheckFolders(space, buildpacks); err != nil {
		return err
	}
	return p.Catalog.Check(buildpacks)
}

// CheckFolders refuses folders of this machine as buildpacks, except from
// administrators. The daemon reads these folders with its own permissions.
func CheckFolders(buildpacks []string, admin bool) error {
	if i := slices.IndexFunc(buildpacks, droplet.IsFolder); i >= 0 && !admin {
		return Refuse("Buildpack \"%s\" is a folder on the machine that runs dewd, and only administrators can use such folders. "+
			"Upload your folder with dew push -b FOLDER, ask an administrator to add the buildpack (dew create-buildpack), or use a git URL", buildpacks[i])
	}
	return nil
}

func hasDroplet(a *app.App) error {
	if a.Droplet == "" {
		return Refuse("%s", v3.DetailAssignDroplet)
	}
	return nil
}

// Hidden replaces values that not every reader of events can see.
const Hidden = "[PRIVATE DATA HIDDEN]"

// TaskFrom returns the task of a request body. Values that the body lacks come from its
// template, otherwise from the defaults.
func (w Tx) TaskFrom(a app.App, b v3.CreateTask) (app.Task, error) {
	d, err := w.taskDroplet(a, b.DropletGUID)
	if err != nil {
		return app.Task{}, err
	}
	t := app.Task{
		App: a.GUID, Name: b.Name, Command: b.Command, User: b.User, Droplet: d.GUID, Attached: b.Attach,
		Metadata: app.Metadata{}.Merge(MetadataChange(b.Metadata)),
	}
	if b.User != "" && d.Run != nil {
		return t, Refuse("user cannot be set for a Docker image: the image defines the user of its processes")
	}
	if b.Template != nil {
		p, err := w.Registry.Process(b.Template.Process.GUID)
		if err != nil || p.App != a.GUID {
			return t, notFound("Process")
		}
		t.Command = cmp.Or(t.Command, p.Command, d.Commands[p.Type])
		t.MemoryMB, t.DiskMB, t.LogRate = p.MemoryMB, p.DiskMB, p.LogRate
		if t.Command == "" {
			return t, Refuse("Process '%s' has no start command for the task. Set the command of the task.", p.Type)
		}
	}
	if b.Attach {
		t.Command = cmp.Or(t.Command, app.ShellCommand)
	}
	if b.MemoryInMB != nil {
		t.MemoryMB = int(*b.MemoryInMB)
	}
	if b.DiskInMB != nil {
		t.DiskMB = int(*b.DiskInMB)
	}
	if b.LogRateLimit != nil {
		t.LogRate = LogRate(*b.LogRateLimit)
	}
	return t, nil
}

// taskDroplet returns the droplet in the request body, or the app's current one.
func (w Tx) taskDroplet(a app.App, named string) (droplet.Droplet, error) {
	guid := cmp.Or(named, a.Droplet)
	if guid == "" {
		return droplet.Droplet{}, Refuse("Task must have a droplet. Specify droplet or assign current droplet to app.")
	}
	d, err := w.Droplet(guid)
	switch {
	case err == nil && d.App != a.GUID:
		return d, notFound("Droplet")
	case err == nil && d.State == droplet.DropletAwaiting:
		return d, Refuse("Task must have a droplet with files. Upload the files of droplet %s, or specify another droplet.", guid)
	}
	return d, missing("Droplet", err)
}

// RecordTask records an event about a task of an app. It hides the command, because
// commands can contain passwords.
func (w Tx) RecordTask(kind string, a app.App, t app.Task) error {
	return w.Record(kind, a, map[string]any{
		"task_guid": t.GUID,
		"request":   map[string]any{"name": t.Name, "memory_in_mb": t.MemoryMB, "command": Hidden},
	})
}
