package api

import (
	"fmt"
	"testing"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/store"
)

// addUsers creates users without passwords.
func (w *testServer) addUsers(n int, prefix string) {
	w.t.Helper()
	err := w.c.DB.Update(func(tx *store.Tx) error {
		for i := range n {
			if _, err := w.c.Auth.Accounts().With(tx).CreateUser(auth.NewUser{Name: fmt.Sprintf("%s-%d", prefix, i), Origin: "elsewhere"}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// The list of users is current after every change, and all pages together have every
// user once, in order.
func TestUserPages(t *testing.T) {
	w := newTestServer(t)
	read := func() (names []string) {
		t.Helper()
		seen, last := map[string]bool{}, time.Time{}
		for page := 1; ; page++ {
			var list v3.List[v3.User]
			w.want(200, "GET", fmt.Sprintf("/v3/users?per_page=50&page=%d", page), "", &list)
			for _, u := range list.Resources {
				if seen[u.GUID] || u.CreatedAt.Time.Before(last) {
					t.Errorf("user %s comes twice, or in the wrong order", u.GUID)
				}
				seen[u.GUID], last = true, u.CreatedAt.Time
				names = append(names, u.GUID)
			}
			if len(list.Resources) == 0 {
				return names
			}
		}
	}
	before := len(read())
	w.addUsers(120, "more")
	if got := len(read()); got != before+120 {
		t.Errorf("users = %d, want %d", got, before+120)
	}
	u, err := w.c.Auth.Accounts().UserByName("more-7", "elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	w.want(200, "PATCH", "/v3/users/"+u.GUID, `{"metadata":{"labels":{"team":"red"}}}`, nil)
	var list v3.List[v3.User]
	w.want(200, "GET", "/v3/users?label_selector=team%3Dred", "", &list)
	if len(list.Resources) != 1 || list.Resources[0].GUID != u.GUID {
		t.Errorf("with the label = %+v, want %s", list.Resources, u.GUID)
	}
	w.want(200, "GET", "/v3/users?usernames=MORE-7&order_by=-created_at", "", &list)
	if len(list.Resources) != 1 || list.Resources[0].GUID != u.GUID {
		t.Errorf("by name = %+v, want %s", list.Resources, u.GUID)
	}
	if err := w.c.Auth.Accounts().DeleteUser(u.GUID); err != nil {
		t.Fatal(err)
	}
	w.want(200, "GET", "/v3/users?guids="+u.GUID, "", &list)
	if len(list.Resources) != 1 || list.Resources[0].Username != nil {
		t.Errorf("after the deletion of the account = %+v, want its record alone", list.Resources)
	}
}

// BenchmarkUserPages reads 10,000 users in pages of 50, with and without the memory for
// users.
func BenchmarkUserPages(b *testing.B) {
	const users = 10_000
	w := newTestServer(b)
	w.addUsers(users, "user")
	memo := w.s.people
	for _, name := range []string{"each page reads all", "memory"} {
		b.Run(name, func(b *testing.B) {
			w.s.orgs.Present.Memo = nil
			if name == "memory" {
				w.s.orgs.Present.Memo = memo
			}
			for b.Loop() {
				for page := range users / 50 {
					w.want(200, "GET", fmt.Sprintf("/v3/users?per_page=50&page=%d", page+1), "", nil)
				}
			}
		})
	}
}
