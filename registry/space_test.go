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

// What the first start made is made once: it may be renamed, and may go.
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
