package api

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/auth"
)

// When a user loses the permission to read a log, the server closes their open stream.
func TestStreamRightsEnd(t *testing.T) {
	t.Parallel()
	for name, withdraw := range map[string]func(w *testServer, role auth.Role) error{
		"role":    func(w *testServer, role auth.Role) error { return w.c.Roles.Delete(role.GUID) },
		"account": func(w *testServer, role auth.Role) error { return w.c.Auth.Accounts().DeleteUser(role.User) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestServer(t)
			w.s.logs.Beat = time.Millisecond
			a := w.createApp("shop")
			role := w.grant(w.user("ada"), auth.SpaceAuditor, w.space.GUID)
			ctx := t.Context()
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/stream/v1/apps/"+a.GUID+"?newest=0", nil)
			r.Host = "127.0.0.1:8484"
			r.Header.Set("Authorization", "bearer "+w.login("ada"))
			reading, writing := io.Pipe()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				w.listener.ServeHTTP(&pipeWriter{header: http.Header{}, w: writing}, r)
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
			if err := withdraw(w, role); err != nil {
				t.Fatal(err)
			}
			<-ended
			reading.Close()
		})
	}
}

// pipeWriter writes the response into a pipe.
type pipeWriter struct {
	header http.Header
	w      io.Writer
}

func (p *pipeWriter) Header() http.Header         { return p.header }
func (p *pipeWriter) WriteHeader(int)             {}
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
