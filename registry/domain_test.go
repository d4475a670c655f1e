package registry

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
)

func TestOrgsAndSpaces(t *testing.T) {
	r := newRegistry(t)
	o := one[app.Org](t)(r.PutOrg(app.Org{Name: "shop", Metadata: app.Metadata{Labels: map[string]string{"a": "b"}}}))
	s := one[app.Space](t)(r.PutSpace(app.Space{Name: "test", Org: o.GUID}))
	if diff := cmp.Diff(one[app.Org](t)(r.OrgByName("shop")), o); diff != "" || o.CreatedAt.IsZero() {
		t.Errorf("org by name (-got +want):\n%s", diff)
	}
	if diff := cmp.Diff(one[app.Space](t)(r.SpaceIn(o.GUID, "test")), s); diff != "" || s.CreatedAt.IsZero() {
		t.Errorf("space by name (-got +want):\n%s", diff)
	}
	changed := one[app.Org](t)(r.UpdateOrg(o.GUID, func(o *app.Org) error { o.Suspended = true; return nil }))
	if !changed.Suspended || !changed.CreatedAt.Equal(o.CreatedAt) || changed.UpdatedAt.Before(o.UpdatedAt) {
		t.Errorf("changed org = %+v", changed)
	}
	_, taken := r.PutOrg(app.Org{Name: "shop"})
	_, unnamed := r.PutOrg(app.Org{Name: " "})
	_, labelled := r.PutOrg(app.Org{Name: "x", Metadata: app.Metadata{Labels: map[string]string{"!": ""}}})
	_, twice := r.PutSpace(app.Space{Name: "test", Org: o.GUID})
	_, nowhere := r.PutSpace(app.Space{Name: "test", Org: "nowhere"})
	_, missing := r.UpdateSpace("nowhere", func(*app.Space) error { return nil })
	for name, err := range map[string]error{"taken": taken, "unnamed": unnamed, "labelled": labelled, "twice": twice} {
		if len(keys(err)) != 1 {
			t.Errorf("%s = %v, want what is wrong", name, err)
		}
	}
	if !errors.Is(nowhere, app.ErrNotFound) || !errors.Is(missing, app.ErrNotFound) {
		t.Errorf("space nowhere = %v, %v, want ErrNotFound", nowhere, missing)
	}
}

// What is in a place goes with it, and nothing else does.
func TestDeletePlaces(t *testing.T) {
	r, home := inSpace(t)
	o := one[app.Org](t)(r.PutOrg(app.Org{Name: "shop"}))
	s := one[app.Space](t)(r.PutSpace(app.Space{Name: "test", Org: o.GUID}))
	own := one[app.Domain](t)(r.PutDomain(app.Domain{Name: "shop.example.com", Org: o.GUID, SharedWith: []string{home.Org}}))
	lent := one[app.Domain](t)(r.PutDomain(app.Domain{Name: "home.example.com", Org: home.Org, SharedWith: []string{o.GUID}}))
	gone := apply(t, r, s, "applications: [{name: shop, routes: [{route: a.shop.example.com}]}]")[0]
	kept := apply(t, r, home, "applications: [{name: shop, routes: [{route: b.shop.example.com}, {route: c.home.example.com}]}]")[0]
	if err := r.DeleteOrg(o.GUID); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"org": second(r.Org(o.GUID)), "space": second(r.Space(s.GUID)), "domain": second(r.Domain(own.GUID)),
		"app": second(r.App(gone.GUID)), "again": r.DeleteOrg(o.GUID), "space again": r.DeleteSpace(s.GUID),
	} {
		if !errors.Is(err, app.ErrNotFound) {
			t.Errorf("%s: %v, want ErrNotFound", name, err)
		}
	}
	if diff := cmp.Diff(urls(t, r, kept), []string{"c.home.example.com"}); diff != "" {
		t.Errorf("routes of the other org (-got +want):\n%s", diff)
	}
	if d := one[app.Domain](t)(r.Domain(lent.GUID)); len(d.SharedWith) > 0 {
		t.Errorf("domain is still shared with %v", d.SharedWith)
	}
}

func second[T any](_ T, err error) error { return err }

func TestDomainNames(t *testing.T) {
	r, home := inSpace(t)
	o := one[app.Org](t)(r.PutOrg(app.Org{Name: "shop"}))
	one[app.Domain](t)(r.PutDomain(app.Domain{Name: "Shop.Example.com", Org: o.GUID}))
	apply(t, r, home, "applications: [{name: shop, default-route: true}]")
	for _, tt := range []struct {
		name string
		d    app.Domain
		key  string // empty: it is fine
	}{
		{"another", app.Domain{Name: "other.example.com"}, ""},
		{"below one's own", app.Domain{Name: "a.shop.example.com", Org: o.GUID}, ""},
		{"below one that all share", app.Domain{Name: "mine.dew.localhost", Org: home.Org}, ""},
		{"taken", app.Domain{Name: "shop.example.com", Org: o.GUID}, "name"},
		{"below another's", app.Domain{Name: "b.shop.example.com", Org: home.Org}, "name"},
		{"above another's", app.Domain{Name: "example.com", Org: home.Org}, "name"},
		{"above another's, for all", app.Domain{Name: "example.com"}, "name"},
		{"name of a route", app.Domain{Name: "shop.dew.localhost", Org: o.GUID}, "name"},
		{"no name", app.Domain{}, "domain"},
		{"internal of one org", app.Domain{Name: "x.internal", Internal: true, Org: o.GUID}, "internal"},
		{"shared without an owner", app.Domain{Name: "x.com", SharedWith: []string{o.GUID}}, "shared_organizations"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := r.PutDomain(tt.d)
			if tt.key == "" && err != nil || tt.key != "" && !cmp.Equal(keys(err), []string{tt.key}) {
				t.Errorf("PutDomain(%+v) = %v, want key %q", tt.d, err, tt.key)
			}
		})
	}
	if _, err := r.PutDomain(app.Domain{Name: "x.com", Org: "nowhere"}); !errors.Is(err, app.ErrNotFound) {
		t.Errorf("domain of an unknown org = %v, want ErrNotFound", err)
	}
	if err := r.DeleteDomain(one[app.Domain](t)(r.DefaultDomain()).GUID); len(keys(err)) != 1 {
		t.Errorf("DeleteDomain of the default one = %v, want a refusal", err)
	}
}

func TestUsersWrittenAbout(t *testing.T) {
	r := newRegistry(t)
	u := one[app.User](t)(r.PutUser(app.User{GUID: "ann", Metadata: app.Metadata{Labels: map[string]string{"team": "red"}}}))
	if diff := cmp.Diff(one[app.User](t)(r.User("ann")), u); diff != "" {
		t.Errorf("user (-got +want):\n%s", diff)
	}
	one[app.User](t)(r.PutUser(app.User{GUID: "ann", Gone: true}))
	back := one[app.User](t)(r.PutUser(app.User{GUID: "ann"}))
	if back.CreatedAt.Equal(u.CreatedAt) || back.Gone || !back.Metadata.IsZero() {
		t.Errorf("user that came back = %+v, want a new one", back)
	}
	if _, err := r.PutUser(app.User{}); len(keys(err)) != 1 {
		t.Errorf("user without a guid = %v, want a refusal", err)
	}
	if all := one[[]app.User](t)(r.Users()); len(all) != 1 {
		t.Errorf("users = %+v, want one", all)
	}
}
