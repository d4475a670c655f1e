package api

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"os/user"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/app"
)

// Handler answers on the listener that everybody on the machine can reach, also
// the pages in a browser: the Host must be one of the listener's own names, a
// foreign Origin is turned away, and without a token only the front page and the
// health of the daemon are told.
func (s *Server) Handler() http.Handler {
	return s.outer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !s.names[hostname(r.Host)]:
			s.fail(w, r, &Error{
				Status: http.StatusMisdirectedRequest, Code: 10000, Title: "CF-MisdirectedRequest",
				Detail: "This server is not " + strconv.Quote(hostname(r.Host)) + ": use " + s.public.String(),
			})
		case s.foreign(r):
			s.fail(w, r, &Error{
				Status: http.StatusForbidden, Code: 10003, Title: "CF-NotAuthorized",
				Detail: "Requests of pages from other origins are not served",
			})
		case !open(r):
			s.fail(w, r, errNotAuthenticated)
		default:
			s.mux.ServeHTTP(w, r)
		}
	}))
}

// open tells the requests that need no token.
func open(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && (r.URL.Path == "/" || r.URL.Path == "/healthz")
}

// Local answers on the local socket. Its mode is the check of who comes in; with
// PeerContext as the server's ConnContext the peer's name stands in the events.
func (s *Server) Local() http.Handler { return s.outer(s.local()) }

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
		if !strings.EqualFold(o, s.public.Scheme+"://"+s.public.Host) && !strings.EqualFold(o, s.public.Scheme+"://"+r.Host) {
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

// peer is the actor behind a uid; the machine's own name for it where it has one.
func peer(uid uint32) app.Actor {
	id := strconv.FormatUint(uint64(uid), 10)
	a := app.Actor{GUID: "uid-" + id, Type: "user", Name: "uid " + id}
	if u, err := user.LookupId(id); err == nil {
		a.Name = u.Username
	}
	return a
}

// actor is who makes the request.
func actor(ctx context.Context) app.Actor {
	if a, ok := ctx.Value(peerKey{}).(app.Actor); ok {
		return a
	}
	return app.Actor{GUID: "unknown", Type: "user", Name: "unknown"}
}
