package auth

import (
	"testing"
	"testing/synctest"
)

// Only services can inspect a token, and an invalid token is reported as inactive.
func TestIntrospect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // failures delay the next attempt
		w := newWorld(t)
		admin := w.admin()
		w.client("service", "s", "uaa.resource")
		gone := w.client("gone", "s", "emails.write")
		if err := w.s.Accounts().DeleteClient("gone"); err != nil {
			t.Fatal(err)
		}
		ask := func(form string, opts ...option) answer {
			return w.do("POST", "/uaa/introspect", form, append([]option{isForm}, opts...)...)
		}
		a := ask("token="+admin, basicAuth("service", "s"))
		if active, _ := a.body["active"].(bool); a.code != 200 || !active || a.text("user_name") != "admin" || a.text("client_id") != "cf" {
			t.Errorf("introspect: %d %s", a.code, a.raw)
		}
		for _, token := range []string{"x", "a.b.c", gone} {
			if a := ask("token="+token, basicAuth("service", "s")); a.code != 200 || a.raw != "{\"active\":false}\n" {
				t.Errorf("introspect of a bad token: %d %q, want that it is not active and nothing else", a.code, a.raw)
			}
		}
		ask("", basicAuth("service", "s")).want(t, "no token", 400, "invalid_request")
		ask("token="+admin).want(t, "nobody", 401, "invalid_client")
		ask("token="+admin, basicAuth("cf", "")).want(t, "cf", 403, "insufficient_scope")
	})
}
