// Package notify is the notification service at /notify. Clients register kinds of
// notifications and send them to users, spaces, organizations, scopes, addresses or
// everyone; each recipient gets a mail.
//
//	request ─▶ permission check ─▶ kinds, templates, preferences      Server, on disk
//	              │
//	              └─▶ send: Directory (who?) ─▶ Queue (one Message each, on disk) ─▶ 200
//	                                              │
//	            Courier ◀─────────────────────────┘
//	              └─▶ Compose (subscribed? template filled in) ─▶ Mailer: SMTP, or the Inbox
//
// The API has two versions. The header X-NOTIFICATIONS-VERSION selects one.
package notify

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/inbound"
	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/notify/unsubscribe"
	"github.com/dewrun/dew/store"
)

// VersionHeader selects the API version of a request; the default is 1.
const VersionHeader = "X-NOTIFICATIONS-VERSION"

// Limits of the input.
const (
	maxBody      = 1 << 20 // bytes of any body
	maxName      = 255     // characters of ids, names and descriptions
	maxRequestID = 128
)

// Verifier returns the principal of a token. auth.Server implements it.
type Verifier interface {
	// Verify returns auth.ErrExpired, auth.ErrRevoked or auth.ErrInvalidToken for a
	// token that is not valid.
	Verify(token string) (auth.Principal, error)
}

var _ Verifier = (*RemoteKeys)(nil)

// Config configures a Server.
type Config struct {
	DB        *store.DB
	Auth      Verifier
	Directory delivery.Directory
	Queue     *delivery.Queue
	// PublicURL is the URL of the service: http://127.0.0.1:8484/notify.
	PublicURL string
	// From is the sender address of mails.
	From string
	// Domain is the value of {{.Domain}} in templates.
	Domain string
	// EncryptionKey encrypts {{.UnsubscribeID}}. If it is empty, so is the id.
	EncryptionKey string
	// CORSOrigin is the origin of the pages that can read preferences; empty: all.
	CORSOrigin string
	// DefaultScopes are the scopes of all users, which cannot be used as recipients. If
	// nil, the default is platformScopes.
	DefaultScopes []string
	// Metrics are shown at /debug/metrics; nil: none.
	Metrics *delivery.Metrics
	// CheckDisk returns an error if nothing more can be stored on disk; nil: no check.
	CheckDisk func() error
	Logger    *slog.Logger
}

// platformScopes are the scopes of all users in Cloud Foundry.
var platformScopes = []string{
	"openid", "cloud_controller.read", "cloud_controller.write", "cloud_controller_service_permissions.read",
	"password.write", "uaa.user", "scim.me", "scim.userids", "approvals.me", "oauth.approvals",
	ScopePrefsRead, ScopePrefsWrite,
}

// Server handles requests and composes the mails for them. It is safe for concurrent
// use.
type Server struct {
	*core
	*composer
	v1
	v2

	prefix   string // path of PublicURL
	page     *unsubscribe.Page
	versions map[int]http.Handler
}

// core has the settings and records that all parts of the Server use.
type core struct {
	c       Config
	log     *slog.Logger
	buckets buckets
	links   *unsubscribe.Links
}

// v1 are the endpoints of version 1, by subject.
type v1 struct {
	*kinds
	*templates
	*preferenceHandlers
	*sending
}

// v2 are the endpoints of version 2, by subject.
type v2 struct {
	*campaigns
	*senders
	*templates2
	*campaignTypes
}

// The parts of the Server.
type (
	kinds              struct{ *core } // clients and their kinds of notifications
	templates          struct{ *core }
	preferenceHandlers struct{ *core }
	sending            struct{ *core }
	composer           struct{ *core } // composes the mail of a message
	senders            struct{ *core }
	templates2         struct{ *core }
	campaignTypes      struct{ *core }
)

// New creates a Server.
func New(c Config) (*Server, error) {
	for name, missing := range map[string]bool{
		"DB": c.DB == nil, "Auth": c.Auth == nil, "Directory": c.Directory == nil, "Queue": c.Queue == nil, "Logger": c.Logger == nil,
	} {
		if missing {
			return nil, fmt.Errorf("cannot create the notification service without %s", name)
		}
	}
	public, err := url.Parse(c.PublicURL)
	if err != nil || public.Host == "" || public.Scheme != "http" && public.Scheme != "https" {
		return nil, fmt.Errorf("cannot create the notification service: its public URL must have the form http://127.0.0.1:8484/notify, not %q", c.PublicURL)
	}
	c.CORSOrigin = cmp.Or(c.CORSOrigin, "*")
	if c.DefaultScopes == nil {
		c.DefaultScopes = platformScopes
	}
	c.Domain = cmp.Or(c.Domain, public.Hostname())
	c.From = cmp.Or(c.From, "no-reply@"+c.Domain)
	links, err := unsubscribe.NewLinks(c.DB, c.PublicURL)
	if err != nil {
		return nil, err
	}
	k := &core{c: c, log: c.Logger, buckets: newBuckets(c.DB), links: links}
	s := &Server{
		core: k, composer: &composer{k}, prefix: strings.TrimSuffix(public.Path, "/"), page: unsubscribe.NewPage(links, &subscriptions{k}, c.Logger),
		v1: v1{&kinds{k}, &templates{k}, &preferenceHandlers{k}, &sending{k}},
		v2: v2{&campaigns{core: k}, &senders{k}, &templates2{k}, &campaignTypes{k}},
	}
	s.versions = map[int]http.Handler{}
	for _, d := range []apiVersion{{delivery.V1, permissions, s.endpoints()}, {delivery.V2, permissions2, s.endpoints2()}} {
		if s.versions[d.version], err = s.mux(d); err != nil {
			return nil, fmt.Errorf("cannot create version %d of the notification service: %w", d.version, err)
		}
	}
	return s, nil
}

// apiVersion is one version of the API.
type apiVersion struct {
	version     int
	permissions map[string]permission
	endpoints   map[string]endpoint
}

// endpoints returns the endpoints of version 1.
func (s *Server) endpoints() map[string]endpoint {
	return map[string]endpoint{
		"GET /info":          func(request) (any, error) { return map[string]int{"version": delivery.V1}, nil },
		"GET /debug/metrics": s.debugMetrics,

		"PUT /registration":                          s.registerOld,
		"PUT /notifications":                         s.register,
		"GET /notifications":                         s.listKinds,
		"PUT /clients/{client}/notifications/{kind}": s.updateKind,
		"PUT /clients/{client}/template":             s.assignToClient,
		"PUT " + kindTemplatePath:                    s.assignToKind,

		"POST /templates":                  s.createTemplate,
		"GET /templates":                   s.listTemplates,
		"GET /templates/{id}":              s.getTemplate,
		"PUT /templates/{id}":              s.updateTemplate,
		"DELETE /templates/{id}":           s.deleteTemplate,
		"GET /templates/{id}/associations": s.listAssociations,
		"GET /default_template":            s.getTemplate,
		"PUT /default_template":            s.updateTemplate,

		"POST /users/{guid}":         s.sendToUser,
		"POST /spaces/{guid}":        s.sendToSpace,
		"POST /organizations/{guid}": s.sendToOrg,
		"POST /everyone":             s.sendToEveryone,
		"POST /uaa_scopes/{scope}":   s.sendToScope,
		"POST /emails":               s.sendToAddress,
		"GET /messages/{id}":         s.getMessage,

		"OPTIONS /user_preferences":        s.answerPreflight,
		"OPTIONS /user_preferences/{guid}": s.answerPreflight,
		"GET /user_preferences":            s.ownPreferences,
		"PATCH /user_preferences":          s.changeOwnPreferences,
		"GET /user_preferences/{guid}":     s.preferencesOf,
		"PATCH /user_preferences/{guid}":   s.changePreferencesOf,
	}
}

// request is an authorized request with its caller.
type request struct {
	*http.Request
	who auth.Principal
}

// endpoint returns a value for the body, a reply, or an error.
type endpoint func(r request) (any, error)

// reply is a response with more than a body and status 200.
type reply struct {
	status int
	body   any // as JSON; nil: none
}

// noContent is the response without a body.
var noContent = reply{status: http.StatusNoContent}

// mux wraps every endpoint with its permission check. All other paths give 404, with
// any method.
func (s *Server) mux(d apiVersion) (http.Handler, error) {
	if err := checkPermissions(d.permissions, slices.Sorted(maps.Keys(d.endpoints))); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/", http.HandlerFunc(http.NotFound))
	for pattern, e := range d.endpoints {
		mux.Handle(pattern, s.serve(d.version, d.permissions[pattern], e))
	}
	return mux, nil
}

// Handler returns the handler for paths relative to the service, such as /templates. To
// serve it under another path, strip that prefix first.
func (s *Server) Handler() http.Handler {
	return s.recoverPanics(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if unsubscribe.IsPage(r.URL.Path) {
			s.page.ServeHTTP(w, r)
			return
		}
		version, ok := versionOf(r.Header.Get(VersionHeader))
		next := s.versions[version]
		switch clean := path.Clean("/" + r.URL.Path); {
		case !ok || next == nil || r.Method == http.MethodHead:
			http.NotFound(w, r)
		case clean != r.URL.Path && clean+"/" != r.URL.Path:
			to := url.URL{Path: s.prefix + clean, RawQuery: r.URL.RawQuery}
			http.Redirect(w, r, to.String(), http.StatusMovedPermanently)
		default:
			next.ServeHTTP(w, r)
		}
	}))
}

// versionOf parses the header that selects the API version.
func versionOf(header string) (int, bool) {
	if header == "" {
		return delivery.V1, true
	}
	n, err := strconv.Atoi(header)
	return n, err == nil
}

// recoverPanics turns a panic into an error response, so that the daemon keeps running.
func (s *Server) recoverPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler { //nolint:errorlint // net/http compares it so, too
				panic(p)
			}
			s.log.Error("panic while handling a request", "method", r.Method, "path", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			s.write(w, r, s.failure(r, errInternal))
		}()
		next.ServeHTTP(w, r)
	})
}

// serve checks the permission of the caller and writes the response of the endpoint.
func (s *Server) serve(version int, required permission, e endpoint) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		if version == delivery.V1 && isPreferencesPath(r) {
			s.setCORSHeaders(w.Header())
		}
		who, err := s.authorize(r, version, required)
		if err == nil && inbound.URL(r.URL) != nil {
			err = errAddress
		}
		var v any
		if err == nil {
			v, err = e(request{r, who})
		}
		if err != nil {
			v = s.failure(r, err)
		}
		response, ok := v.(reply)
		if !ok {
			response = reply{status: http.StatusOK, body: v}
		}
		s.write(w, r, response)
	})
}

// authorize returns the caller if it has the permission.
func (s *Server) authorize(r *http.Request, version int, required permission) (auth.Principal, error) {
	if required.open {
		return auth.Principal{}, nil
	}
	who, err := s.caller(r, version)
	if err != nil {
		return who, err
	}
	switch {
	case required.self && who.IsUser && who.ID != r.PathValue("user"):
		return who, forbidden("Users can change only their own subscriptions")
	case required.self && !canChangeSubscriptions(who, r.PathValue("user")):
		return who, missingScope(subscriptionScope(who))
	case !slices.ContainsFunc(required.oneOf, func(scope string) bool { return hasScope(who, scope) }):
		return who, missingScope(required.oneOf...)
	case required.owner && r.PathValue("client") != who.Client && !isAdmin(who):
		return who, forbidden("The token belongs to another client. Use a token of client %q, or one with the scope %s", inbound.Shorten(r.PathValue("client")), ScopeAdmin)
	}
	return who, nil
}

// caller returns the caller of the request: the principal that the listener has set, or
// the one of the token.
func (s *Server) caller(r *http.Request, version int) (auth.Principal, error) {
	if p, ok := auth.FromContext(r.Context()); ok {
		p.Client = cmp.Or(p.Client, p.ID)
		return p, nil
	}
	parts := strings.Split(r.Header.Get("Authorization"), " ")
	if len(parts) != 2 || !strings.EqualFold(parts[0], "bearer") || parts[1] == "" {
		return auth.Principal{}, unauthorized(reasonMissing)
	}
	who, err := s.c.Auth.Verify(parts[1])
	if err != nil {
		return who, tokenError(version, parts[1], err)
	}
	return who, nil
}

// failure returns the response for an error. Only errors of the server are logged.
func (s *Server) failure(r *http.Request, err error) reply {
	p := toProblem(err)
	if p.status >= http.StatusInternalServerError && r.Context().Err() == nil && !errors.Is(err, errInternal) {
		s.log.Error("cannot handle a request", "method", r.Method, "path", r.URL.Path, "err", err)
	}
	body := errorBody{Errors: []string{p.message}}
	if p.detail != "" {
		body.Errors = append(body.Errors, p.detail)
	}
	return reply{status: p.status, body: body}
}

// write sends a response. Errors end with a newline, except 401 and 403, as clients
// expect.
func (s *Server) write(w http.ResponseWriter, r *http.Request, a reply) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	if a.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="notifications"`)
	}
	if a.body == nil {
		w.WriteHeader(a.status)
		return
	}
	raw, err := json.Marshal(a.body)
	if err != nil {
		s.log.Error("cannot encode a response", "path", r.URL.Path, "err", err)
		a.status, raw = http.StatusInternalServerError, []byte(`{"errors":["Internal Server Error"]}`)
	}
	if a.status >= http.StatusBadRequest && a.status != http.StatusUnauthorized && a.status != http.StatusForbidden {
		raw = append(raw, '\n')
	}
	h.Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	if _, err := w.Write(raw); err != nil {
		s.log.Debug("cannot send a response", "path", r.URL.Path, "err", err)
	}
}

// fields are the members of a JSON object, not decoded yet. Unlike encoding/json, names
// are case-sensitive.
type fields map[string]json.RawMessage

// errEmpty is the error for an empty body.
var errEmpty = errors.New("the request body is empty")

// readFields parses the body, which is one JSON object. It is nil for null.
func readFields(r request) (fields, error) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, asRequest(err)
	}
	return parseFields(raw)
}

func parseFields(raw []byte) (f fields, err error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, errEmpty
	}
	if inbound.JSON(raw, &f) != nil || json.Unmarshal(raw, &f) != nil {
		return nil, errParse
	}
	return f, nil
}

// asRequest converts an error of reading a body, which is never the server's fault.
func asRequest(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return err
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errTooSlow
	}
	return errParse
}

// decode decodes members into the variables that are named after them. A missing or
// null member does not change its variable.
func (f fields) decode(vars map[string]any) error {
	for name, v := range vars {
		raw, ok := f[name]
		if ok && json.Unmarshal(raw, v) != nil {
			return errParse
		}
	}
	return nil
}

// unknownKey returns a member with an unknown name, or false.
func (f fields) unknownKey(known ...string) (string, bool) {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if !slices.Contains(known, name) {
			return name, true
		}
	}
	return "", false
}

// tooLong returns an error if a text is too long to store.
func tooLong(name, text string) error {
	if len([]rune(text)) > maxName {
		return invalid("%q has more than %d characters", name, maxName)
	}
	return nil
}
