package auth

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/bcrypt"

	"github.com/dewrun/dew/store"
)

func TestUsers(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	a := NewAccounts(db, bcrypt.MinCost)
	bob := must(a.CreateUser(NewUser{GUID: "g1", Name: "Bob", Email: "bob@example.com", Password: "secret"}))
	if diff := cmp.Diff(bob, must(a.User("g1"))); diff != "" {
		t.Errorf("what is returned is not what is kept:\n%s", diff)
	}
	for name, tc := range map[string]struct {
		n    NewUser
		want error
		key  string
	}{
		"same name":      {n: NewUser{Name: "bOB", Password: "p"}, want: ErrTaken},
		"same guid":      {n: NewUser{GUID: "g1", Name: "eve", Password: "p"}, want: ErrTaken},
		"no name":        {n: NewUser{Password: "p"}, key: "userName"},
		"blank":          {n: NewUser{Name: "a b", Password: "p"}, key: "userName"},
		"control":        {n: NewUser{Name: "a\nb", Password: "p"}, key: "userName"},
		"not UTF-8":      {n: NewUser{Name: "a\xff", Password: "p"}, key: "userName"},
		"long":           {n: NewUser{Name: strings.Repeat("x", 256), Password: "p"}, key: "userName"},
		"mail":           {n: NewUser{Name: "x", Email: "a\r\nBcc: b", Password: "p"}, key: "emails"},
		"no password":    {n: NewUser{Name: "x"}, key: "password"},
		"long password":  {n: NewUser{Name: "x", Password: strings.Repeat("p", 73)}, key: "password"},
		"guid":           {n: NewUser{GUID: "a/b", Name: "x", Password: "p"}, key: "id"},
		"groups":         {n: NewUser{Name: "x", Password: "p", Groups: []string{"a b"}}, key: "groups"},
		"too many scope": {n: NewUser{Name: "x", Password: "p", Groups: make([]string, maxScopes+1)}, key: "groups"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := a.CreateUser(tc.n)
			if invalid, ok := errors.AsType[*Invalid](err); tc.key != "" && (!ok || invalid.Key != tc.key || !strings.HasPrefix(invalid.Error(), tc.key)) {
				t.Errorf("CreateUser: %v, want something about %s", err, tc.key)
			}
			if tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("CreateUser: %v, want %v", err, tc.want)
			}
		})
	}
	ldap := must(a.CreateUser(NewUser{Name: "bob", Origin: "ldap"}))
	if _, err := a.checkPassword("bob", "ldap", ""); !errors.Is(err, ErrBadPassword) {
		t.Errorf("a user without a password gets in: %v", err)
	}
	if named := must(a.UsersNamed("BOB")); len(named) != 2 {
		t.Errorf("%d users are called bob", len(named))
	}
	if got := must(a.UserByName("BOB", "LDAP")); got.GUID != ldap.GUID {
		t.Errorf("UserByName = %+v", got)
	}
	changed := must(a.UpdateUser("g1", func(u *User) error {
		u.Email, u.GUID, u.Hash, u.CreatedAt, u.PasswordAt = "new@example.com", "other", nil, time.Time{}, time.Time{}
		return nil
	}))
	if changed.GUID != "g1" || changed.Version != 1 || !cmp.Equal(changed.Hash, bob.Hash) || changed.CreatedAt != bob.CreatedAt || changed.PasswordAt != bob.PasswordAt {
		t.Errorf("UpdateUser = %+v", changed)
	}
	if _, err := a.UpdateUser("g1", func(u *User) error { u.Origin = "ldap"; return nil }); !errors.Is(err, ErrTaken) {
		t.Errorf("a name that the other origin has: %v", err)
	}
	no := errors.New("no")
	if _, err := a.UpdateUser("g1", func(*User) error { return no }); !errors.Is(err, no) {
		t.Errorf("an error of fn: %v", err)
	}
	for what, err := range map[string]error{
		"delete": a.DeleteUser("x"), "password": a.SetPassword("x", "y"), "get": second(a.User("x")),
		"by name": second(a.UserByName("x", "")), "update": second(a.UpdateUser("x", func(*User) error { return nil })),
	} {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%s of nobody: %v", what, err)
		}
	}
	err := db.Update(func(tx *store.Tx) error {
		if err := a.With(tx).DeleteUser("g1"); err != nil {
			return err
		}
		return no
	})
	if _, still := a.User("g1"); !errors.Is(err, no) || still != nil {
		t.Errorf("a transaction that failed: %v, %v", err, still)
	}
}

func second[T any](_ T, err error) error { return err }

func TestPasswords(t *testing.T) {
	t.Parallel()
	a := NewAccounts(openDB(t), bcrypt.MinCost)
	long := strings.Repeat("p", 72)
	u := must(a.CreateUser(NewUser{Name: "bob", Password: long}))
	for password, ok := range map[string]bool{
		long: true, long + "x": false, long[:71]: false, "": false, strings.Repeat("p", 10_000): false,
	} {
		if _, err := a.CheckPassword("BOB", password); (err == nil) != ok || (err != nil && !errors.Is(err, ErrBadPassword)) {
			t.Errorf("a password of %d bytes: %v", len(password), err)
		}
	}
	if err := a.SetPassword(u.GUID, "ä\x00b"); err != nil {
		t.Fatal(err)
	}
	for password, ok := range map[string]bool{"ä\x00b": true, "ä": false, "ä\x00c": false, long: false} {
		if _, err := a.CheckPassword("bob", password); (err == nil) != ok {
			t.Errorf("%q: %v", password, err)
		}
	}
	if got := must(a.User(u.GUID)); !got.PasswordAt.After(u.PasswordAt) || got.Version != u.Version+1 {
		t.Errorf("after a change: %+v", got)
	}
}

func TestClients(t *testing.T) {
	t.Parallel()
	a := NewAccounts(openDB(t), bcrypt.MinCost)
	c := must(a.CreateClient(NewClient{
		ID: "sender", Secret: "s", Name: "Sender", GrantTypes: []string{GrantClient}, Authorities: []string{"emails.write"},
		RedirectURIs: []string{"http://x"}, AccessValidity: time.Hour,
	}))
	if diff := cmp.Diff(c, must(a.Client("sender"))); diff != "" {
		t.Error(diff)
	}
	for name, tc := range map[string]struct {
		n    NewClient
		want error
		key  string
	}{
		"same":       {n: NewClient{ID: "sender", GrantTypes: []string{GrantPassword}}, want: ErrTaken},
		"capitals":   {n: NewClient{ID: "Sender", GrantTypes: []string{GrantPassword}}, want: ErrTaken},
		"no id":      {n: NewClient{GrantTypes: []string{GrantPassword}}, key: "client_id"},
		"slash":      {n: NewClient{ID: "a/b", GrantTypes: []string{GrantPassword}}, key: "client_id"},
		"no grant":   {n: NewClient{ID: "x"}, key: "authorized_grant_types"},
		"bad grant":  {n: NewClient{ID: "x", GrantTypes: []string{"x"}}, key: "authorized_grant_types"},
		"no secret":  {n: NewClient{ID: "x", GrantTypes: []string{GrantClient}}, key: "client_secret"},
		"short life": {n: NewClient{ID: "x", GrantTypes: []string{GrantPassword}, AccessValidity: time.Minute}, key: "access_token_validity"},
		"long life":  {n: NewClient{ID: "x", GrantTypes: []string{GrantPassword}, RefreshValidity: maxValidity + 1}, key: "refresh_token_validity"},
		"bad scope":  {n: NewClient{ID: "x", GrantTypes: []string{GrantPassword}, Scopes: []string{""}}, key: "scope"},
		"authority":  {n: NewClient{ID: "x", GrantTypes: []string{GrantPassword}, Authorities: []string{"a,b"}}, key: "authorities"},
		"bad uri":    {n: NewClient{ID: "x", GrantTypes: []string{GrantPassword}, RedirectURIs: []string{" "}}, key: "redirect_uri"},
		"name":       {n: NewClient{ID: "x", Name: "\n", GrantTypes: []string{GrantPassword}}, key: "name"},
		"secret":     {n: NewClient{ID: "x", Secret: strings.Repeat("p", 73), GrantTypes: []string{GrantPassword}}, key: "client_secret"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := a.CreateClient(tc.n)
			if invalid, ok := errors.AsType[*Invalid](err); tc.key != "" && (!ok || invalid.Key != tc.key) {
				t.Errorf("CreateClient: %v, want something about %s", err, tc.key)
			}
			if tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("CreateClient: %v, want %v", err, tc.want)
			}
		})
	}
	for secret, ok := range map[string]bool{"s": true, "": false, "x": false} {
		if _, err := a.CheckSecret("sender", secret); (err == nil) != ok {
			t.Errorf("secret %q: %v", secret, err)
		}
	}
	must(a.CreateClient(NewClient{ID: "open", GrantTypes: []string{GrantPassword}}))
	for secret, ok := range map[string]bool{"": true, "x": false} {
		if _, err := a.CheckSecret("open", secret); (err == nil) != ok {
			t.Errorf("secret %q of a client without one: %v", secret, err)
		}
	}
	for what, err := range map[string]error{
		"delete": a.DeleteClient("x"), "secret": a.SetSecret("x", "y"), "update": second(a.UpdateClient("x", func(*Client) error { return nil })),
	} {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%s of no client: %v", what, err)
		}
	}
}

// Deleting a user deletes its sessions, and its roles if the caller does so in the same
// transaction.
func TestDeleteUserInOneTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := w.user("bob", "secret")
	w.tokens("bob", "secret")
	roles := NewRoles(w.db)
	must(roles.Put(Role{Type: OrgUser, User: u.GUID, Org: "o"}))
	err := w.db.Update(func(tx *store.Tx) error {
		return errors.Join(w.s.Accounts().With(tx).DeleteUser(u.GUID), roles.With(tx).DeleteUser(u.GUID))
	})
	if left := must(roles.OfUser(u.GUID)); err != nil || len(left) != 0 {
		t.Errorf("roles: %v, %v", left, err)
	}
	if left := must(w.s.accounts.sessions.By("user", u.GUID)); len(left) != 0 {
		t.Errorf("sessions: %v", left)
	}
}

// Roles are given to the ids of users and of clients, so no two of them can have the
// same id.
func TestIDsAreUnique(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bob := w.user("bob", "secret")
	if _, err := w.s.Accounts().CreateClient(NewClient{ID: bob.GUID, GrantTypes: []string{GrantPassword}}); !errors.Is(err, ErrTaken) {
		t.Errorf("a client with the id of a user: %v", err)
	}
	if _, err := w.s.Accounts().CreateUser(NewUser{GUID: ClientCF, Name: "eve", Password: "secret"}); !errors.Is(err, ErrTaken) {
		t.Errorf("a user with the id of a client: %v", err)
	}
}
