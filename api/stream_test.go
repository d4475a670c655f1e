package api

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/auth"
)

// When a user loses the permission to read a log, the server closes their open streams.
func TestStreamRightsEnd(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		scope    string // instead of a role
		withdraw func(w *testServer, role auth.Role) error
	}{
		"role":    {"", func(w *testServer, role auth.Role) error { return w.c.Roles.Delete(role.GUID) }},
		"account": {"", func(w *testServer, role auth.Role) error { return w.c.Auth.Accounts().DeleteUser(role.User) }},
		"token": {"", func(w *testServer, role auth.Role) error {
			got := w.as(w.login(auth.AdminName), http.MethodDelete, "/uaa/oauth/token/revoke/user/"+role.User, "")
			if got.Code != 200 {
				return errors.New(got.Body.String())
			}
			return nil
		}},
		"scope": {auth.ScopeGlobalAuditor, func(w *testServer, role auth.Role) error {
			_, err := w.c.Auth.Accounts().UpdateUser(role.User, func(u *auth.User) error { u.Groups = nil; return nil })
			return err
		}},
	} {
		for _, path := range []string{"/stream/v1/apps/GUID?newest=0", "/v2/read?log&source_id=GUID"} {
			scope := tt.scope
			if scope != "" && strings.HasPrefix(path, "/v2") {
				scope = "logs.admin" // sees all logs
			}
			t.Run(name+" "+path, func(t *testing.T) {
				t.Parallel()
				w := newTestServer(t)
				w.s.logs.Beat = time.Millisecond
				a := w.createApp("shop")
				role := auth.Role{User: w.user("ada", strings.Fields(scope)...)}
				if scope == "" {
					role = w.grant(role.User, auth.SpaceAuditor, w.space.GUID)
				}
				w.endsStream(strings.ReplaceAll(path, "GUID", a.GUID), w.login("ada"), func() error { return tt.withdraw(w, role) })
			})
		}
	}
}

// endsStream opens a stream, withdraws the permission, and waits for its end.
func (w *testServer) endsStream(path, token string, withdraw func() error) {
	w.t.Helper()
	r := httptest.NewRequestWithContext(w.t.Context(), http.MethodGet, path, nil)
	r.Host = "127.0.0.1:8484"
	r.Header.Set("Authorization", "bearer "+token)
	reading, writing := io.Pipe()
	ended := make(chan struct{})
	out := &pipeWriter{header: http.Header{}, w: writing}
	go func() {
		defer close(ended)
		w.s.Handler().ServeHTTP(out, r)
	}()
	beats := make(chan struct{}, 1)
	go func() {
		b := make([]byte, 1<<10)
		for {
			if _, err := reading.Read(b); err != nil {
				return
			}
			select {
			case beats <- struct{}{}:
			default:
			}
		}
	}()
	<-beats // the stream is open
	if out.status != http.StatusOK {
		w.t.Fatalf("status = %d", out.status)
	}
	if err := withdraw(); err != nil {
		w.t.Fatal(err)
	}
	<-ended
	reading.Close()
}

// pipeWriter writes the response into a pipe.
type pipeWriter struct {
	header http.Header
	w      io.Writer
	status int
}

func (p *pipeWriter) Header() http.Header         { return p.header }
func (p *pipeWriter) WriteHeader(status int)      { p.status = status }
func (p *pipeWriter) Write(b []byte) (int, error) { return p.w.Write(b) }
func (p *pipeWriter) Flush()                      {}

// A stream that can get no more lines stops, even if the client requested to follow.
func TestStreamEnds(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	w.s.logs.Beat = time.Millisecond
	a := w.createApp("shop")
	w.print(a.GUID, "one")
	for name, query := range map[string]string{
		"until a time that comes":   "until=" + time.Now().Add(50*time.Millisecond).UTC().Format(time.RFC3339Nano),
		"until a time that is past": "until=2001-01-01T00:00:00Z",
	} {
		got := w.request(http.MethodGet, "/stream/v1/apps/"+a.GUID+"?"+query, "")
		if !strings.HasSuffix(got.Body.String(), "event: end\ndata: {}\n\n") {
			t.Errorf("%s: %d %q, want its end", name, got.Code, got.Body)
		}
	}
}
