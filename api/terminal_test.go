package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	v3 "github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/console"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/sshd"
	"github.com/dewrun/dew/testkit"
)

// fakeShell is a session that knows three commands: size, echo and exit.
type fakeShell struct {
	in     *io.PipeWriter
	out    *io.PipeReader
	ended  chan struct{}
	finish func(runtime.SessionEnd)

	mu   sync.Mutex // guards the fields below
	size runtime.Size
	end  runtime.SessionEnd
}

func newFakeShell(spec runtime.ExecSpec) *fakeShell {
	in, inWriter := io.Pipe()
	outReader, out := io.Pipe()
	s := &fakeShell{in: inWriter, out: outReader, ended: make(chan struct{}), size: spec.TTY.Size}
	var once sync.Once
	s.finish = func(e runtime.SessionEnd) {
		once.Do(func() {
			s.mu.Lock()
			s.end = e
			s.mu.Unlock()
			close(s.ended)
			_, _ = in.Close(), out.Close()
		})
	}
	go func() {
		for lines := bufio.NewScanner(in); lines.Scan(); {
			word, rest, _ := strings.Cut(lines.Text(), " ")
			switch word {
			case "size":
				s.mu.Lock()
				size := s.size
				s.mu.Unlock()
				fmt.Fprintf(out, "%dx%d %s\n", size.Columns, size.Rows, strings.Join(spec.Env, " "))
			case "echo":
				fmt.Fprintln(out, rest)
			case "exit":
				var code int
				_, _ = fmt.Sscan(rest, &code)
				s.finish(runtime.SessionEnd{Code: code})
			}
		}
	}()
	return s
}

func (s *fakeShell) Streams() runtime.Streams {
	return runtime.Streams{In: s.in, Out: s.out, Err: strings.NewReader("")}
}

func (s *fakeShell) Resize(_ context.Context, size runtime.Size) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size = size
	return nil
}

func (s *fakeShell) Signal(syscall.Signal) error { return nil }

func (s *fakeShell) Wait(ctx context.Context) (runtime.SessionEnd, error) {
	select {
	case <-s.ended:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.end, nil
	case <-ctx.Done():
		return runtime.SessionEnd{}, ctx.Err()
	}
}

func (s *fakeShell) Close() error {
	s.finish(runtime.SessionEnd{Code: 137, Why: "closed"})
	return nil
}

// fakeInstances has a running instance 0 of every process, and the files of one crash.
type fakeInstances struct {
	mu     sync.Mutex
	shells []*fakeShell
	opened []string
}

func (f *fakeInstances) open(at string, spec runtime.ExecSpec) (runtime.Session, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := newFakeShell(spec)
	f.shells, f.opened = append(f.shells, s), append(f.opened, at)
	return s, nil
}

func (f *fakeInstances) Exec(_ context.Context, t runtime.ExecTarget, spec runtime.ExecSpec) (runtime.Session, error) {
	return f.open(fmt.Sprintf("%s/%d", t.Process, t.Index), spec)
}

func (f *fakeInstances) Attach(context.Context, string, runtime.ExecSpec) (runtime.Session, error) {
	return nil, errors.New("no tasks")
}

const crashedID = runtime.InstanceID("0123abcd-0123-0123-0123-0123")

func (f *fakeInstances) Crashed(process string) []runtime.CrashFiles {
	return []runtime.CrashFiles{{Instance: crashedID, Slot: runtime.SlotID{Process: process}}}
}

func (f *fakeInstances) ExecCrashed(_ context.Context, id runtime.InstanceID, _ string, spec runtime.ExecSpec) (runtime.Session, error) {
	return f.open("crashed "+string(id), spec)
}

func (f *fakeInstances) Instances(process string) []runtime.Status {
	return []runtime.Status{{Slot: runtime.SlotID{Process: process}, State: runtime.Running, Instance: runtime.NewInstanceID()}}
}

func (f *fakeInstances) Dial(context.Context, runtime.InstanceID, string, string) (net.Conn, error) {
	return nil, errors.New("no network")
}

// terminalServer is a test server with terminals, on a real port.
type terminalServer struct {
	*testServer
	fake *fakeInstances
	url  string
	app  v3.App
}

func newTerminalServer(t *testing.T) *terminalServer {
	t.Helper()
	w := newTestServer(t)
	s := &terminalServer{testServer: w, fake: &fakeInstances{}, app: w.startedApp("shop")}
	ssh := must(sshd.New(sshd.Config{
		HostKey: filepath.Join(t.TempDir(), "key"), Registry: w.c.Registry, Instances: s.fake,
		Redeem: w.c.Auth.Redeem, Append: func(string, ...logstream.Envelope) error { return nil },
		Allow: func(p auth.Principal, a app.App) error {
			now, err := w.c.Auth.Current(p)
			if err != nil {
				return err
			}
			return w.s.AllowSSH(now, a)
		},
		Record: func(a sshd.Access) { w.s.RecordSSH(a.Who, a.App, a.Index, a.Err) },
		Limits: sshd.Limits{Alive: 20 * time.Millisecond}, Logger: slog.New(slog.DiscardHandler),
	}))(t)
	w.s.apps.Terminals, w.s.apps.SSH = ssh, &platform.SSHEndpoint{Address: "127.0.0.1:2222"}
	server := httptest.NewServer(w.s.Handler())
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// dial opens a terminal. An error includes the status of the response.
func (s *terminalServer) dial(query string, header http.Header) (*websocket.Conn, error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	conn, res, err := websocket.Dial(ctx, s.url+"/dew/v1/apps/"+s.app.GUID+"/terminal"+query, withProtocols(header))
	if err != nil && res != nil {
		return nil, fmt.Errorf("%d", res.StatusCode)
	}
	if err == nil {
		s.t.Cleanup(func() { _ = conn.CloseNow() })
	}
	return conn, err
}

func bearer(token string) http.Header { return http.Header{"Authorization": {"bearer " + token}} }

// read reads binary messages until they contain text. A text message is returned.
func (s *terminalServer) read(conn *websocket.Conn, text string) (m v3.TerminalMessage) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	var seen strings.Builder
	for {
		kind, b, err := conn.Read(ctx)
		if err != nil {
			s.t.Fatalf("the terminal printed %q, want %q: %v", &seen, text, err)
		}
		if kind == websocket.MessageText {
			if err := json.Unmarshal(b, &m); err != nil {
				s.t.Fatal(err)
			}
			return m
		}
		seen.Write(b)
		if text != "" && strings.Contains(seen.String(), text) {
			return m
		}
	}
}

func (s *terminalServer) write(conn *websocket.Conn, kind websocket.MessageType, text string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	if err := conn.Write(ctx, kind, []byte(text)); err != nil {
		s.t.Fatal(err)
	}
}

// events returns the kinds of the SSH events.
func (s *terminalServer) events() string {
	s.t.Helper()
	var out []string
	for _, e := range must(s.c.Events.List(app.EventFilter{}))(s.t) {
		if strings.Contains(e.Type, "ssh") {
			out = append(out, e.Type+" by "+e.Actor.Name)
		}
	}
	return strings.Join(out, ", ")
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	s := newTerminalServer(t)
	s.user("root", auth.ScopeAdmin)
	conn := must(s.dial("?cols=100&rows=30", bearer(s.login("root"))))(t)
	s.write(conn, websocket.MessageBinary, "size\n")
	s.read(conn, "100x30 TERM=xterm-256color")
	s.write(conn, websocket.MessageText, `{"resize":{"cols":80,"rows":20}}`)
	s.write(conn, websocket.MessageBinary, "si")
	s.write(conn, websocket.MessageBinary, "ze\n")
	s.read(conn, "80x20")
	s.write(conn, websocket.MessageBinary, "exit 7\n")
	if m := s.read(conn, ""); m.Exit == nil || m.Exit.Status != 7 || m.Error != "" {
		t.Errorf("end = %+v, want exit status 7", m)
	}
	if _, _, err := conn.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("closed with %v, want the normal status", err)
	}
	if got := s.events(); got != "audit.app.ssh-authorized by root" {
		t.Errorf("events = %s", got)
	}
	if s.fake.opened[0] != s.app.GUID+"/0" {
		t.Errorf("opened %v", s.fake.opened)
	}
}

// A terminal accepts the cookie of the console, but only from its own page. It ends
// with the session.
func TestTerminalOfConsole(t *testing.T) {
	t.Parallel()
	s := newTerminalServer(t)
	var link v3.ConsoleLink
	s.want(201, "POST", "/dew/v1/console/link", "", &link)
	b := s.browse(link)
	header := func(origin string) http.Header {
		h := http.Header{"Cookie": {b.cookie}, "Sec-Websocket-Protocol": {console.Protocol, console.TokenProtocol + b.csrf}}
		if origin != "" {
			h.Set("Origin", origin)
		}
		return h
	}
	for _, origin := range []string{"", "null", "http://evil.example.com", "http://127.0.0.1:1"} {
		if _, err := s.dial("", header(origin)); err == nil || err.Error() != "403" {
			t.Errorf("origin %q: %v, want 403", origin, err)
		}
	}
	if len(s.fake.opened) != 0 {
		t.Fatalf("opened %v", s.fake.opened)
	}
	conn := must(s.dial("?process=web&index=0", header(s.url)))(t)
	s.write(conn, websocket.MessageBinary, "echo hello\n")
	s.read(conn, "hello")
	var list v3.ConsoleSessions
	s.want(200, "GET", "/dew/v1/console/sessions", "", &list)
	s.want(204, "DELETE", "/dew/v1/console/sessions/"+list.Resources[0].ID, "", nil)
	if m := s.read(conn, ""); !strings.Contains(m.Error, "the session has ended") {
		t.Errorf("end = %+v, want that the session has ended", m)
	}
	// Reading answers the closing handshake, which the server waits for.
	if _, _, err := conn.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("closed with %v, want the normal status", err)
	}
	<-s.fake.shells[0].ended
	if _, err := s.dial("", header(s.url)); err == nil || err.Error() != "401" {
		t.Errorf("after the end of the session: %v, want 401", err)
	}
}

// The shell ends when the browser goes.
func TestTerminalEndsWithClient(t *testing.T) {
	t.Parallel()
	s := newTerminalServer(t)
	s.user("root", auth.ScopeAdmin)
	for name, leave := range map[string]func(c *websocket.Conn) error{
		"closed": func(c *websocket.Conn) error { return c.Close(websocket.StatusGoingAway, "") },
		"lost":   func(c *websocket.Conn) error { return c.CloseNow() },
	} {
		conn := must(s.dial("", bearer(s.login("root"))))(t)
		s.write(conn, websocket.MessageBinary, "echo hello\n")
		s.read(conn, "hello")
		shell := s.fake.shells[len(s.fake.shells)-1]
		if err := leave(conn); err != nil {
			t.Logf("%s: %v", name, err)
		}
		select {
		case <-shell.ended:
		case <-time.After(testkit.Patience):
			t.Fatalf("%s: the shell still runs", name)
		}
	}
}

func TestTerminalRefusals(t *testing.T) {
	t.Parallel()
	s := newTerminalServer(t)
	s.user("root", auth.ScopeAdmin)
	ann := s.user("ann")
	s.grant(ann, auth.OrgUser, s.space.Org)
	s.grant(ann, auth.SpaceAuditor, s.space.GUID)
	s.user("bob")
	root, reader, stranger := s.login("root"), s.login("ann"), s.login("bob")
	path := "/dew/v1/apps/" + s.app.GUID + "/terminal"
	for _, tt := range []struct {
		token, query string
		want         int
		text         string
	}{
		{root, "", 426, "WebSocket"},
		{reader, "", 403, "not authorized"},
		{stranger, "", 404, "App not found"},
		{"", "", 401, "Authentication error"},
		{root, "?cols=0", 400, "cols must be a number from 1 to 1000"},
		{root, "?rows=x", 400, "rows must be"},
		{root, "?index=-1", 400, "index must be"},
		{root, "?crash=0", 400, "crash must be"},
		{root, "?crash=5", 404, "Crash 5 not found"},
		{root, "?process=none", 404, "Process not found"},
		{root, "?colour=red", 400, "Unknown query parameter"},
	} {
		if got := s.as(tt.token, "GET", path+tt.query, ""); got.Code != tt.want || !strings.Contains(got.Body.String(), tt.text) {
			t.Errorf("%s = %d %s, want %d with %s", tt.query, got.Code, got.Body, tt.want, tt.text)
		}
	}
	refused := func(what, query, token, want string) {
		t.Helper()
		conn := must(s.dial(query, bearer(token)))(t)
		if m := s.read(conn, ""); !strings.Contains(m.Error, want) || m.Exit != nil {
			t.Errorf("%s: %+v, want %q", what, m, want)
		}
	}
	refused("a reader", "", reader, "not allowed to use SSH")
	if got := s.events(); got != "audit.app.ssh-unauthorized by ann" {
		t.Errorf("events = %s", got)
	}
	refused("no such instance", "?index=3", root, "instance 3 is not running")
	s.want(200, "PATCH", "/v3/apps/"+s.app.GUID+"/features/ssh", `{"enabled":false}`, nil)
	refused("disabled", "", root, "Disabled for app")
	s.want(200, "PATCH", "/v3/apps/"+s.app.GUID+"/features/ssh", `{"enabled":true}`, nil)
	for _, text := range []string{"x", `{}`, `{"resize":{"cols":0,"rows":1}}`, `{"resize":{"cols":80,"rows":100000}}`} {
		conn := must(s.dial("", bearer(root)))(t)
		s.write(conn, websocket.MessageText, text)
		if m := s.read(conn, ""); !strings.Contains(m.Error, "must be") {
			t.Errorf("%s: %+v, want an error", text, m)
		}
	}
}

// withProtocols returns the options for a WebSocket with the protocols in header, which
// the library wants apart.
func withProtocols(header http.Header) *websocket.DialOptions {
	const name = "Sec-Websocket-Protocol"
	o := &websocket.DialOptions{HTTPHeader: header.Clone(), Subprotocols: header[name]}
	o.HTTPHeader.Del(name)
	return o
}
