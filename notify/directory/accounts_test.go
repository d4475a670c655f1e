package directory

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

// emails returns the addresses of an audience.
func emails(t testing.TB, a delivery.Audience, err error) (out []string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for p, err := range a.People {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p.Email)
	}
	slices.Sort(out)
	return out
}

func TestAccounts(t *testing.T) {
	db := testkit.Open(store.Open(filepath.Join(t.TempDir(), "dew.db"), store.Options{NoSync: true}))(t)
	users, roles, places := auth.NewAccounts(db, bcrypt.MinCost), auth.NewRoles(db), registry.New(db)
	space, err := places.EnsureDefaults("dew.localhost")
	if err != nil {
		t.Fatal(err)
	}
	guids := map[string]string{}
	for _, n := range []auth.NewUser{
		{Name: "ann", Email: "ann@example.com", Groups: []string{"special.scope"}},
		{Name: "bob@example.com"}, // the name is the address
		{Name: "cat"},             // no address at all
		{Name: "dan", Email: "dan@example.com", Inactive: true, Groups: []string{"special.scope"}},
	} {
		n.Origin = "elsewhere"
		u, err := users.CreateUser(n)
		if err != nil {
			t.Fatal(err)
		}
		guids[n.Name] = u.GUID
	}
	for _, r := range []auth.Role{
		{User: guids["ann"], Type: auth.SpaceDeveloper, Space: space.GUID},
		{User: guids["ann"], Type: auth.SpaceManager, Space: space.GUID}, // two roles, but one mail
		{User: guids["dan"], Type: auth.SpaceDeveloper, Space: space.GUID},
		{User: "some-client", Type: auth.SpaceDeveloper, Space: space.GUID},
		{User: guids["ann"], Type: auth.OrgUser, Org: space.Org},
		{User: guids["bob@example.com"], Type: auth.OrgManager, Org: space.Org},
		{User: guids["cat"], Type: auth.OrgAuditor, Org: space.Org},
		{User: guids["cat"], Type: auth.OrgBilling, Org: space.Org},
	} {
		if _, err := roles.Put(r); err != nil {
			t.Fatal(err)
		}
	}
	d, ctx := NewAccounts(users, roles, places), t.Context()

	in, err := d.InSpace(ctx, space.GUID)
	if got := emails(t, in, err); !slices.Equal(got, []string{"ann@example.com"}) {
		t.Errorf("InSpace = %q", got)
	}
	if in.Space != (delivery.Place{GUID: space.GUID, Name: "dev"}) || in.Org != (delivery.Place{GUID: space.Org, Name: "local"}) {
		t.Errorf("places = %+v %+v", in.Space, in.Org)
	}
	for role, want := range map[string][]string{
		"": {"", "ann@example.com", "bob@example.com"}, delivery.RoleManager: {"bob@example.com"}, delivery.RoleAuditor: {""}, delivery.RoleBilling: {""}, "Boss": nil,
	} {
		a, err := d.InOrg(ctx, space.Org, role)
		if got := emails(t, a, err); !slices.Equal(got, want) {
			t.Errorf("InOrg %q = %q, want %q", role, got, want)
		}
	}
	a, err := d.Everyone(ctx)
	if got := emails(t, a, err); !slices.Equal(got, []string{"", "ann@example.com", "bob@example.com"}) {
		t.Errorf("Everyone = %q", got)
	}
	a, err = d.WithScope(ctx, "special.scope")
	if got := emails(t, a, err); !slices.Equal(got, []string{"ann@example.com"}) {
		t.Errorf("WithScope = %q", got)
	}
	if p, err := d.User(ctx, guids["bob@example.com"]); err != nil || p.Email != "bob@example.com" {
		t.Errorf("User = %+v, %v", p, err)
	}
	for _, err := range []error{
		func() error { _, err := d.User(ctx, "x"); return is(err, delivery.ErrNoUser) }(),
		func() error { _, err := d.InSpace(ctx, "x"); return is(err, delivery.ErrNoSpace) }(),
		func() error { _, err := d.InOrg(ctx, "x", ""); return is(err, delivery.ErrNoOrg) }(),
	} {
		if err != nil {
			t.Error(err)
		}
	}
}

// is returns an error unless err is want.
func is(err, want error) error {
	if errors.Is(err, want) {
		return nil
	}
	return errors.Join(errors.New("want "+want.Error()), err)
}
