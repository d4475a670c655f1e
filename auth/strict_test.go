package auth

import (
	"strings"
	"testing"
)

// Two values for one key, and text that is not UTF-8, are refused, because programs
// read them differently.
func TestUnclearBodies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := as(w.admin())
	for body, says := range map[string]string{
		`{"userName":"eve","userName":"bob","password":"p"}`:                         `duplicate key \"userName\"`,
		`{"userName":"eve","username":"bob","password":"p"}`:                         `duplicate key \"username\"`,
		`{"userName":"eve","password":"p","name":{"givenName":"a","givenName":"b"}}`: `duplicate key \"givenName\"`,
		"{\"userName\":\"\xff\",\"password\":\"p\"}":                                 "invalid UTF-8",
		`{"userName":"\ud800","password":"p"}`:                                       "invalid UTF-8",
	} {
		a := w.do("POST", "/uaa/Users", body, admin)
		a.want(t, body, 400, "invalid_request")
		if !strings.Contains(a.raw, says) {
			t.Errorf("%q: %s, want %s", body, a.raw, says)
		}
	}
	w.do("POST", "/uaa/oauth/clients", `{"client_id":"a","client_id":"b","client_secret":"s","authorized_grant_types":["client_credentials"]}`, admin).want(t, "client", 400, "invalid_request")
	w.do("GET", "/uaa/Users/%FF", nil, admin).want(t, "path", 400, "invalid_request")
	w.do("GET", "/uaa/Users?filter=%FF", nil, admin).want(t, "query", 400, "invalid_request")
	w.do("POST", "/uaa/oauth/token", "grant_type=password&username=%FF", isForm).want(t, "form", 400, "invalid_request")
}
