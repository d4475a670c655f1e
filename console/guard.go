package console

import (
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/dewrun/dew/auth"
)

const (
	// CookieName is the name of the cookie with a session's token.
	CookieName = "dew_console"
	// CSRFHeader is the header with the session's CSRF token, which every change needs.
	CSRFHeader = "X-CSRF-Token"
)

// HasCookie reports whether a session's cookie identifies the caller of a request. A
// request with an Authorization header ignores the cookie.
func HasCookie(r *http.Request) bool {
	_, err := r.Cookie(CookieName)
	return err == nil && len(r.Header.Values("Authorization")) == 0
}

// Authenticate returns the session and the user of a request with a cookie. Only the
// page itself can make such a request: see fromPage. A change also needs the CSRF
// token.
func (c *Console) Authenticate(r *http.Request) (Session, auth.Principal, error) {
	if !c.fromPage(r) {
		return Session{}, auth.Principal{}, ErrForeign
	}
	cookie, err := r.Cookie(CookieName)
	if err != nil {
		return Session{}, auth.Principal{}, ErrEnded
	}
	s, p, err := c.resumeSession(cookie.Value)
	if err != nil {
		return s, p, err
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		given, want := r.Header.Get(CSRFHeader), csrfToken(cookie.Value)
		if subtle.ConstantTimeCompare([]byte(given), []byte(want)) != 1 {
			return s, auth.Principal{}, ErrCSRF
		}
	}
	return s, p, nil
}

// CSRFToken returns the CSRF token of the session whose cookie a request has.
func CSRFToken(r *http.Request) string {
	cookie, err := r.Cookie(CookieName)
	if err != nil || !HasCookie(r) {
		return ""
	}
	return csrfToken(cookie.Value)
}

// fromPage reports whether a page of the console's own origin made the request. Another
// port of the same host is another origin, although it gets the same cookies.
//
// Browsers send Sec-Fetch-Site only over TLS and to the machine itself, and no Origin
// with a GET to the own origin. So a GET without both is accepted: it changes nothing,
// and pages of other origins cannot read the response. A WebSocket always has an Origin.
func (c *Console) fromPage(r *http.Request) bool {
	sites := r.Header.Values("Sec-Fetch-Site")
	for _, site := range sites {
		if site != "same-origin" {
			return false
		}
	}
	origins := r.Header.Values("Origin")
	for _, o := range origins {
		if !c.ownOrigin(o, r.Host) {
			return false
		}
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case r.Header.Get("Upgrade") != "":
		return len(origins) == 1
	case !reads:
		return len(origins)+len(sites) > 0
	}
	return true
}

func (c *Console) ownOrigin(origin, host string) bool {
	scheme := c.c.Public.Scheme + "://"
	return strings.EqualFold(origin, scheme+c.c.Public.Host) || strings.EqualFold(origin, scheme+host)
}
