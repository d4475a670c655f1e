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
	// CSRFHeader is the header with the page's token, which every request needs.
	CSRFHeader = "X-CSRF-Token"
	// Protocol is the WebSocket protocol of the page. Browsers send no headers of a page
	// with a WebSocket, so the page's token is a second protocol, after TokenProtocol.
	Protocol = "dew.console"
	// TokenProtocol is the start of a WebSocket protocol with the page's token.
	TokenProtocol = "dew.token."
)

// HasCookie reports whether a session's cookie identifies the caller of a request. A
// request with an Authorization header ignores the cookie.
func HasCookie(r *http.Request) bool {
	_, err := r.Cookie(CookieName)
	return err == nil && len(r.Header.Values("Authorization")) == 0
}

// Authenticate returns the session and the user of a request with a cookie. Only the
// page itself can make such a request: see fromPage. The request also needs the page's
// token. Browsers send cookies to every port of a host, so another server on the machine
// can get the cookie, but not the token: the page stores it for its own origin.
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
	if subtle.ConstantTimeCompare([]byte(sentToken(r)), []byte(pageToken(s, cookie.Value))) != 1 {
		return s, auth.Principal{}, ErrCSRF
	}
	return s, p, nil
}

// sentToken returns the page's token in a request.
func sentToken(r *http.Request) string {
	if r.Header.Get("Upgrade") == "" {
		return r.Header.Get(CSRFHeader)
	}
	for protocol := range strings.SplitSeq(r.Header.Get("Sec-WebSocket-Protocol"), ",") {
		if token, ok := strings.CutPrefix(strings.TrimSpace(protocol), TokenProtocol); ok {
			return token
		}
	}
	return ""
}

// fromPage reports whether a page of the console's own origin made the request. Another
// port of the same host is another origin, although it gets the same cookies.
//
// Browsers send Sec-Fetch-Site only over TLS and to the machine itself, and no Origin
// with a GET to the own origin. So a GET without both is accepted: it changes nothing,
// it needs the page's token, and pages of other origins cannot read the response. A
// WebSocket always has an Origin.
func (c *Console) fromPage(r *http.Request) bool {
	sites := r.Header.Values("Sec-Fetch-Site")
	for _, site := range sites {
		if site != "same-origin" {
			return false
		}
	}
	origins := r.Header.Values("Origin")
	for _, o := range origins {
		if !c.ownOrigin(o, r) {
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

func (c *Console) ownOrigin(origin string, r *http.Request) bool {
	scheme := c.c.Public.Scheme
	own := scheme + "://" + c.c.Public.Host
	if r.TLS != nil {
		scheme = "https"
	}
	return strings.EqualFold(origin, own) || strings.EqualFold(origin, scheme+"://"+r.Host)
}
