package marketplace

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/services/servicestest"
)

// served serves a broker on the network.
func served(t *testing.T) (url string, b *servicestest.Broker) {
	t.Helper()
	b = servicestest.New(testCatalog)
	s := httptest.NewServer(b)
	t.Cleanup(s.Close)
	return s.URL + "/", b
}

// dewd contacts a broker whose URL a user set only where the policy allows it. The
// error does not reveal what is at that address. dewd contacts an administrator's
// broker anywhere, and a broker that was stored before dewd recorded origins.
func TestBrokersOfUsersAreRestricted(t *testing.T) {
	t.Parallel()
	for _, open := range []bool{true, false} {
		url, fake := served(t)
		if !open {
			url = "http://127.0.0.1:1" // no test ever listens on that port
		}
		m := &base{}
		for _, o := range []services.Origin{services.ByUser, services.ByAdmin, ""} {
			client, err := m.clientOf(services.ServiceBroker{GUID: "g", URL: url, Username: "user", Password: "pass", SetBy: o})
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.Catalog(t.Context())
			switch {
			case o == services.ByUser:
				const want = "The service broker could not be reached: dew does not connect to a loopback address for users who are not administrators; an administrator can allow the host with dewd --allow-broker-hosts"
				if err == nil || err.Error() != want || len(fake.Requests("")) > 0 {
					t.Errorf("open %v: %v, requests: %v", open, err, fake.Requests(""))
				}
			case (err == nil) != open:
				t.Errorf("open %v, set by %q: %v", open, o, err)
			}
		}
	}
}

// A redirect from an allowed broker is followed only where the policy allows it.
func TestBrokerRedirectsToLoopback(t *testing.T) {
	t.Parallel()
	secret, fake := served(t)
	door := httptest.NewServer(http.RedirectHandler(secret+"v2/catalog", http.StatusTemporaryRedirect))
	t.Cleanup(door.Close)
	m := &base{}
	if err := m.cfg.Egress.Allow.UnmarshalText([]byte("localhost")); err != nil {
		t.Fatal(err)
	}
	client, err := m.clientOf(services.ServiceBroker{GUID: "g", URL: strings.Replace(door.URL, "127.0.0.1", "localhost", 1), Username: "user", Password: "pass", SetBy: services.ByUser})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Catalog(t.Context()); err == nil || len(fake.Requests("")) > 0 {
		t.Errorf("%v, requests behind the redirect: %v", err, fake.Requests(""))
	}
}

func TestSetURL(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		was  services.Origin
		to   *string
		by   services.Origin
		want services.Origin
	}{
		{"nothing changes", services.ByAdmin, nil, services.ByUser, services.ByAdmin},
		{"a user's own", services.ByAdmin, ptr("new"), services.ByUser, services.ByUser},
		{"a user sends the same", services.ByAdmin, ptr("old"), services.ByUser, services.ByAdmin},
		{"a user sends the same, from before", "", ptr("old"), services.ByUser, ""},
		{"a user changes one from before", "", ptr("new"), services.ByUser, services.ByUser},
		{"an administrator confirms", services.ByUser, ptr("old"), services.ByAdmin, services.ByAdmin},
		{"an administrator's own", services.ByUser, ptr("new"), services.ByAdmin, services.ByAdmin},
		{"an operation from before", services.ByUser, ptr("new"), "", ""},
	} {
		s, o := "old", tt.was
		setURL(&s, &o, tt.to, tt.by)
		if o != tt.want || tt.to != nil && s != *tt.to {
			t.Errorf("%s: %q set by %q, want %q", tt.name, s, o, tt.want)
		}
	}
}

// The URLs of a user-provided instance count as the user's in its bindings. If someone
// else sets them, they count as theirs.
func TestProvidedURLsAreRestricted(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		i := w.provided(services.NewInstance{Name: "logs", SyslogDrain: "syslog://a.example:1", RouteService: "https://a.example", SetBy: services.ByUser})
		if _, _, err := w.CreateBinding(services.NewBinding{Type: services.AppBinding, Instance: i.GUID, App: w.app.GUID}); err != nil {
			t.Fatal(err)
		}
		restricted := func() bool { return must(w.Drains())[0].Restricted }
		if !restricted() {
			t.Error("the drain of a user is not restricted")
		}
		for _, step := range []struct {
			change services.InstanceChange
			want   bool
		}{
			{services.InstanceChange{Credentials: json.RawMessage(`{}`), SetBy: services.ByAdmin}, true},
			{services.InstanceChange{RouteService: ptr("https://b.example"), SetBy: services.ByAdmin}, true},
			{services.InstanceChange{SyslogDrain: ptr("syslog://a.example:1"), SetBy: services.ByAdmin}, false},
			{services.InstanceChange{SyslogDrain: ptr("syslog://a.example:1"), SetBy: services.ByUser}, false},
			{services.InstanceChange{SyslogDrain: ptr("syslog://c.example:1"), SetBy: services.ByUser}, true},
		} {
			if _, _, err := w.UpdateInstance(i.GUID, step.change); err != nil || restricted() != step.want {
				t.Errorf("%+v: restricted %v, %v", step.change, restricted(), err)
			}
		}
	})
}

// URLs that a user's broker returns count as the user's, because the user controls the
// responses. That includes a space-scoped broker without a recorded origin.
func TestURLsFromBrokersAreRestricted(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.broker.On(servicestest.Bind, servicestest.Behaviour{Body: `{"syslog_drain_url": "syslog://127.0.0.1:514"}`})
		i, _ := w.create("small", "db")
		for _, tt := range []struct {
			set   services.Origin
			space string
			want  bool
		}{
			{"", "", false}, {services.ByAdmin, "", false}, {services.ByAdmin, w.space.GUID, false}, {services.ByUser, w.space.GUID, true}, {"", w.space.GUID, true},
		} {
			sb := must(w.Broker(w.sb.GUID))
			sb.SetBy, sb.Space = tt.set, tt.space
			if err := w.brokers.Put(sb.GUID, sb); err != nil {
				t.Fatal(err)
			}
			bi, o, err := w.CreateBinding(services.NewBinding{Type: services.AppBinding, Instance: i.GUID, App: w.app.GUID, By: testActor})
			if err != nil || w.waitFor(o).State != services.Succeeded {
				t.Fatal(o, err)
			}
			if got := must(w.Drains())[0].Restricted; got != tt.want {
				t.Errorf("set by %q, space %q: restricted %v", tt.set, tt.space, got)
			}
			if o, err := w.DeleteBinding(bi.GUID, testActor); err != nil || w.waitFor(o).State != services.Succeeded {
				t.Fatal(o, err)
			}
		}
	})
}

// StoredURLs returns only URLs that a user may have set before dewd recorded origins.
func TestStoredURLs(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		broker := func(name, space string, o services.Origin) {
			if _, _, err := w.CreateBroker(services.NewBroker{Name: name, URL: "http://" + name + ".example", Username: "u", Password: "p", Space: space, SetBy: o}); err != nil {
				t.Fatal(err)
			}
		}
		broker("everybodys", "", "")
		broker("old", w.space.GUID, "")
		broker("new", w.space.GUID, services.ByUser)
		broker("blessed", w.space.GUID, services.ByAdmin)
		w.provided(services.NewInstance{Name: "a", SyslogDrain: "syslog://a.example:1", RouteService: "https://a.example"})
		w.provided(services.NewInstance{Name: "b", SyslogDrain: "syslog://b.example:1", SetBy: services.ByUser})
		w.provided(services.NewInstance{Name: "c"})
		var got []string
		for _, u := range must(w.StoredURLs()) {
			got = append(got, u.Kind+" "+u.Name+" "+u.URL.Host)
		}
		want := []string{"service broker old old.example", "log drain a a.example:1", "route service a a.example"}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	})
}
