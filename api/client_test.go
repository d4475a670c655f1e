package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/testkit"
)

// dial returns a client that is connected to the server over a socket, like the
// daemon's.
func (w *testServer) dial(t *testing.T) *client.Client {
	t.Helper()
	run := t.TempDir()
	l := must(net.Listen("unix", filepath.Join(run, client.Socket)))(t)
	srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: w.local, ConnContext: PeerContext}}
	srv.Start()
	t.Cleanup(srv.Close)
	return must(client.New(client.Options{Run: run}))(t)
}

// The client of this repository can push an app, from the manifest to the running app.
func TestClientPushes(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	c := w.dial(t)
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	space := must(c.Orgs().Spaces(ctx))(t)[0].GUID
	if d := must(c.Apps().DiffManifest(ctx, space, []byte(shopManifest)))(t); len(d) == 0 {
		t.Error("the diff of a new app is empty")
	}
	check(c.Apps().ApplyManifest(ctx, space, []byte(shopManifest)))
	a := must(c.Apps().ByName(ctx, "shop"))(t)
	pkg := must(c.Bits().CreatePackage(ctx, a.GUID))(t)
	bits := zipped(t, map[string]string{"Procfile": "web: ./serve\n", "serve": "#!/bin/sh\n"})
	pkg = must(c.Bits().UploadPackage(ctx, pkg.GUID, nil, func(out io.Writer) error {
		_, err := out.Write(bits)
		return err
	}))(t)
	if newest, ok, err := c.Bits().NewestPackage(ctx, a.GUID); err != nil || !ok || newest.GUID != pkg.GUID {
		t.Errorf("newest package = %+v, %v, %v, want %s", newest, ok, err, pkg.GUID)
	}
	b := must(c.Bits().CreateBuild(ctx, pkg.GUID))(t)
	check(client.Poll(ctx, func() (bool, error) {
		var err error
		b, err = c.Bits().Build(ctx, b.GUID)
		return b.State != v3.BuildStaging, err
	}))
	if staged := must(c.Bits().StagedBuilds(ctx, a.GUID))(t); len(staged) != 1 {
		t.Fatalf("staged builds = %+v, want one", staged)
	}
	check(c.Bits().SetDroplet(ctx, a.GUID, b.Droplet.GUID))
	if d := must(c.Bits().Droplet(ctx, a.GUID))(t); d.ProcessTypes["web"] != "./serve" {
		t.Errorf("droplet = %+v, want the Procfile's command", d)
	}
	if a = must(c.Apps().SetState(ctx, a.GUID, client.Restart))(t); a.State != v3.AppStarted {
		t.Errorf("state = %s, want STARTED", a.State)
	}
	must(c.Processes().Scale(ctx, a.GUID, "web", v3.Scale{Instances: new(v3.Int(2))}))(t)
	if stats := must(c.Processes().Stats(ctx, a.GUID))(t); len(stats) != 2 || stats[0].State != v3.StateStarting {
		t.Errorf("stats = %+v, want two STARTING", stats)
	}
	if ss := must(c.Processes().Sidecars(ctx, a.GUID))(t); len(ss) != 1 || *ss[0].MemoryInMB != 64 {
		t.Errorf("sidecars = %+v, want one of 64 MB", ss)
	}
	if rs := must(c.Routes().OfApp(ctx, a.GUID))(t); len(rs) != 1 {
		t.Errorf("routes = %+v, want one", rs)
	} else {
		check(c.Routes().Delete(ctx, rs[0].GUID))
	}
	check(c.Apps().Delete(ctx, a.GUID))
	if as := must(c.Apps().List(ctx))(t); len(as) != 0 {
		t.Errorf("after delete: %+v, want no apps", as)
	}
}

// The client reads dew's own endpoints and logs.
func TestClientReads(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	c := w.dial(t)
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	a := w.startedApp("shop")
	w.fake.set(a.GUID, runtime.Status{State: runtime.Running})
	crashAt(w, a, 0, time.Now())
	value := "1"
	if err := c.Apps().UpdateEnv(ctx, a.GUID, map[string]*string{"A": &value, "B": nil}); err != nil {
		t.Error(err)
	}
	if env := must(c.Apps().Env(ctx, a.GUID))(t); env.Environment["A"] != "1" {
		t.Errorf("env = %+v, want A=1", env)
	}
	if st := must(c.Daemon().Status(ctx))(t); st.Running != 1 || st.Version != "1.2.3" {
		t.Errorf("status = %+v, want one running", st)
	}
	if cs := must(c.Processes().Crashes(ctx, a.GUID))(t); len(cs) != 1 || cs[0].First.Sidecar != "config server" {
		t.Errorf("crashes = %+v, want one of the config server", cs)
	}
	if es := must(c.Apps().Events(ctx, a.GUID, 50))(t); len(es) != 9 {
		t.Errorf("events = %v, want 9", eventTypes(es))
	}
	if err := errors.Join(
		c.Processes().Kill(ctx, a.GUID, v3.Kill{Signal: "TERM"}), c.Processes().RestartInstance(ctx, a.GUID, "web", 0), c.Daemon().Shutdown(ctx, v3.Shutdown{Apps: true}),
	); err != nil {
		t.Error(err)
	}
	for range 30 {
		w.print(a.GUID, "old", "old", "h\xffi")
	}
	var recent []string
	err := c.Logs().Stream(ctx, a.GUID, client.LogQuery{Newest: 2}, client.Lines{Line: func(l *v3.Line) error {
		recent = append(recent, string(l.Text))
		return nil
	}})
	if err != nil || len(recent) != 2 || recent[1] != "h\xffi" {
		t.Errorf("recent = %q, %v, want two, the last one h\\xffi", recent, err)
	}
	var got []string
	enough := errors.New("enough")
	err = c.Logs().Stream(ctx, a.GUID, client.LogQuery{Newest: 1, Follow: true}, client.Lines{Line: func(l *v3.Line) error {
		if got = append(got, string(l.Text)); len(got) == 2 {
			return enough
		}
		w.print(a.GUID, "new")
		return nil
	}})
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0] != "h\xffi" || got[1] != "new" {
		t.Errorf("stream = %q, want the newest line and the next", got)
	}
}
