package api

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/services"
)

// Apps that are created in an org while it is deleted are deleted with it, including
// their files.
func TestDeletionFindsLateResources(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"space", "org"} {
		w := newTestServer(t)
		a, _, _ := w.pushed("shop")
		var late, pkg string
		var once sync.Once
		w.c.Registry.Listen(func(process string) {
			if _, err := w.c.Registry.App(a.GUID); process != a.GUID || !errors.Is(err, app.ErrNotFound) {
				return
			}
			once.Do(func() { late, pkg = w.lateComer(place) })
		})
		path := map[string]string{"space": "/v3/spaces/" + w.space.GUID, "org": "/v3/organizations/" + w.space.Org}[place]
		w.complete(w.want(202, "DELETE", path, "", nil))
		if late == "" {
			t.Fatal("nobody came")
		}
		w.want(404, "GET", path, "", nil)
		w.want(404, "GET", "/v3/apps/"+late, "", nil)
		if _, err := w.c.Packages.Get(pkg); !errors.Is(err, droplet.ErrNotFound) {
			t.Errorf("%s: the package of what came late is left: %v", place, err)
		}
	}
}

// lateComer creates an app with a package in the space, or in a new space of its org.
func (w *testServer) lateComer(place string) (guid, pkg string) {
	w.t.Helper()
	space := w.space.GUID
	if place == "org" {
		space = must(w.c.Registry.PutSpace(app.Space{Name: "late", Org: w.space.Org}))(w.t).GUID
	}
	a := must(w.c.Registry.PutApp(app.App{Name: "late", Space: space}))(w.t)
	return a.GUID, must(w.c.Packages.Create(a.GUID))(w.t).GUID
}

// A job that is refused has the same error as a refused request, because clients show
// only that.
func TestRefusedJob(t *testing.T) {
	t.Parallel()
	p := &platform.Platform{Explain: rest.ToError}
	always := platform.UntilEmpty(func() error { return platform.ErrNotEmpty })
	for err, want := range map[error]app.JobError{
		always: {Code: 10008, Title: "CF-UnprocessableEntity", Detail: "New apps or spaces keep appearing. Try again once nothing is being created"},
		fmt.Errorf("db: %w", &services.Refused{Status: 409, Code: 60016, Title: "CF-AsyncServiceInstanceOperationInProgress", Detail: "busy"}): {Code: 60016, Title: "CF-AsyncServiceInstanceOperationInProgress", Detail: "busy"},
	} {
		got := (*app.JobError)(nil)
		if !errors.As(p.ForJob(err), &got) || *got != want {
			t.Errorf("%v is told as %v, want %v", err, got, want)
		}
	}
	if disk := errors.New("the disk is gone"); !errors.Is(p.ForJob(disk), disk) || p.ForJob(nil) != nil {
		t.Error("another error did not stay as it is")
	}
}

// A task whose droplet has no files yet is refused, because it could never start.
func TestTaskWithoutFiles(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	var d struct{ GUID string }
	w.want(201, "POST", "/v3/droplets", `{"relationships":{"app":{"data":{"guid":"`+a.GUID+`"}}}}`, &d)
	w.want(422, "POST", "/v3/apps/"+a.GUID+"/tasks", `{"command":"x","droplet_guid":"`+d.GUID+`"}`, nil)
	if ts := must(w.c.Registry.TasksOf(a.GUID))(t); len(ts) != 0 {
		t.Errorf("tasks = %v, want none", ts)
	}
}
