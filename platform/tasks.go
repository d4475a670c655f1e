package platform

import (
	"cmp"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
)

// TaskFrom is the task that a body asks for: what it says, otherwise what its
// template has, else the defaults.
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
		return t, Refuse("user cannot be chosen for an image: it says itself who runs its programs")
	}
	if b.Template != nil {
		p, err := w.Registry.Process(b.Template.Process.GUID)
		if err != nil || p.App != a.GUID {
			return t, notFound("Process")
		}
		t.Command = cmp.Or(t.Command, p.Command, d.Commands[p.Type])
		t.MemoryMB, t.DiskMB, t.LogRate = p.MemoryMB, p.DiskMB, p.LogRate
		if t.Command == "" {
			return t, Refuse("process '%s' has no command that a task could run: give one with command", p.Type)
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

// taskDroplet is the droplet that a body names, or the app's current one.
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
		return d, Refuse("Task must have a droplet whose files are there. Upload those of droplet %s, or specify another one.", guid)
	}
	return d, missing("Droplet", err)
}

// RecordTask keeps an event about a task of an app. Commands carry passwords.
func (w Tx) RecordTask(kind string, a app.App, t app.Task) error {
	return w.Record(kind, a, map[string]any{
		"task_guid": t.GUID,
		"request":   map[string]any{"name": t.Name, "memory_in_mb": t.MemoryMB, "command": Hidden},
	})
}
