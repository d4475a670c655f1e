package auth

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

func openDB(t *testing.T) *store.DB {
	t.Helper()
	return testkit.Open(store.Open(filepath.Join(t.TempDir(), "dew.db"), store.Options{NoSync: true}))(t)
}

func TestRolesPut(t *testing.T) {
	t.Parallel()
	r := NewRoles(openDB(t))
	for _, tc := range []struct {
		name string
		role Role
		key  string // key of the invalid field
		want error
	}{
		{name: "org", role: Role{GUID: "r1", Type: OrgManager, User: "u1", Org: "o1"}},
		{name: "the same", role: Role{Type: OrgManager, User: "u1", Org: "o1"}, want: ErrTaken},
		{name: "the same guid", role: Role{GUID: "r1", Type: OrgUser, User: "u1", Org: "o1"}, want: ErrTaken},
		{name: "another type", role: Role{Type: OrgUser, User: "u1", Org: "o1"}},
		{name: "another org", role: Role{Type: OrgManager, User: "u1", Org: "o2"}},
		{name: "another user", role: Role{Type: OrgManager, User: "u2", Org: "o1"}},
		{name: "space", role: Role{Type: SpaceDeveloper, User: "u1", Space: "s1"}},
		{name: "the same in the space", role: Role{Type: SpaceDeveloper, User: "u1", Space: "s1"}, want: ErrTaken},
		{name: "no user", role: Role{Type: OrgUser, Org: "o1"}, key: "user"},
		{name: "no type", role: Role{User: "u1", Org: "o1"}, key: "type"},
		{name: "unknown type", role: Role{Type: "king", User: "u1", Org: "o1"}, key: "type"},
		{name: "no place", role: Role{Type: OrgUser, User: "u1"}, key: "relationships"},
		{name: "both places", role: Role{Type: OrgUser, User: "u1", Org: "o1", Space: "s1"}, key: "relationships"},
		{name: "org role in a space", role: Role{Type: OrgUser, User: "u1", Space: "s1"}, key: "relationships"},
		{name: "space role in an org", role: Role{Type: SpaceAuditor, User: "u1", Org: "o1"}, key: "relationships"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := r.Put(tc.role)
			if invalid, ok := errors.AsType[*Invalid](err); tc.key != "" && (!ok || invalid.Key != tc.key) {
				t.Errorf("Put: %v, want something about %s", err, tc.key)
			}
			if tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("Put: %v, want %v", err, tc.want)
			}
			if tc.key != "" || tc.want != nil {
				return
			}
			if err != nil || got.GUID == "" || got.CreatedAt.IsZero() {
				t.Fatalf("Put = %+v, %v", got, err)
			}
			if diff := cmp.Diff(got, must(r.Get(got.GUID))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRolesByPlaceAndUser(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	r := NewRoles(db)
	for _, role := range []Role{
		{GUID: "1", Type: OrgUser, User: "u1", Org: "o1"},
		{GUID: "2", Type: OrgUser, User: "u2", Org: "o1"},
		{GUID: "3", Type: SpaceManager, User: "u1", Space: "s1"},
		{GUID: "4", Type: SpaceAuditor, User: "u2", Space: "s1"},
		{GUID: "5", Type: OrgUser, User: "u3", Org: "o2"},
	} {
		must(r.Put(role))
	}
	want := func(what string, roles []Role, err error, guids ...string) {
		t.Helper()
		var got []string
		for _, role := range roles {
			got = append(got, role.GUID)
		}
		if err != nil || !cmp.Equal(got, guids) {
			t.Errorf("%s: %v, %v, want %v", what, got, err, guids)
		}
	}
	found, err := r.OfUser("u1")
	want("of u1", found, err, "1", "3")
	found, err = r.InOrg("o1")
	want("in o1", found, err, "1", "2")
	found, err = r.InSpace("s1")
	want("in s1", found, err, "3", "4")

	if err := r.Delete("5"); err != nil {
		t.Error(err)
	}
	if err := r.Delete("5"); !errors.Is(err, ErrNotFound) {
		t.Errorf("Delete of what is gone: %v", err)
	}
	rolledBack := errors.New("no")
	err = db.Update(func(tx *store.Tx) error {
		if err := errors.Join(r.With(tx).DeleteOrg("o1"), r.With(tx).DeleteSpace("s1")); err != nil {
			return err
		}
		return rolledBack
	})
	found, all := r.All()
	if !errors.Is(err, rolledBack) {
		t.Error(err)
	}
	want("after a transaction that failed", found, all, "1", "2", "3", "4")
	if err := r.DeleteUser("u1"); err != nil {
		t.Error(err)
	}
	found, err = r.All()
	want("without u1", found, err, "2", "4")
	if err := errors.Join(r.DeleteOrg("o1"), r.DeleteSpace("s1")); err != nil {
		t.Error(err)
	}
	found, err = r.All()
	want("without all", found, err)
}

func TestRoleTypes(t *testing.T) {
	t.Parallel()
	if n := len(RoleTypes()); n != 8 {
		t.Errorf("%d types", n)
	}
	for _, rt := range RoleTypes() {
		if rt.OfOrg() == rt.OfSpace() {
			t.Errorf("%s is of org: %t, of space: %t", rt, rt.OfOrg(), rt.OfSpace())
		}
	}
}
