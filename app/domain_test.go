package app

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOrgsAndSpaces(t *testing.T) {
	r := newRegistry(t)
	o := one[Org](t)(r.PutOrg(Org{Name: "shop", Metadata: Metadata{Labels: map[string]string{"a": "b"}}}))
	s := one[Space](t)(r.PutSpace(Space{Name: "test", Org: o.GUID}))
	if diff := cmp.Diff(one[Org](t)(r.OrgByName("shop")), o); diff != "" || o.CreatedAt.IsZero() {
		t.Errorf("org by name (-got +want):\n%s", diff)
	}
	if diff := cmp.Diff(one[Space](t)(r.SpaceIn(o.GUID, "test")), s); diff != "" || s.CreatedAt.IsZero() {
		t.Errorf("space by name (-got +want):\n%s", diff)
	}
	changed := one[Org](t)(r.UpdateOrg(o.GUID, func(o *Org) error { o.Suspended = true; return nil }))
	if !changed.Suspended || !changed.CreatedAt.Equal(o.CreatedAt) || changed.UpdatedAt.Before(o.UpdatedAt) {
		t.Errorf("changed org = %+v", changed)
	}
	_, taken := r.PutOrg(Org{Name: "shop"})
	_, unnamed := r.PutOrg(Org{Name: " "})
	_, labelled := r.PutOrg(Org{Name: "x", Metadata: Metadata{Labels: map[string]string{"!": ""}}})
	_, twice := r.PutSpace(Space{Name: "test", Org: o.GUID})
	_, nowhere := r.PutSpace(Space{Name: "test", Org: "nowhere"})
	_, missing := r.UpdateSpace("nowhere", func(*Space) error { return nil })
	for name, err := range map[string]error{"taken": taken, "unnamed": unnamed, "labelled": labelled, "twice": twice} {
		if len(keys(err)) != 1 {
			t.Errorf("%s = %v, want what is wrong", name, err)
		}
	}
	if !errors.Is(nowhere, ErrNotFound) || !errors.Is(missing, ErrNotFound) {
		t.Errorf("space nowhere = %v, %v, want ErrNotFound", nowhere, missing)
	}
}

// What is in a place goes with it, and nothing else does.
func TestDeletePlaces(t *testing.T) {
	r, home := inSpace(t)
	o := one[Org](t)(r.PutOrg(Org{Name: "shop"}))
	s := one[Space](t)(r.PutSpace(Space{Name: "test", Org: o.GUID}))
	own := one[Domain](t)(r.PutDomain(Domain{Name: "shop.example.com", Org: o.GUID, SharedWith: []string{home.Org}}))
	lent := one[Domain](t)(r.PutDomain(Domain{Name: "home.example.com", Org: home.Org, SharedWith: []string{o.GUID}}))
	gone := apply(t, r, s, "applications: [{name: shop, routes: [{route: a.shop.example.com}]}]")[0]
	kept := apply(t, r, home, "applications: [{name: shop, routes: [{route: b.shop.example.com}, {route: c.home.example.com}]}]")[0]
	if err := r.DeleteOrg(o.GUID); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"org": second(r.Org(o.GUID)), "space": second(r.Space(s.GUID)), "domain": second(r.Domain(own.GUID)),
		"app": second(r.App(gone.GUID)), "again": r.DeleteOrg(o.GUID), "space again": r.DeleteSpace(s.GUID),
	} {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v, want ErrNotFound", name, err)
		}
	}
	if diff := cmp.Diff(urls(t, r, kept), []string{"c.home.example.com"}); diff != "" {
		t.Errorf("routes of the other org (-got +want):\n%s", diff)
	}
	if d := one[Domain](t)(r.Domain(lent.GUID)); len(d.SharedWith) > 0 {
		t.Errorf("domain is still shared with %v", d.SharedWith)
	}
}

func second[T any](_ T, err error) error { return err }

func TestDomainNames(t *testing.T) {
	r, home := inSpace(t)
	o := one[Org](t)(r.PutOrg(Org{Name: "shop"}))
	one[Domain](t)(r.PutDomain(Domain{Name: "Shop.Example.com", Org: o.GUID}))
	apply(t, r, home, "applications: [{name: shop, default-route: true}]")
	for _, tt := range []struct {
		name string
		d    Domain
		key  string // empty: it is fine
	}{
		{"another", Domain{Name: "other.example.com"}, ""},
		{"below one's own", Domain{Name: "a.shop.example.com", Org: o.GUID}, ""},
		{"below one that all share", Domain{Name: "mine.dew.localhost", Org: home.Org}, ""},
		{"taken", Domain{Name: "shop.example.com", Org: o.GUID}, "name"},
		{"below another's", Domain{Name: "b.shop.example.com", Org: home.Org}, "name"},
		{"above another's", Domain{Name: "example.com", Org: home.Org}, "name"},
		{"above another's, for all", Domain{Name: "example.com"}, "name"},
		{"name of a route", Domain{Name: "shop.dew.localhost", Org: o.GUID}, "name"},
		{"no name", Domain{}, "domain"},
		{"internal of one org", Domain{Name: "x.internal", Internal: true, Org: o.GUID}, "internal"},
		{"shared without an owner", Domain{Name: "x.com", SharedWith: []string{o.GUID}}, "shared_organizations"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := r.PutDomain(tt.d)
			if tt.key == "" && err != nil || tt.key != "" && !cmp.Equal(keys(err), []string{tt.key}) {
				t.Errorf("PutDomain(%+v) = %v, want key %q", tt.d, err, tt.key)
			}
		})
	}
	if _, err := r.PutDomain(Domain{Name: "x.com", Org: "nowhere"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("domain of an unknown org = %v, want ErrNotFound", err)
	}
	if err := r.DeleteDomain(one[Domain](t)(r.DefaultDomain()).GUID); len(keys(err)) != 1 {
		t.Errorf("DeleteDomain of the default one = %v, want a refusal", err)
	}
}

func TestUsersWrittenAbout(t *testing.T) {
	r := newRegistry(t)
	u := one[User](t)(r.PutUser(User{GUID: "ann", Metadata: Metadata{Labels: map[string]string{"team": "red"}}}))
	if diff := cmp.Diff(one[User](t)(r.User("ann")), u); diff != "" {
		t.Errorf("user (-got +want):\n%s", diff)
	}
	one[User](t)(r.PutUser(User{GUID: "ann", Gone: true}))
	back := one[User](t)(r.PutUser(User{GUID: "ann"}))
	if back.CreatedAt.Equal(u.CreatedAt) || back.Gone || !back.Metadata.IsZero() {
		t.Errorf("user that came back = %+v, want a new one", back)
	}
	if _, err := r.PutUser(User{}); len(keys(err)) != 1 {
		t.Errorf("user without a guid = %v, want a refusal", err)
	}
	if all := one[[]User](t)(r.Users()); len(all) != 1 {
		t.Errorf("users = %+v, want one", all)
	}
}
