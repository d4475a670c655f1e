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
)

// Handler answers on the listener that everybody on the machine can reach, also
// the pages in a browser: the Host must be one of the listener's own names, a
// foreign Origin is turned away, and whoever comes is the bearer of a token.
func (s *Server) Handler() http.Handler {
	accounts := s.c.Auth.Handler()
	return s.outer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !s.names[hostname(r.Host)]:
			s.fail(w, r, &rest.Error{
				Status: http.StatusMisdirectedRequest, Code: 10000, Title: "CF-MisdirectedRequest",
				Detail: "This server is not " + strconv.Quote(hostname(r.Host)) + ": use " + s.links.Public.String(),
			})
		case s.foreign(r) && !(s.daemon.IsNotify(r) && daemon.IsPreferences(r)):
			s.fail(w, r, &rest.Error{
				Status: http.StatusForbidden, Code: v3.CodeNotAuthorized, Title: v3.TitleNotAuthorized,
				Detail: "Requests of pages from other origins are not served",
			})
		case ofAccounts(r):
			accounts.ServeHTTP(w, r)
		case s.daemon.IsNotify(r):
			s.daemon.Notifications(w, r)
		default:
			s.mux.ServeHTTP(w, r.WithContext(access.WithCaller(r.Context(), s.bearer(r))))
		}
	}))
}

// ofAccounts tells the requests that the authorization server answers.
func ofAccounts(r *http.Request) bool {
	return r.URL.Path == "/uaa" || strings.HasPrefix(r.URL.Path, "/uaa/")
}

// bearer is who the token of a request speaks for. Who comes without one, or with
// a bad one, still reads what is open to everybody.
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

// Local answers on the local socket. Its mode is the check of who comes in, so
// whoever does is an administrator; with PeerContext as the server's ConnContext
// the peer's name stands in the events.
func (s *Server) Local() http.Handler {
	accounts := s.c.Auth.Handler()
	return s.outer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, ok := r.Context().Value(peerKey{}).(auth.Principal)
		if !ok {
			who = localAdmin("unknown", "unknown")
		}
		if ofAccounts(r) {
			accounts.ServeHTTP(w, r.WithContext(auth.NewContext(r.Context(), who)))
			return
		}
		if s.daemon.IsNotify(r) {
			s.daemon.Notifications(w, r) // it knows tokens alone
			return
		}
		s.mux.ServeHTTP(w, r.WithContext(access.WithCaller(r.Context(), &access.Caller{Who: who, Local: true})))
	}))
}

// ownNames are the host names that a request may ask for. A name that somebody
// else's DNS gives to 127.0.0.1 is not among them.
func ownNames(public *url.URL, more []string) map[string]bool {
	names := map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true, hostname(public.Host): true}
	for _, n := range more {
		names[hostname(n)] = true
	}
	return names
}

// hostname is the name in host[:port], as it is compared.
func hostname(host string) string {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// foreign tells a request that a page of another origin made. Another port of
// this machine is another origin.
func (s *Server) foreign(r *http.Request) bool {
	origins := r.Header.Values("Origin")
	for _, o := range origins {
		if !strings.EqualFold(o, s.links.Public.Scheme+"://"+s.links.Public.Host) && !strings.EqualFold(o, s.links.Public.Scheme+"://"+r.Host) {
			return true
		}
	}
	return false
}

type peerKey struct{}

// PeerContext is for http.Server.ConnContext of the local socket: it notes who
// is at the other end.
func PeerContext(ctx context.Context, c net.Conn) context.Context {
	uid, err := peerUID(c)
	if err != nil {
		return ctx // unknown: the events name nobody
	}
	return context.WithValue(ctx, peerKey{}, peer(uid))
}

// peerUID asks the kernel whose process connected.
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

// peer is the administrator behind a uid; the machine's own name for it where it
// has one.
func peer(uid uint32) auth.Principal {
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
