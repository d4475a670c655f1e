package marketplace

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/drain"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/services/servicestest"
)

// VCAP_SERVICES has Cloud Foundry's keys in a fixed order.
func TestAppServices(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		if got := must(w.AppServices(w.app.GUID)); got.JSON != "" || len(got.Names) > 0 {
			t.Errorf("nothing bound: %+v", got)
		}
		w.broker.On(servicestest.Bind, servicestest.Behaviour{Body: `{"credentials": {"uri": "redis://u:p&<>@h"}, "syslog_drain_url": "syslog://logs.example:514",
			"volume_mounts": [{"container_dir": "/data", "mode": "rw", "device_type": "shared", "device": {"secret": 1}, "driver": "nfs"}]}`})
		i, o, err := w.CreateInstance(services.NewInstance{Type: services.Managed, Name: "db", Space: w.space.GUID, Plan: w.planNamed("small").GUID, Tags: []string{"mine", "kv"}})
		if err != nil || w.waitFor(o).State != services.Succeeded {
			t.Fatal(o, err)
		}
		bi, _ := w.bind(i)
		other := w.provided(services.NewInstance{Name: "other", Credentials: json.RawMessage(`{"key": "v"}`)})
		bo, _, err := w.CreateBinding(services.NewBinding{Type: services.AppBinding, Name: "nick", Instance: other.GUID, App: w.app.GUID})
		if err != nil {
			t.Fatal(err)
		}
		empty := w.provided(services.NewInstance{Name: "an empty one"})
		be, _, err := w.CreateBinding(services.NewBinding{Type: services.AppBinding, Instance: empty.GUID, App: w.app.GUID})
		if err != nil {
			t.Fatal(err)
		}
		f := must(w.AppServices(w.app.GUID))
		if again := must(w.AppServices(w.app.GUID)); again.JSON != f.JSON {
			t.Error("the order changes")
		}
		if d := cmp.Diff([]string{"an empty one", "db", "other"}, f.Names); d != "" {
			t.Error(d)
		}
		managed := `{"cache":[{"label":"cache","provider":null,"plan":"small","name":"db","tags":["kv","mine"],` +
			`"instance_guid":"` + i.GUID + `","instance_name":"db","binding_guid":"` + bi.GUID + `","binding_name":null,` +
			`"credentials":{"uri":"redis://u:p&<>@h"},"syslog_drain_url":"syslog://logs.example:514",` +
			`"volume_mounts":[{"container_dir":"/data","device_type":"shared","mode":"rw"}]}],"user-provided":[`
		if !strings.HasPrefix(f.JSON, managed) {
			t.Errorf("VCAP_SERVICES = %s\nwant it to begin with %s", f.JSON, managed)
		}
		for _, want := range []string{
			`{"label":"user-provided","name":"nick","tags":[],"instance_guid":"` + other.GUID + `","instance_name":"other",` +
				`"binding_guid":"` + bo.GUID + `","binding_name":"nick","credentials":{"key":"v"},"syslog_drain_url":null,"volume_mounts":[]}`,
			`{"label":"user-provided","name":"an empty one","tags":[],"instance_guid":"` + empty.GUID + `","instance_name":"an empty one",` +
				`"binding_guid":"` + be.GUID + `","binding_name":null,"credentials":{},"syslog_drain_url":null,"volume_mounts":[]}`,
		} {
			if !strings.Contains(f.JSON, want) {
				t.Errorf("VCAP_SERVICES = %s\nwant %s in it", f.JSON, want)
			}
		}
	})
}

func TestReadable(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`"a\u0026b\u003c\u003e"`: `"a&b<>"`, `"\\u0026"`: `"\\u0026"`, `"\\\u0026"`: `"\\&"`, `"\u00e9\n\""`: `"\u00e9\n\""`, `\`: `\`, "": "",
	} {
		if got := services.ReadableJSON([]byte(in)); got != want {
			t.Errorf("services.ReadableJSON(%s) = %s, want %s", in, got, want)
		}
	}
}

// Unusable bindings are left out, and only the newest of several bindings is included.
func TestAppServicesLeavesOut(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		i, _ := w.create("small", "db")
		w.bind(i)
		second, o, err := w.CreateBinding(services.NewBinding{Type: services.AppBinding, Instance: i.GUID, App: w.app.GUID, Multiple: true})
		if err != nil || w.waitFor(o).State != services.Succeeded {
			t.Fatal(o, err)
		}
		if f := must(w.AppServices(w.app.GUID)); strings.Count(f.JSON, "binding_guid") != 1 {
			t.Errorf("VCAP_SERVICES = %s", f.JSON)
		}
		w.broker.On(servicestest.Unbind, servicestest.Behaviour{NoEffect: true, Status: 400})
		w.waitFor(must(w.DeleteBinding(second.GUID, testActor)))
		if f := must(w.AppServices(w.app.GUID)); strings.Contains(f.JSON, second.GUID) {
			t.Errorf("VCAP_SERVICES = %s", f.JSON)
		}
		broken, _ := w.create("small", "broken")
		w.broker.On(servicestest.Bind, servicestest.Behaviour{Status: 500})
		w.bind(broken)
		if f := must(w.AppServices(w.app.GUID)); strings.Contains(f.JSON, "broken") {
			t.Errorf("VCAP_SERVICES = %s", f.JSON)
		}
	})
}

// All bindings of a user-provided instance get its current URLs.
func TestDrainsAndRouteServices(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		i := w.provided(services.NewInstance{Name: "logs", SyslogDrain: "syslog://a.example:1"})
		if _, _, err := w.CreateBinding(services.NewBinding{Type: services.AppBinding, Instance: i.GUID, App: w.app.GUID}); err != nil {
			t.Fatal(err)
		}
		want := []services.Drain{{App: w.app.GUID, URL: "syslog://a.example:1", Name: "logs"}}
		if d := cmp.Diff(want, must(w.Drains())); d != "" {
			t.Error(d)
		}
		if _, _, err := w.UpdateInstance(i.GUID, services.InstanceChange{SyslogDrain: ptr("https://b.example")}); err != nil {
			t.Fatal(err)
		}
		want[0].URL = "https://b.example"
		if d := cmp.Diff(want, must(w.Drains())); d != "" {
			t.Error(d)
		}
		credentials := json.RawMessage(`{"cert":"C","key":"K","ca":"A","password":"p"}`)
		if _, _, err := w.UpdateInstance(i.GUID, services.InstanceChange{Credentials: credentials}); err != nil {
			t.Fatal(err)
		}
		want[0].TLS = drain.TLS{Cert: "C", Key: "K", CA: "A"}
		if d := cmp.Diff(want, must(w.Drains())); d != "" {
			t.Error(d)
		}
		o, err := w.DeleteInstance(i.GUID, testActor)
		if err != nil || o.GUID != "" || len(must(w.Drains())) > 0 {
			t.Errorf("operation %+v, error %v, drains %v", o, err, must(w.Drains()))
		}
	})
}
