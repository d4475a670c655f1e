package registry

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
)

func TestEnsureDefaults(t *testing.T) {
	r := newRegistry(t)
	if _, err := r.DefaultDomain(); !errors.Is(err, app.ErrNotFound) {
		t.Errorf("default domain before the first start: %v, want ErrNotFound", err)
	}
	s := one[app.Space](t)(r.EnsureDefaults("Dew.localhost"))
	org := one[app.Org](t)(r.Org(s.Org))
	d := one[app.Domain](t)(r.DefaultDomain())
	if s.Name != app.DefaultSpace || org.Name != app.DefaultOrg || d.Name != "dew.localhost" || d.Internal || !d.Default {
		t.Errorf("defaults = %+v, %+v, %+v", org, s, d)
	}
	if s.CreatedAt.IsZero() || org.CreatedAt.IsZero() || d.CreatedAt.IsZero() || d.UpdatedAt.IsZero() {
		t.Errorf("times of %+v, %+v, %+v are missing", org, s, d)
	}
	if diff := cmp.Diff(one[app.Space](t)(r.EnsureDefaults("dew.localhost")), s); diff != "" {
		t.Errorf("second start (-got +want):\n%s", diff)
	}
	internal := one[app.Domain](t)(r.DomainByName(app.InternalDomain))
	if !internal.Internal || internal.Default {
		t.Errorf("internal domain = %+v", internal)
	}
	if diff := cmp.Diff(one[[]app.Domain](t)(r.Domains()), []app.Domain{d, internal}); diff != "" {
		t.Errorf("domains after the second start (-got +want):\n%s", diff)
	}
	if diff := cmp.Diff(one[[]app.Org](t)(r.Orgs()), []app.Org{org}); diff != "" {
		t.Errorf("orgs (-got +want):\n%s", diff)
	}
	if diff := cmp.Diff(one[[]app.Space](t)(r.Spaces()), []app.Space{s}); diff != "" {
		t.Errorf("spaces (-got +want):\n%s", diff)
	}
	if diff := cmp.Diff(one[app.Space](t)(r.Space(s.GUID)), s); diff != "" {
		t.Errorf("space (-got +want):\n%s", diff)
	}
}

// Another domain becomes the default; the earlier one stays with its routes.
func TestEnsureDefaultsOtherDomain(t *testing.T) {
	r, s := inSpace(t)
	a := apply(t, r, s, "applications: [{name: shop, default-route: true}]")[0]
	one[app.Space](t)(r.EnsureDefaults("apps.example.com"))
	var names []string
	for _, d := range one[[]app.Domain](t)(r.Domains()) {
		names = append(names, d.Name)
	}
	if diff := cmp.Diff(names, []string{"apps.example.com", "apps.internal", "dew.localhost"}); diff != "" {
		t.Errorf("domains, the default one first (-got +want):\n%s", diff)
	}
	if d := one[app.Domain](t)(r.DefaultDomain()); d.Name != "apps.example.com" {
		t.Errorf("default domain = %s", d.Name)
	}
	if diff := cmp.Diff(urls(t, r, a), []string{"shop.dew.localhost"}); diff != "" {
		t.Errorf("routes (-got +want):\n%s", diff)
	}
	one[app.Space](t)(r.EnsureDefaults("dew.localhost"))
	if d := one[app.Domain](t)(r.DefaultDomain()); d.Name != "dew.localhost" {
		t.Errorf("default domain = %s", d.Name)
	}
}

func TestEnsureDefaultsRefuses(t *testing.T) {
	r := newRegistry(t)
	for _, name := range []string{"", ".", "a..b", "a b", "-a", "*.a", "http://a", "a:80"} {
		_, err := r.EnsureDefaults(name)
		if diff := cmp.Diff(keys(err), []string{"domain"}); diff != "" {
			t.Errorf("%q: keys of %v (-got +want):\n%s", name, err, diff)
		}
	}
	if orgs := one[[]app.Org](t)(r.Orgs()); len(orgs) > 0 {
		t.Errorf("orgs = %v, want none", orgs)
	}
}

// The org and space of the first start are created once. They can be renamed and
// deleted.
func TestDefaultsAreMadeOnce(t *testing.T) {
	r := newRegistry(t)
	s := one[app.Space](t)(r.EnsureDefaults("dew.localhost"))
	one[app.Org](t)(r.UpdateOrg(s.Org, func(o *app.Org) error { o.Name = "firm"; return nil }))
	one[app.Space](t)(r.UpdateSpace(s.GUID, func(s *app.Space) error { s.Name = "floor"; return nil }))
	if again := one[app.Space](t)(r.EnsureDefaults("dew.localhost")); again.GUID != s.GUID || again.Name != "floor" {
		t.Errorf("the space of the first start = %+v", again)
	}
	if orgs := one[[]app.Org](t)(r.Orgs()); len(orgs) != 1 || orgs[0].Name != "firm" {
		t.Errorf("orgs = %+v, want the renamed one alone", orgs)
	}
	if err := r.DeleteSpace(s.GUID); err != nil {
		t.Fatal(err)
	}
	if again := one[app.Space](t)(r.EnsureDefaults("other.localhost")); again.GUID != "" {
		t.Errorf("the deleted space is back: %+v", again)
	}
	if spaces := one[[]app.Space](t)(r.Spaces()); len(spaces) != 0 {
		t.Errorf("spaces = %+v", spaces)
	}
}

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

// Deleting an org or a space deletes its contents, and nothing else.
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
