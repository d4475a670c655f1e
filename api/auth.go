package api

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os/user"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/daemon"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/console"
)

// Handler serves the listener that every program on the machine can reach, including
// browsers. The Host must be one of the listener's own names, and a foreign Origin is
// refused. The caller is identified by a token, or by the cookie of a console session.
func (s *Server) Handler() http.Handler {
	accounts := s.c.Auth.Handler()
	if s.c.Logins != nil {
		accounts = s.c.Logins.Wrap(accounts)
	}
	return s.outer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		base := s.base(r)
		if s.auth[hostname(r.Host)] {
			r = withAuthPath(r)
		}
		switch {
		case !s.names[hostname(r.Host)]:
			s.fail(w, r, &rest.Error{
				Status: http.StatusMisdirectedRequest, Code: 10000, Title: "CF-MisdirectedRequest",
				Detail: "This server is not " + strconv.Quote(hostname(r.Host)) + ": use " + s.links.Public.String(),
			})
		case s.foreign(r, base) && !(s.daemon.IsNotify(r) && daemon.IsPreferences(r)):
			s.fail(w, r, &rest.Error{
				Status: http.StatusForbidden, Code: v3.CodeNotAuthorized, Title: v3.TitleNotAuthorized,
				Detail: "Requests from pages of other origins are not allowed",
			})
		case isAuthRequest(r):
			accounts.ServeHTTP(w, r.WithContext(auth.WithURL(r.Context(), base.String())))
		case s.daemon.IsNotify(r):
			s.daemon.Notifications(w, r)
		case s.c.Console != nil && console.IsPage(r):
			s.c.Console.ServeHTTP(w, r)
		default:
			mux, err := s.muxFor(base)
			if err != nil {
				s.fail(w, r, err)
				return
			}
			mux.ServeHTTP(w, r.WithContext(access.WithCaller(r.Context(), s.caller(r))))
		}
	}))
}

// caller returns the caller that the token of a request identifies, or the cookie of a
// console session.
func (s *Server) caller(r *http.Request) *access.Caller {
	if s.c.Console == nil || !console.HasCookie(r) {
		return s.bearer(r)
	}
	session, who, err := s.c.Console.Authenticate(r)
	if err == nil {
		return &access.Caller{Who: who, Session: session.ID}
	}
	if status, e, ok := console.Refusal(err); ok {
		err = &rest.Error{Status: status, Code: e.Code, Title: e.Title, Detail: e.Detail}
	}
	return &access.Caller{Err: err}
}

// isAuthRequest reports whether the authorization server handles the request.
func isAuthRequest(r *http.Request) bool {
	return r.URL.Path == "/uaa" || strings.HasPrefix(r.URL.Path, "/uaa/")
}

// bearer returns the caller that the token of a request identifies. A caller without a
// valid token can still use public endpoints.
func (s *Server) bearer(r *http.Request) *access.Caller {
	kind, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	token = strings.TrimSpace(token)
	if kind == "" {
		return &access.Caller{Err: access.ErrNotAuthenticated}
	}
	if !strings.EqualFold(kind, "bearer") || token == "" {
		return &access.Caller{Err: access.ErrInvalidToken}
	}
	who, err := s.c.Auth.Verify(token)
	switch {
	case err == nil:
		return &access.Caller{Who: who}
	case errors.Is(err, auth.ErrExpired) || errors.Is(err, auth.ErrRevoked) || errors.Is(err, auth.ErrInvalidToken):
		return &access.Caller{Err: access.ErrInvalidToken}
	}
	return &access.Caller{Err: err}
}

// Local serves the local socket. The mode of the socket's file controls the access, so
// every caller is an administrator. With PeerContext as the server's ConnContext,
// events have the peer's name.
func (s *Server) Local() http.Handler {
	accounts := s.c.Auth.Handler()
	return s.outer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, ok := r.Context().Value(peerKey{}).(auth.Principal)
		if !ok {
			who = localAdmin("unknown", "unknown")
		}
		if isAuthRequest(r) {
			accounts.ServeHTTP(w, r.WithContext(auth.NewContext(r.Context(), who)))
			return
		}
		if s.daemon.IsNotify(r) {
			s.daemon.Notifications(w, r) // it accepts only tokens
			return
		}
		s.mux.ServeHTTP(w, r.WithContext(access.WithCaller(r.Context(), &access.Caller{Who: who, Local: true})))
	}))
}

// ownNames returns the host names that a request can use. A name that a foreign DNS
// server maps to 127.0.0.1 is not among them.
func ownNames(public *url.URL, more []string) map[string]bool {
	return nameSet(append([]string{"localhost", "127.0.0.1", "::1", public.Host}, more...))
}

func nameSet(names []string) map[string]bool {
	set := map[string]bool{}
	for _, n := range names {
		set[hostname(n)] = true
	}
	return set
}

// hostname returns the name in host[:port], in the form that is compared.
func hostname(host string) string {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// foreign reports whether a page of another origin made the request. Another port of
// this machine is another origin.
func (s *Server) foreign(r *http.Request, base *url.URL) bool {
	origins := r.Header.Values("Origin")
	for _, o := range origins {
		if !strings.EqualFold(o, s.links.Public.Scheme+"://"+s.links.Public.Host) && !strings.EqualFold(o, base.Scheme+"://"+r.Host) {
			return true
		}
	}
	return false
}

type peerKey struct{}

// PeerContext is for http.Server.ConnContext of the local socket. It stores the peer's
// identity in the context.
func PeerContext(ctx context.Context, c net.Conn) context.Context {
	uid, err := peerUID(c)
	if err != nil {
		return ctx // unknown, so events have no name
	}
	return context.WithValue(ctx, peerKey{}, peerPrincipal(uid))
}

// peerUID returns the uid of the connected process, from the kernel.
func peerUID(c net.Conn) (uint32, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0, unix.ENOTSOCK
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if failed != nil {
		return 0, failed
	}
	return cred.Uid, nil
}

// peerPrincipal returns the administrator with a uid, named after the machine's user if there is
// one.
func peerPrincipal(uid uint32) auth.Principal {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return localAdmin("uid-"+id, u.Username)
	}
	return localAdmin("uid-"+id, "uid "+id)
}

func localAdmin(id, name string) auth.Principal {
	return auth.Principal{ID: id, Name: name, IsUser: true, Scopes: []string{
		auth.ScopeAdmin, auth.ScopeRead, auth.ScopeWrite, "uaa.admin", "scim.read", "scim.write", "clients.read", "clients.write", "clients.admin",
	}}
}
