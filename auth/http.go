package auth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/dewrun/dew/inbound"
)

const maxBody = 64 << 10

// reply is the response of an endpoint.
type reply struct {
	status   int // 0 means 200
	location string
	etag     string
	body     any // nil for none
}

// endpoint decodes a request, checks permissions, and returns the response.
type endpoint func(r *http.Request) (reply, error)

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, e := range s.endpoints() {
		mux.Handle(pattern, s.serve(e))
	}
	mux.Handle("/", s.serve(func(r *http.Request) (reply, error) { return reply{}, unknown(mux, r) }))
	return mux
}

// endpoints returns all endpoints. The description has a row for each.
func (s *Server) endpoints() map[string]endpoint {
	return map[string]endpoint{
		"GET /uaa/login":                            s.info,
		"GET /uaa/info":                             s.info,
		"GET /uaa/healthz":                          s.healthz,
		"GET /uaa/token_key":                        s.tokenKey,
		"GET /uaa/token_keys":                       s.tokenKeys,
		"GET /uaa/.well-known/openid-configuration": s.discovery,

		"POST /uaa/oauth/token":                      s.token,
		"GET /uaa/oauth/authorize":                   s.authorize,
		"DELETE /uaa/oauth/token/revoke/{jti}":       s.revokeToken,
		"DELETE /uaa/oauth/token/revoke/user/{id}":   s.revokeUser,
		"DELETE /uaa/oauth/token/revoke/client/{id}": s.revokeClient,
		"POST /uaa/check_token":                      s.checkToken,
		"POST /uaa/introspect":                       s.introspect,
		"GET /uaa/userinfo":                          s.userinfo,
		"GET /uaa/passcode":                          s.passcode,
		"GET /uaa/Users":                             s.listUsers,
		"POST /uaa/Users":                            s.createUser,
		"GET /uaa/Users/{id}":                        s.getUser,
		"PUT /uaa/Users/{id}":                        s.putUser,
		"PATCH /uaa/Users/{id}":                      s.patchUser,
		"DELETE /uaa/Users/{id}":                     s.deleteUser,
		"PUT /uaa/Users/{id}/password":               s.putPassword,
		"GET /uaa/Groups":                            s.listGroups,
		"GET /uaa/Groups/{id}":                       s.getGroup,
		"POST /uaa/Groups":                           s.createGroup,
		"PUT /uaa/Groups/{id}":                       s.putGroup,
		"PATCH /uaa/Groups/{id}":                     s.patchGroup,
		"DELETE /uaa/Groups/{id}":                    s.deleteGroup,
		"GET /uaa/Groups/{id}/members":               s.listMembers,
		"POST /uaa/Groups/{id}/members":              s.addMember,
		"DELETE /uaa/Groups/{id}/members/{member}":   s.removeMember,
		"GET /uaa/oauth/clients":                     s.listClients,
		"POST /uaa/oauth/clients":                    s.createClient,
		"GET /uaa/oauth/clients/{id}":                s.getClient,
		"PUT /uaa/oauth/clients/{id}":                s.putClient,
		"DELETE /uaa/oauth/clients/{id}":             s.deleteClient,
		"PUT /uaa/oauth/clients/{id}/secret":         s.putSecret,
	}
}

// unknown returns 404 for an unknown path and 405 for a known path with another method.
func unknown(mux *http.ServeMux, r *http.Request) error {
	var allowed []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		other := r.Clone(r.Context())
		other.Method = m
		if _, pattern := mux.Handler(other); pattern != "/" && pattern != "" {
			allowed = append(allowed, m)
		}
	}
	if len(allowed) > 0 {
		return &problem{
			status: http.StatusMethodNotAllowed, code: "method_not_allowed",
			description: fmt.Sprintf("Request method %s is not supported for this path", printable(r.Method)), allow: strings.Join(allowed, ", "),
		}
	}
	return &problem{status: http.StatusNotFound, code: "not_found", description: "This path does not exist"}
}

// serve turns the result of an endpoint into a response.
func (s *core) serve(e endpoint) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		// Tokens, codes and accounts must not be cached.
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		var rep reply
		err := inbound.URL(r.URL)
		if err != nil {
			err = badRequest("The URL is not valid: " + err.Error())
		} else {
			rep, err = e(r)
		}
		if err != nil {
			rep = s.fail(w, r, err)
		}
		s.write(w, r, rep)
	})
}

func (s *core) write(w http.ResponseWriter, r *http.Request, rep reply) {
	if rep.location != "" {
		w.Header().Set("Location", rep.location)
	}
	if rep.etag != "" {
		w.Header().Set("ETag", rep.etag)
	}
	if rep.status == 0 {
		rep.status = http.StatusOK
	}
	if rep.body == nil {
		w.WriteHeader(rep.status)
		return
	}
	raw, err := json.Marshal(rep.body)
	if err != nil {
		s.log.Error("cannot encode a response", "path", r.URL.Path, "err", err)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(rep.status)
	if _, err := w.Write(append(raw, '\n')); err != nil {
		s.log.Debug("cannot send a response", "path", r.URL.Path, "err", err)
	}
}

// problem is an error in the format of UAA.
type problem struct {
	status      int
	code        string
	description string
	scope       string // scopes that would have been sufficient
	allow       string // allowed methods
	challenge   string // how to authenticate
}

func (p *problem) Error() string { return p.code + ": " + p.description }

func (s *core) fail(w http.ResponseWriter, r *http.Request, err error) reply {
	p := toProblem(err)
	if p.status == http.StatusInternalServerError {
		s.log.Error("cannot handle a request", "method", r.Method, "path", r.URL.Path, "err", err)
	}
	if p.status == http.StatusUnauthorized {
		challenge := p.challenge
		if challenge == "" {
			challenge = fmt.Sprintf(`Bearer realm="UAA", error=%q, error_description=%q`, p.code, p.description)
		}
		w.Header().Set("WWW-Authenticate", challenge)
	}
	if p.allow != "" {
		w.Header().Set("Allow", p.allow)
	}
	body := map[string]string{"error": p.code, "error_description": p.description}
	if p.scope != "" {
		body["scope"] = p.scope
	}
	return reply{status: p.status, body: body}
}

func toProblem(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &problem{status: http.StatusRequestEntityTooLarge, code: "invalid_request", description: fmt.Sprintf("The request body has more than %d bytes", maxBody)}
	}
	if invalid, ok := errors.AsType[*Invalid](err); ok {
		return badRequest(invalid.Error())
	}
	switch {
	case errors.Is(err, ErrExpired):
		return &problem{status: http.StatusUnauthorized, code: "invalid_token", description: "The token has expired"}
	case errors.Is(err, ErrRevoked):
		return &problem{status: http.StatusUnauthorized, code: "invalid_token", description: "The token has been revoked"}
	case errors.Is(err, ErrInvalidToken):
		return &problem{status: http.StatusUnauthorized, code: "invalid_token", description: "The token is not valid"}
	}
	return &problem{status: http.StatusInternalServerError, code: "server_error", description: "An unexpected error occurred. See the log of dewd for the cause"}
}

func badRequest(description string) *problem {
	return &problem{status: http.StatusBadRequest, code: "invalid_request", description: description}
}

// caller returns the principal that makes the request.
func (s *core) caller(r *http.Request) (Principal, error) {
	if p, ok := FromContext(r.Context()); ok {
		return p, nil
	}
	token, ok := bearer(r.Header.Get("Authorization"))
	if !ok {
		return Principal{}, &problem{
			status: http.StatusUnauthorized, code: "unauthorized",
			description: "Full authentication is required to access this resource",
		}
	}
	return s.Verify(token)
}

// bearer extracts the token from a header.
func bearer(header string) (string, bool) {
	scheme, token, ok := strings.Cut(header, " ")
	token = strings.TrimSpace(token)
	return token, ok && strings.EqualFold(scheme, "bearer") && token != ""
}

// permitted returns the caller if it has one of the scopes.
func (s *core) permitted(r *http.Request, scopes ...string) (Principal, error) {
	p, err := s.caller(r)
	if err != nil {
		return p, err
	}
	return p, requireScope(p, scopes...)
}

func requireScope(p Principal, scopes ...string) error {
	if p.hasAny(scopes...) {
		return nil
	}
	return &problem{
		status: http.StatusForbidden, code: "insufficient_scope",
		description: "Insufficient scope for this resource", scope: strings.Join(scopes, " "),
	}
}

// checkGrantable refuses to grant scopes that the caller does not have, unless the
// caller has one of the scopes in unless.
func checkGrantable(p Principal, wanted []string, unless ...string) error {
	if p.hasAny(unless...) {
		return nil
	}
	for _, scope := range wanted {
		if !p.Has(scope) {
			return requireScope(p, unless...)
		}
	}
	return nil
}

// decode reads one JSON object.
func decode(r *http.Request, v any) error {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return asRequest(err)
	}
	if !bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{")) {
		return badRequest("The request body must be a JSON object")
	}
	if err := inbound.JSON(raw, v); err != nil && !errors.Is(err, inbound.ErrSyntax) {
		return badRequest("The request body is not valid: " + err.Error())
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return badRequest("The request body is not valid: " + err.Error())
	}
	return nil
}

// asRequest converts an error of reading a body into a client error.
func asRequest(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return err
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &problem{status: http.StatusRequestTimeout, code: "invalid_request", description: "The request body arrived too slowly"}
	}
	return badRequest("The request body cannot be read")
}

// record reports a change that was made or refused.
func (s *core) record(e event, err error) {
	if s.cfg.Record == nil {
		return
	}
	if err != nil {
		e.kind += ".refused"
	}
	s.cfg.Record(e.kind, e.who, e.target, e.name)
}

// event is a change of an account.
type event struct {
	kind         string
	who          Principal
	target, name string
}

// The kinds of events. The kind of a refused change has the suffix ".refused".
const (
	EventUserCreate   = "audit.user.create"
	EventUserUpdate   = "audit.user.update"
	EventUserPassword = "audit.user.password"
	EventUserRevoke   = "audit.user.revoke"
	EventUserDelete   = "audit.user.delete"
	EventGroupCreate  = "audit.group.create"
	EventGroupUpdate  = "audit.group.update"
	EventGroupDelete  = "audit.group.delete"
	EventClientCreate = "audit.client.create"
	EventClientUpdate = "audit.client.update"
	EventClientSecret = "audit.client.secret"
	EventClientRevoke = "audit.client.revoke"
	EventClientDelete = "audit.client.delete"
)

// peer returns the address of the machine that a request comes from.
func peer(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// printable shortens a text from a request so that a message can quote it.
func printable(text string) string {
	const most = 100
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// selectAttributes returns only some attributes of a resource, and always id.
func selectAttributes(resource any, attributes []string) (any, error) {
	if len(attributes) == 0 {
		return resource, nil
	}
	raw, err := json.Marshal(resource)
	if err != nil {
		return nil, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	for k := range all {
		if k != "id" && !slices.ContainsFunc(attributes, func(a string) bool {
			top, _, _ := strings.Cut(strings.TrimSpace(a), ".")
			return strings.EqualFold(top, k)
		}) {
			delete(all, k)
		}
	}
	return all, nil
}
