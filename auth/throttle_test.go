package auth

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/auth/throttle"
)

// Five failures lock a name for a while, even a name that does not exist.
// Administrators are not locked, because they can unlock others.
func TestLockout(t *testing.T) {
	for name, tc := range map[string]struct {
		password string
		locks    bool
	}{
		"bob": {"secret", true}, "nobody": {"", true}, "admin": {adminPassword, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.user("bob", "secret")
				try := func(password string) answer {
					return w.form(cf, "grant_type", "password", "username", name, "password", password)
				}
				for range throttle.LockAfter {
					if a := try("wrong"); a.text("error_description") != "Bad credentials" {
						t.Errorf("failure: %s", a.raw)
					}
				}
				a := try(tc.password)
				if locked := a.text("error_description") == lockedText; locked != tc.locks {
					t.Errorf("locked = %t: %s", locked, a.raw)
				}
				if tc.locks {
					a.want(t, "locked", 401, "unauthorized")
				}
				time.Sleep(throttle.LockWindow)
				if a := try(tc.password); (a.code == 200) != (tc.password != "") {
					t.Errorf("afterwards: %d %s", a.code, a.raw)
				}
			})
		})
	}
}
