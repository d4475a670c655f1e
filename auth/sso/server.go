package sso

import (
	"crypto/subtle"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/ticket"
)

const (
	// sessionCookie has the token of a login. See cookieName for the name with https.
	sessionCookie = "dew_login"
	csrfCookie    = "dew_login_form"
	csrfField     = "X-Uaa-Csrf" // the name of UAA, for programs that log in

	sessionLifetime = 8 * time.Hour
	maxSessions     = 100 // of one user
	maxForm         = 64 << 10
	maxNonce        = 1 << 10 // bytes
)

// shared are the scopes that clients get. They identify the user, and let the client
// ask what the user can do with a service instance.
var shared = []string{"openid", "cloud_controller_service_permissions.read"}

// Server has the pages. Create one with New.
type Server struct {
	auth     *auth.Server
	codes    *Codes
	sessions *ticket.Store[session]
	origin   *http.CrossOriginProtection
	log      *slog.Logger
}

// session is a user who logged in with this browser.
type session struct {
	grant auth.Grant
	name  string
}

// New returns the pages of an authorization server, which redeems the codes.
func New(a *auth.Server, codes *Codes, log *slog.Logger) *Server {
	return &Server{auth: a, codes: codes, sessions: ticket.New[session](maxSessions), origin: http.NewCrossOriginProtection(), log: log}
}

// Wrap returns a handler that serves the pages, and passes the requests of programs to
// the authorization server.
func (s *Server) Wrap(programs http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", programs)
	mux.HandleFunc("GET /uaa/oauth/authorize", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || r.URL.Query().Get("client_id") == auth.ClientSSH {
			programs.ServeHTTP(w, r)
			return
		}
		s.authorize(w, r)
	})
	mux.HandleFunc("GET /uaa/login", func(w http.ResponseWriter, r *http.Request) {
		if !wantsPage(r) {
			programs.ServeHTTP(w, r)
			return
		}
		s.login(w, r)
	})
	mux.HandleFunc("POST /uaa/login.do", s.submit)
	mux.HandleFunc("GET /uaa/logout.do", s.logout)
	mux.HandleFunc("GET /uaa/login.css", style)
	return mux
}

// wantsPage reports whether a browser sent a request. Programs accept JSON or anything.
func wantsPage(r *http.Request) bool {
	accept := r.Header.Get("Accept")
	return strings.Contains(accept, "text/html") && !strings.Contains(accept, "application/json")
}

// request is a valid request for a code.
type request struct {
	client    auth.Client
	redirect  *url.URL
	asked     string // redirect_uri as the client sent it
	state     string
	challenge string
	scopes    []string
}

// parse checks the client and the redirect URI of a request. Without them, dewd must not
// send the browser anywhere.
func (s *Server) parse(query url.Values) (request, error) {
	for _, name := range []string{"client_id", "redirect_uri", "response_type", "state", "scope", "nonce", "code_challenge", "code_challenge_method"} {
		if len(query[name]) > 1 {
			return request{}, errors.New("The parameter " + name + " is given more than once")
		}
	}
	c, err := s.auth.Accounts().Client(query.Get("client_id"))
	if errors.Is(err, auth.ErrNotFound) || err == nil && (!slices.Contains(c.GrantTypes, auth.GrantCode) || len(c.RedirectURIs) == 0) {
		return request{}, errors.New("The client_id is not that of a dashboard") //nolint:staticcheck // shown as a sentence
	}
	if err != nil {
		return request{}, err
	}
	req := request{client: c, asked: query.Get("redirect_uri"), state: query.Get("state"), challenge: query.Get("code_challenge")}
	to := req.asked
	if to == "" && len(c.RedirectURIs) == 1 {
		to = c.RedirectURIs[0]
	}
	if !redirectAllowed(c.RedirectURIs, to) {
		return request{}, errors.New("The redirect_uri is not registered for this client") //nolint:staticcheck // shown as a sentence
	}
	req.redirect, err = url.Parse(to)
	return req, err
}

// check returns the error code for a request that the client made wrong.
func (q *request) check(query url.Values) (kind, text string) {
	switch {
	case query.Get("response_type") != "code":
		return "unsupported_response_type", "The response_type must be code"
	case q.challenge == "" && query.Get("code_challenge_method") != "", q.challenge != "" && (query.Get("code_challenge_method") != challengeS || !verifierForm.MatchString(q.challenge)):
		return "invalid_request", "The code_challenge must have the method S256"
	case len(query.Get("nonce")) > maxNonce:
		return "invalid_request", "The nonce is too long"
	case q.challenge == "" && q.client.Hash == nil:
		return "invalid_request", "A client without a secret needs a code_challenge"
	}
	wanted := strings.Fields(query.Get("scope"))
	for _, scope := range shared {
		if (len(wanted) == 0 || slices.Contains(wanted, scope)) && slices.Contains(q.client.Scopes, scope) {
			q.scopes = append(q.scopes, scope)
		}
	}
	if len(q.scopes) == 0 {
		return "invalid_scope", "None of the requested scopes is allowed"
	}
	return "", ""
}

// answer sends the browser back to the client.
func (q *request) answer(w http.ResponseWriter, r *http.Request, values ...string) {
	to := *q.redirect
	query := to.Query()
	for i := 0; i < len(values); i += 2 {
		query.Set(values[i], values[i+1])
	}
	if q.state != "" {
		query.Set("state", q.state)
	}
	to.RawQuery = query.Encode()
	http.Redirect(w, r, to.String(), http.StatusFound)
}

// authorize sends a code to the client if the user is logged in, and asks the user to
// log in otherwise.
func (s *Server) authorize(w http.ResponseWriter, r *http.Request) {
	harden(w)
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		s.message(w, http.StatusBadRequest, "Cannot log in", "The query string of the URL is not valid")
		return
	}
	req, err := s.parse(query)
	if err != nil {
		s.message(w, http.StatusBadRequest, "Cannot log in", err.Error())
		return
	}
	if kind, text := req.check(query); kind != "" {
		req.answer(w, r, "error", kind, "error_description", text)
		return
	}
	user, ok, err := s.current(r)
	switch {
	case err != nil:
		s.log.Error("cannot check a login", "err", err)
		req.answer(w, r, "error", "server_error", "error_description", "An unexpected error occurred")
	case !ok && query.Get("prompt") == "none":
		req.answer(w, r, "error", "login_required", "error_description", "The user is not logged in")
	case !ok:
		s.form(w, r, form{request: r.URL.RawQuery, req: &req})
	default:
		g := user.grant
		g.Client, g.Scopes, g.Nonce = req.client.ID, req.scopes, query.Get("nonce")
		req.answer(w, r, "code", s.codes.codes.Issue(g.User, code{grant: g, redirect: req.asked, challenge: req.challenge}, codeLifetime))
	}
}

// current returns the session of the browser, if its user can still log in.
func (s *Server) current(r *http.Request) (session, bool, error) {
	c, err := r.Cookie(s.cookieName(r, sessionCookie))
	if err != nil {
		return session{}, false, nil
	}
	found, ok := s.sessions.Get(c.Value)
	if !ok {
		return session{}, false, nil
	}
	p, err := s.auth.ResumeGrant(found.grant)
	if errors.Is(err, auth.ErrRevoked) {
		return session{}, false, nil
	}
	found.name = p.Name
	return found, err == nil, err
}

// login shows the form, or the name of the user who is logged in.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	user, ok, err := s.current(r)
	switch {
	case err != nil:
		s.log.Error("cannot check a login", "err", err)
		s.message(w, http.StatusInternalServerError, "Cannot log in", "An unexpected error occurred. See the log of dewd for the cause")
	case ok:
		harden(w)
		s.page(w, http.StatusOK, page{Title: "You are logged in", User: user.name})
	default:
		s.form(w, r, form{})
	}
}

// submit checks name and password, and continues with the request of the client.
func (s *Server) submit(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := errors.Join(s.origin.Check(r), r.ParseForm()); err != nil {
		s.message(w, http.StatusForbidden, "Cannot log in", "This form was sent by another page, or it is not complete")
		return
	}
	f := form{request: r.PostForm.Get("request"), name: r.PostForm.Get("username")}
	if query, err := url.ParseQuery(f.request); err == nil && f.request != "" {
		if req, err := s.parse(query); err == nil {
			f.req = &req
		}
	}
	cookie, err := r.Cookie(s.cookieName(r, csrfCookie))
	if err != nil || cookie.Value == "" || subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(r.PostForm.Get(csrfField))) != 1 {
		f.status, f.problem = http.StatusForbidden, "The form has expired, or the browser does not accept cookies. Try again"
		s.form(w, r, f)
		return
	}
	g, err := s.auth.Login(r, f.name, r.PostForm.Get("password"))
	if err != nil {
		f.status, f.problem = auth.LoginProblem(err)
		if f.status == http.StatusInternalServerError {
			s.log.Error("cannot log in a user", "err", err)
		}
		if f.status == http.StatusUnauthorized && f.problem == "Bad credentials" {
			f.problem = "The user name or the password is wrong"
		}
		s.form(w, r, f)
		return
	}
	g.ID = "login-" + ticket.Secret()
	s.setCookie(w, r, sessionCookie, s.sessions.Issue(g.User, session{grant: g}, sessionLifetime))
	to := s.auth.BaseURL(r) + "/login"
	if f.req != nil {
		to = s.auth.BaseURL(r) + "/oauth/authorize?" + f.request
	}
	harden(w)
	if !wantsPage(r) {
		http.Redirect(w, r, to, http.StatusSeeOther)
		return
	}
	// Browsers compare all redirects after a form with form-action, and a dashboard can
	// redirect to any host. So the form ends with a page.
	s.page(w, http.StatusOK, page{Title: "You are logged in", Next: to})
}

// logout ends the session of the browser, and the codes that it got. It sends the
// browser back only to a URI of a client.
func (s *Server) logout(w http.ResponseWriter, r *http.Request) {
	if c, err := r.Cookie(s.cookieName(r, sessionCookie)); err == nil {
		if user, ok := s.sessions.Take(c.Value); ok {
			if err := s.auth.RevokeGrant(user.grant, time.Now().Add(codeLifetime)); err != nil {
				s.log.Error("cannot end a login", "err", err)
			}
		}
	}
	s.setCookie(w, r, sessionCookie, "")
	query := r.URL.Query()
	if to := query.Get("redirect"); to != "" {
		c, err := s.auth.Accounts().Client(query.Get("client_id"))
		if err == nil && redirectAllowed(c.RedirectURIs, to) {
			harden(w)
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
	}
	s.message(w, http.StatusOK, "You are logged out", "You can close this window")
}

// secure reports whether the browser uses https, with dewd or with a proxy at the public
// URL.
func (s *Server) secure(r *http.Request) bool {
	return strings.HasPrefix(s.auth.BaseURL(r), "https:")
}

// cookieName returns the name of a cookie. With https it has a prefix, so that no other
// host and no page without https can set the cookie.
func (s *Server) cookieName(r *http.Request, name string) string {
	if s.secure(r) {
		return "__Host-" + name
	}
	return name
}

// setCookie sets a cookie, or deletes it if the value is empty.
func (s *Server) setCookie(w http.ResponseWriter, r *http.Request, name, value string) {
	c := http.Cookie{Name: s.cookieName(r, name), Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: s.secure(r)}
	if value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, &c)
}
