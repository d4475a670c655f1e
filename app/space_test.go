package app

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEnsureDefaults(t *testing.T) {
	r := newRegistry(t)
	if _, err := r.DefaultDomain(); !errors.Is(err, ErrNotFound) {
		t.Errorf("default domain before the first start: %v, want ErrNotFound", err)
	}
	s := one[Space](t)(r.EnsureDefaults("Dew.localhost"))
	org := one[Org](t)(r.Org(s.Org))
	d := one[Domain](t)(r.DefaultDomain())
	if s.Name != DefaultSpace || org.Name != DefaultOrg || d.Name != "dew.localhost" || d.Internal || !d.Default {
		t.Errorf("defaults = %+v, %+v, %+v", org, s, d)
	}
	if s.CreatedAt.IsZero() || org.CreatedAt.IsZero() || d.CreatedAt.IsZero() || d.UpdatedAt.IsZero() {
		t.Errorf("times of %+v, %+v, %+v are missing", org, s, d)
	}
	if diff := cmp.Diff(one[Space](t)(r.EnsureDefaults("dew.localhost")), s); diff != "" {
		t.Errorf("second start (-got +want):\n%s", diff)
	}
	internal := one[Domain](t)(r.DomainByName(InternalDomain))
	if !internal.Internal || internal.Default {
		t.Errorf("internal domain = %+v", internal)
	}
	if diff := cmp.Diff(one[[]Domain](t)(r.Domains()), []Domain{d, internal}); diff != "" {
		t.Errorf("domains after the second start (-got +want):\n%s", diff)
	}
	if diff := cmp.Diff(one[[]Org](t)(r.Orgs()), []Org{org}); diff != "" {
		t.Errorf("orgs (-got +want):\n%s", diff)
	}
	if diff := cmp.Diff(one[[]Space](t)(r.Spaces()), []Space{s}); diff != "" {
		t.Errorf("spaces (-got +want):\n%s", diff)
	}
	if diff := cmp.Diff(one[Space](t)(r.Space(s.GUID)), s); diff != "" {
		t.Errorf("space (-got +want):\n%s", diff)
	}
}

// Another domain becomes the default; the earlier one stays with its routes.
func TestEnsureDefaultsOtherDomain(t *testing.T) {
	r, s := inSpace(t)
	a := apply(t, r, s, "applications: [{name: shop, default-route: true}]")[0]
	one[Space](t)(r.EnsureDefaults("apps.example.com"))
	var names []string
	for _, d := range one[[]Domain](t)(r.Domains()) {
		names = append(names, d.Name)
	}
	if diff := cmp.Diff(names, []string{"apps.example.com", "apps.internal", "dew.localhost"}); diff != "" {
		t.Errorf("domains, the default one first (-got +want):\n%s", diff)
	}
	if d := one[Domain](t)(r.DefaultDomain()); d.Name != "apps.example.com" {
		t.Errorf("default domain = %s", d.Name)
	}
	if diff := cmp.Diff(urls(t, r, a), []string{"shop.dew.localhost"}); diff != "" {
		t.Errorf("routes (-got +want):\n%s", diff)
	}
	one[Space](t)(r.EnsureDefaults("dew.localhost"))
	if d := one[Domain](t)(r.DefaultDomain()); d.Name != "dew.localhost" {
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
	if orgs := one[[]Org](t)(r.Orgs()); len(orgs) > 0 {
		t.Errorf("orgs = %v, want none", orgs)
	}
}

// What the first start made is made once: it may be renamed, and may go.
func TestDefaultsAreMadeOnce(t *testing.T) {
	r := newRegistry(t)
	s := one[Space](t)(r.EnsureDefaults("dew.localhost"))
	one[Org](t)(r.UpdateOrg(s.Org, func(o *Org) error { o.Name = "firm"; return nil }))
	one[Space](t)(r.UpdateSpace(s.GUID, func(s *Space) error { s.Name = "floor"; return nil }))
	if again := one[Space](t)(r.EnsureDefaults("dew.localhost")); again.GUID != s.GUID || again.Name != "floor" {
		t.Errorf("the space of the first start = %+v", again)
	}
	if orgs := one[[]Org](t)(r.Orgs()); len(orgs) != 1 || orgs[0].Name != "firm" {
		t.Errorf("orgs = %+v, want the renamed one alone", orgs)
	}
	if err := r.DeleteSpace(s.GUID); err != nil {
		t.Fatal(err)
	}
	if again := one[Space](t)(r.EnsureDefaults("other.localhost")); again.GUID != "" {
		t.Errorf("the deleted space is back: %+v", again)
	}
	if spaces := one[[]Space](t)(r.Spaces()); len(spaces) != 0 {
		t.Errorf("spaces = %+v", spaces)
	}
}
