package registry

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
)

// RevisionStore stores the revisions of apps.
type RevisionStore struct{ *tables }

// Limits of revisions: after the last number they start again at 1, and the oldest of
// an app are deleted.
const (
	lastRevision  = 9999
	keptRevisions = 100
)

// Revision returns the revision with guid.
func (r *RevisionStore) Revision(guid string) (app.Revision, error) {
	return get(r.revisions, "revision", guid)
}

// Revisions returns the revisions of an app, oldest first.
func (r *RevisionStore) Revisions(appGUID string) ([]app.Revision, error) {
	all, err := r.revisions.By("app", appGUID)
	if err != nil {
		return nil, fmt.Errorf("cannot list revisions of app %s: %w", appGUID, err)
	}
	slices.SortFunc(all, func(a, b app.Revision) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return all, nil
}

// DeployedRevisions returns the revisions that the app's instances run now.
func (r *RevisionStore) DeployedRevisions(appGUID string) (out []app.Revision, err error) {
	err = r.view(func(r *Registry) error {
		a, err := r.App(appGUID)
		if err != nil || a.State != app.Started {
			return err
		}
		running, err := r.runningRevisions(appGUID)
		if err != nil {
			return err
		}
		all, err := r.Revisions(appGUID)
		out = slices.DeleteFunc(all, func(v app.Revision) bool { return !running[v.GUID] })
		return err
	})
	return out, err
}

func (r *RevisionStore) runningRevisions(appGUID string) (map[string]bool, error) {
	ps, err := r.registry().Processes(appGUID)
	if err != nil {
		return nil, err
	}
	d, _, err := r.registry().ActiveDeployment(appGUID)
	if err != nil {
		return nil, err
	}
	running := map[string]bool{}
	for _, p := range ps {
		if p.Started != nil && (p.Type == app.Web || p.Instances > 0) {
			running[p.Started.Revision] = true
		}
	}
	for _, s := range d.Others {
		if s.Instances > 0 {
			running[s.Release.Revision] = true
		}
	}
	return running, nil
}

// Revise stores a revision of an app that is about to start, unless the latest one is
// the same. made reports whether it is new. An app without a droplet, or with revisions
// disabled, gets none.
func (r *RevisionStore) Revise(a app.App) (rev app.Revision, made bool, err error) {
	err = r.update(func(r *Registry) error {
		before, err := r.LatestRevision(a.GUID)
		if err != nil {
			return err
		}
		rev, err = r.revise(a, app.Revision{})
		made = rev.GUID != before.GUID && rev.GUID != ""
		return err
	})
	return rev, made, err
}

// revise is Revise for an app that can be rolled back to an earlier revision.
func (r *RevisionStore) revise(a app.App, back app.Revision) (app.Revision, error) {
	if a.NoRevisions || a.Droplet == "" {
		return app.Revision{}, nil
	}
	next, err := r.present(a)
	if err != nil {
		return next, err
	}
	if back.GUID != "" {
		next.Commands = maps.Clone(back.Commands)
	}
	latest, err := r.LatestRevision(a.GUID)
	if err != nil {
		return next, err
	}
	next.Version, next.Description = 1, "Initial revision."
	if latest.GUID != "" {
		reasons := revisionReasons(latest, next)
		switch {
		case len(reasons) == 0 && back.GUID != "":
			return next, &app.Refused{Reason: "Unable to rollback. The code and configuration you are rolling back to is the same as the deployed revision."}
		case len(reasons) == 0:
			return latest, nil
		case back.GUID != "":
			reasons = append(reasons, fmt.Sprintf("Rolled back to revision %d.", back.Version))
		}
		next.Version, next.Description = latest.Version%lastRevision+1, strings.Join(reasons, " ")
	}
	return r.keepRevision(next)
}

// present returns the present state of the app as a revision.
func (r *RevisionStore) present(a app.App) (app.Revision, error) {
	ps, err := r.registry().Processes(a.GUID)
	if err != nil {
		return app.Revision{}, err
	}
	sidecars, err := r.registry().Sidecars(a.GUID)
	v := app.Revision{App: a.GUID, Droplet: a.Droplet, Env: maps.Clone(a.Env), Commands: map[string]string{}, Sidecars: sidecars}
	for _, p := range ps {
		v.Commands[p.Type] = p.Command
	}
	return v, err
}

// revisionReasons describes the differences in the words and the order of Cloud Foundry.
func revisionReasons(old, next app.Revision) []string {
	var out []string
	if old.Droplet != next.Droplet {
		out = append(out, "New droplet deployed.")
	}
	if !maps.Equal(old.Env, next.Env) {
		out = append(out, "New environment variables deployed.")
	}
	for kind, command := range next.Commands {
		was, known := old.Commands[kind]
		switch {
		case !known:
			out = append(out, fmt.Sprintf("New process type '%s' added.", kind))
		case was == command:
		case was == "":
			out = append(out, fmt.Sprintf("Custom start command added for '%s' process.", kind))
		case command == "":
			out = append(out, fmt.Sprintf("Custom start command removed for '%s' process.", kind))
		default:
			out = append(out, fmt.Sprintf("Custom start command updated for '%s' process.", kind))
		}
	}
	for kind := range old.Commands {
		if _, known := next.Commands[kind]; !known {
			out = append(out, fmt.Sprintf("Process type '%s' removed.", kind))
		}
	}
	if !sameSidecars(old.Sidecars, next.Sidecars) {
		out = append(out, "Sidecars updated.")
	}
	slices.Sort(out)
	return out
}

// LatestRevision returns the newest revision of an app, or the zero value.
func (r *RevisionStore) LatestRevision(appGUID string) (app.Revision, error) {
	keys, err := r.revisionKeys(appGUID)
	if err != nil || len(keys) == 0 {
		return app.Revision{}, err
	}
	return r.Revision(keys[len(keys)-1])
}

// revisionKeys returns the guids of the revisions of an app, oldest first. It reads no
// revision: an app has up to keptRevisions, and each push asks.
func (r *RevisionStore) revisionKeys(appGUID string) ([]string, error) {
	keys, err := r.revisions.KeysBy("made", appGUID+" ")
	there, aerr := r.revisions.KeysBy("app", appGUID)
	if err := errors.Join(err, aerr); err != nil {
		return nil, fmt.Errorf("cannot list revisions of app %s: %w", appGUID, err)
	}
	if slices.Equal(slices.Sorted(slices.Values(keys)), slices.Sorted(slices.Values(there))) {
		return keys, nil
	}
	// An older dewd, which does not know this index, has changed the revisions since.
	all, err := r.Revisions(appGUID)
	keys = nil
	for _, v := range all {
		keys = append(keys, v.GUID)
	}
	return keys, err
}

// keepRevision writes a new revision. It deletes the oldest beyond the limit, and an
// older one with the same number.
func (r *RevisionStore) keepRevision(v app.Revision) (app.Revision, error) {
	old, err := r.outdated(v)
	latest, lerr := r.LatestRevision(v.App)
	if err := errors.Join(err, lerr); err != nil {
		return v, err
	}
	for _, guid := range old {
		if err := r.revisions.Delete(guid); err != nil {
			return v, fmt.Errorf("cannot delete revision %s: %w", guid, err)
		}
	}
	v.GUID, v.CreatedAt = uuid.NewString(), app.Now()
	if !v.CreatedAt.After(latest.CreatedAt) {
		v.CreatedAt = latest.CreatedAt.Add(1) // the newest time identifies the latest revision
	}
	v.UpdatedAt = v.CreatedAt
	if err := r.revisions.Put(v.GUID, v); err != nil {
		return v, fmt.Errorf("cannot store revision %s: %w", v.GUID, err)
	}
	return v, nil
}

// outdated returns the guids of the revisions to delete before a new one is stored.
func (r *RevisionStore) outdated(next app.Revision) ([]string, error) {
	keys, err := r.revisionKeys(next.App)
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	oldest, err := r.Revision(keys[0])
	if err != nil {
		return nil, err
	}
	old := keys[:max(len(keys)-keptRevisions+1, 0)]
	if oldest.Version < next.Version {
		return old, nil // the numbers ascend, so each is there once
	}
	all, err := r.Revisions(next.App)
	for _, v := range all[min(len(old), len(all)):] {
		if v.Version == next.Version {
			old = append(old, v.GUID)
		}
	}
	return old, err
}

// UpdateRevision changes labels and annotations.
func (r *RevisionStore) UpdateRevision(guid string, change app.MetadataChange) (v app.Revision, err error) {
	err = r.update(func(r *Registry) error {
		if v, err = r.Revision(guid); err != nil {
			return err
		}
		v.Metadata, v.UpdatedAt = v.Metadata.Merge(change), app.Now()
		if err := v.Metadata.Validate(); err != nil {
			return err
		}
		return r.revisions.Put(guid, v)
	})
	return v, err
}

// rollBack sets the app to a revision, and records its state before in d.
func (r *RevisionStore) rollBack(d *app.Deployment, a *app.App, to app.Revision) error {
	all := r.registry()
	if a.NoRevisions {
		return &app.Refused{Reason: "Cannot create deployment from a revision for an app without revisions enabled"}
	}
	p, err := all.Process(a.GUID)
	if err != nil {
		return err
	}
	sidecars, err := all.Sidecars(a.GUID)
	if err != nil {
		return err
	}
	d.Before = &app.Before{Env: maps.Clone(a.Env), Command: p.Command, Sidecars: sidecars}
	a.Droplet, a.Env = to.Droplet, maps.Clone(to.Env)
	return all.replaceSidecars(a.GUID, to.Sidecars)
}
