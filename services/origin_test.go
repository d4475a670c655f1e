package services

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/services/servicestest"
)

// A broker whose URL a user chose is asked where the policy allows it, and the error
// does not tell what is there. An administrator's is asked anywhere, and so is one
// from before dewd kept who chose it.
func TestBrokersOfUsersAreRestricted(t *testing.T) {
	t.Parallel()
	for _, open := range []bool{true, false} {
		h, fake := over(t, false)
		if !open {
			h.URL = "http://127.0.0.1:1" // no test is ever given that port
		}
		m := &base{}
		for _, o := range []Origin{ByUser, ByAdmin, ""} {
			client, err := m.clientOf(ServiceBroker{GUID: "g", URL: h.URL, Username: "user", Password: "pass", SetBy: o})
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.Catalog(t.Context())
			switch {
			case o == ByUser:
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

// A redirect of a broker that may be asked leads no further than the policy allows.
func TestBrokerRedirectsToLoopback(t *testing.T) {
	t.Parallel()
	secret, fake := over(t, false)
	door := httptest.NewServer(http.RedirectHandler(secret.URL+"v2/catalog", http.StatusTemporaryRedirect))
	t.Cleanup(door.Close)
	m := &base{}
	if err := m.cfg.Egress.Allow.UnmarshalText([]byte("localhost")); err != nil {
		t.Fatal(err)
	}
	client, err := m.clientOf(ServiceBroker{GUID: "g", URL: strings.Replace(door.URL, "127.0.0.1", "localhost", 1), Username: "user", Password: "pass", SetBy: ByUser})
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
		was  Origin
		to   *string
		by   Origin
		want Origin
	}{
		{"nothing changes", ByAdmin, nil, ByUser, ByAdmin},
		{"a user's own", ByAdmin, ptr("new"), ByUser, ByUser},
		{"a user sends the same", ByAdmin, ptr("old"), ByUser, ByAdmin},
		{"a user sends the same, from before", "", ptr("old"), ByUser, ""},
		{"a user changes one from before", "", ptr("new"), ByUser, ByUser},
		{"an administrator confirms", ByUser, ptr("old"), ByAdmin, ByAdmin},
		{"an administrator's own", ByUser, ptr("new"), ByAdmin, ByAdmin},
		{"an operation from before", ByUser, ptr("new"), "", ""},
	} {
		s, o := "old", tt.was
		setURL(&s, &o, tt.to, tt.by)
		if o != tt.want || tt.to != nil && s != *tt.to {
			t.Errorf("%s: %q set by %q, want %q", tt.name, s, o, tt.want)
		}
	}
}

// The URLs of a user-provided instance are the user's in its bindings, and another's
// as soon as another sets them.
func TestProvidedURLsAreRestricted(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		i := w.provided(NewInstance{Name: "logs", SyslogDrain: "syslog://a.example:1", RouteService: "https://a.example", SetBy: ByUser})
		if _, _, err := w.CreateBinding(NewBinding{Type: AppBinding, Instance: i.GUID, App: w.app.GUID}); err != nil {
			t.Fatal(err)
		}
		restricted := func() bool { return must(w.Drains())[0].Restricted }
		if !restricted() {
			t.Error("the drain of a user is not restricted")
		}
		for _, step := range []struct {
			change InstanceChange
			want   bool
		}{
			{InstanceChange{Credentials: json.RawMessage(`{}`), SetBy: ByAdmin}, true},
			{InstanceChange{RouteService: ptr("https://b.example"), SetBy: ByAdmin}, true},
			{InstanceChange{SyslogDrain: ptr("syslog://a.example:1"), SetBy: ByAdmin}, false},
			{InstanceChange{SyslogDrain: ptr("syslog://a.example:1"), SetBy: ByUser}, false},
			{InstanceChange{SyslogDrain: ptr("syslog://c.example:1"), SetBy: ByUser}, true},
		} {
			if _, _, err := w.UpdateInstance(i.GUID, step.change); err != nil || restricted() != step.want {
				t.Errorf("%+v: restricted %v, %v", step.change, restricted(), err)
			}
		}
	})
}

// What the broker of a user gives is the user's, too: the answers are whatever the
// user likes. One of a space counts as such even if nobody kept who registered it.
func TestURLsFromBrokersAreRestricted(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.broker.On(servicestest.Bind, servicestest.Behaviour{Body: `{"syslog_drain_url": "syslog://127.0.0.1:514"}`})
		i, _ := w.create("small", "db")
		for _, tt := range []struct {
			set   Origin
			space string
			want  bool
		}{
			{"", "", false}, {ByAdmin, "", false}, {ByAdmin, w.space.GUID, false}, {ByUser, w.space.GUID, true}, {"", w.space.GUID, true},
		} {
			sb := must(w.Broker(w.sb.GUID))
			sb.SetBy, sb.Space = tt.set, tt.space
			if err := w.brokers.Put(sb.GUID, sb); err != nil {
				t.Fatal(err)
			}
			bi, o, err := w.CreateBinding(NewBinding{Type: AppBinding, Instance: i.GUID, App: w.app.GUID, By: somebody})
			if err != nil || w.ended(o).State != Succeeded {
				t.Fatal(o, err)
			}
			if got := must(w.Drains())[0].Restricted; got != tt.want {
				t.Errorf("set by %q, space %q: restricted %v", tt.set, tt.space, got)
			}
			if o, err := w.DeleteBinding(bi.GUID, somebody); err != nil || w.ended(o).State != Succeeded {
				t.Fatal(o, err)
			}
		}
	})
}

// Only what a user may have chosen before dewd kept it is looked at again.
func TestStoredURLs(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		broker := func(name, space string, o Origin) {
			if _, _, err := w.CreateBroker(NewBroker{Name: name, URL: "http://" + name + ".example", Username: "u", Password: "p", Space: space, SetBy: o}); err != nil {
				t.Fatal(err)
			}
		}
		broker("everybodys", "", "")
		broker("old", w.space.GUID, "")
		broker("new", w.space.GUID, ByUser)
		broker("blessed", w.space.GUID, ByAdmin)
		w.provided(NewInstance{Name: "a", SyslogDrain: "syslog://a.example:1", RouteService: "https://a.example"})
		w.provided(NewInstance{Name: "b", SyslogDrain: "syslog://b.example:1", SetBy: ByUser})
		w.provided(NewInstance{Name: "c"})
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
