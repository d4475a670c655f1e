package console

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	v3 "github.com/dewrun/dew/api/v3"
)

// policy is the content security policy of the page: only its own files, its own
// scripts and requests to its own origin.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// maxLogin is the maximum size of the body of a login.
const maxLogin = 4 << 10

// IsPage reports whether the console answers a request itself: its files, the login and
// the logout.
func IsPage(r *http.Request) bool {
	return r.URL.Path == Path || strings.HasPrefix(r.URL.Path, Path+"/")
}

// ServeHTTP serves the page. Paths below it that are no file are client-side routes of
// the index page.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, Path), "/")
	switch {
	case r.Method == http.MethodPost && name == "login":
		c.serveLogin(w, r)
	case r.Method == http.MethodPost && name == "logout":
		c.serveLogout(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		c.fail(w, http.StatusMethodNotAllowed, v3.Error{Code: v3.CodeBadRequest, Title: v3.TitleBadRequest, Detail: "This page supports only GET and HEAD"})
	case r.URL.Path == Path:
		http.Redirect(w, r, Path+"/", http.StatusSeeOther)
	case c.assets.files[name] != nil:
		c.assets.files[name].serve(w, r)
	default:
		c.assets.index.serve(w, r)
	}
}

// serveLogin exchanges the code of a link for a cookie and the page's token. It accepts only JSON, which
// pages of other origins cannot send without permission.
func (c *Console) serveLogin(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if !c.fromPage(r) {
		c.refuse(w, ErrForeign)
		return
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		c.fail(w, http.StatusUnsupportedMediaType, v3.Error{Code: v3.CodeBadRequest, Title: v3.TitleBadRequest, Detail: "The login needs a body of type application/json"})
		return
	}
	var body struct {
		Code string `json:"code"`
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLogin))
	if err == nil {
		err = json.Unmarshal(raw, &body)
	}
	if err != nil || body.Code == "" {
		c.fail(w, http.StatusBadRequest, v3.Error{Code: v3.CodeBadRequest, Title: v3.TitleBadRequest, Detail: `The login needs a body such as {"code":"..."}`})
		return
	}
	token, page, err := c.login(body.Code, r.UserAgent())
	if err != nil {
		c.refuse(w, err)
		return
	}
	c.endReplaced(r)
	c.setCookie(w, r, token, int(SessionLifetime.Seconds()))
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v3.ConsoleLogin{CSRFToken: page}) // the browser may have disconnected
}

// endReplaced ends the session whose cookie a new login replaces.
func (c *Console) endReplaced(r *http.Request) {
	cookie, err := r.Cookie(CookieName)
	if err != nil {
		return
	}
	if err := c.End(sessionID(cookie.Value), ""); err != nil && !errors.Is(err, ErrEnded) {
		c.c.Logger.Warn("cannot end a replaced console session", "err", err)
	}
}

// serveLogout ends the session of a browser. It is a success if the session has already
// ended.
func (c *Console) serveLogout(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	s, _, err := c.Authenticate(r)
	if err == nil {
		err = c.End(s.ID, "")
	}
	if err != nil && !errors.Is(err, ErrEnded) {
		c.refuse(w, err)
		return
	}
	c.setCookie(w, r, "", -1)
	w.WriteHeader(http.StatusNoContent)
}

// setCookie sets or deletes the cookie. It is Secure if the request came over TLS, to
// dewd or to the proxy at the public URL.
func (c *Console) setCookie(w http.ResponseWriter, r *http.Request, token string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: CookieName, Value: token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: age,
		Secure: r.TLS != nil || c.c.Public.Scheme == "https",
	})
}

// Refusal returns the status and the error of a request that the console refuses, or
// false for any other error.
func Refusal(err error) (int, v3.Error, bool) {
	const again = " To open the console again, run: dew console"
	switch {
	case errors.Is(err, ErrBadLink):
		return http.StatusUnauthorized, v3.Error{Code: v3.CodeNotAuthenticated, Title: v3.TitleNotAuthenticated, Detail: "This link was already used or has expired: it works once and for 60 s." + again}, true
	case errors.Is(err, ErrEnded):
		return http.StatusUnauthorized, v3.Error{Code: v3.CodeNotAuthenticated, Title: v3.TitleNotAuthenticated, Detail: "The console session has ended." + again}, true
	case errors.Is(err, ErrForeign):
		return http.StatusForbidden, v3.Error{Code: v3.CodeNotAuthorized, Title: v3.TitleNotAuthorized, Detail: "Only pages of the console can use its session"}, true
	case errors.Is(err, ErrCSRF):
		return http.StatusUnauthorized, v3.Error{Code: v3.CodeNotAuthenticated, Title: v3.TitleNotAuthenticated, Detail: "The header X-CSRF-Token is missing or wrong. Only the page that opened the link has its value." + again}, true
	case errors.Is(err, ErrNoRoles):
		return http.StatusUnprocessableEntity, v3.Error{Code: v3.CodeUnprocessable, Title: v3.TitleUnprocessable, Detail: "You have no role in an organization or space, so the console would be empty. Ask an administrator for a role."}, true
	}
	return 0, v3.Error{}, false
}

func (c *Console) refuse(w http.ResponseWriter, err error) {
	status, e, ok := Refusal(err)
	if !ok {
		c.c.Logger.Error("cannot handle a request of the console", "err", err)
		status, e = http.StatusInternalServerError, v3.Error{Code: v3.CodeUnknown, Title: v3.TitleUnknown, Detail: "An unknown error occurred."}
	}
	c.fail(w, status, e)
}

func (c *Console) fail(w http.ResponseWriter, status int, e v3.Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v3.Errors{Errors: []v3.Error{e}}) // the browser may have disconnected
}
