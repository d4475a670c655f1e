package registry

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
)

func TestDomainNames(t *testing.T) {
	r, home := inSpace(t)
	o := one[app.Org](t)(r.PutOrg(app.Org{Name: "shop"}))
	one[app.Domain](t)(r.PutDomain(app.Domain{Name: "Shop.Example.com", Org: o.GUID}))
	apply(t, r, home, "applications: [{name: shop, default-route: true}]")
	for _, tt := range []struct {
		name string
		d    app.Domain
		key  string // empty means no error
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
