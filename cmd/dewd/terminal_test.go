//go:build integration

package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/coder/websocket"

	v3 "github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/console"
	"github.com/dewrun/dew/testkit"
)

// A user opens the console with the link of dew console, and a terminal in an instance.
func TestConsoleTerminal(t *testing.T) {
	runParallel(t)
	s := newShop(t)
	origin, header := s.consoleLogin()
	term := s.openTerminal(origin, header, "?index=1&cols=101&rows=37")
	term.await("$ ")
	term.typed("stty size; echo term-$TERM; echo index-$CF_INSTANCE_INDEX\r")
	term.await("37 101")
	term.await("term-xterm-256color")
	term.await("index-1")
	term.send(websocket.MessageText, `{"resize":{"cols":88,"rows":22}}`)
	// The resize is asynchronous, so the program polls until it has the new size.
	term.typed("until [ \"$(stty size)\" = '22 88' ]; do sleep 0.05; done; echo re\"\"sized\r")
	term.await("resized")
	term.typed("sh -c 'echo as\"\"leep; exec sleep 1000'\r")
	term.await("asleep")
	term.typed("\x03")
	term.typed("echo inter\"\"rupted; exit 9\r")
	term.await("interrupted")
	if m := term.end(); m.Exit == nil || m.Exit.Status != 9 {
		t.Errorf("end = %+v, want exit status 9; the screen:\n%s", m, &term.seen)
	}
	s.nothingLeft()

	// The shell and its programs end when the browser goes.
	term = s.openTerminal(origin, header, "?process=worker")
	term.typed("sleep 1000 & echo in-the-back\"\"ground\r")
	term.await("in-the-background")
	_ = term.conn.CloseNow()
	s.nothingLeft()

	// A session survives a restart of dewd. A shell ends with dewd.
	term = s.openTerminal(origin, header, "")
	term.await("$ ")
	s.kill(syscall.SIGTERM)
	if m := term.end(); !strings.Contains(m.Error, "the session has ended") {
		t.Errorf("end = %+v, want that the session has ended", m)
	}
	s.start()
	s.up()
	origin = s.consoleLink().origin // dewd can have another port
	header.Set("Origin", origin)
	term = s.openTerminal(origin, header, "")
	term.typed("exit 3\r")
	if m := term.end(); m.Exit == nil || m.Exit.Status != 3 {
		t.Errorf("end after a restart = %+v, want exit status 3", m)
	}
	s.nothingLeft()
}

type consoleLink struct{ origin, code string }

func (s *shop) consoleLink() consoleLink {
	s.t.Helper()
	u, err := url.Parse(s.output("console", "--print"))
	if err != nil {
		s.t.Fatal(err)
	}
	return consoleLink{origin: u.Scheme + "://" + u.Host, code: u.Fragment}
}

// consoleLogin opens the link of dew console, and returns the page's origin and the
// header of its WebSockets.
func (s *shop) consoleLogin() (origin string, header http.Header) {
	s.t.Helper()
	link := s.consoleLink()
	origin = link.origin
	req, err := http.NewRequest(http.MethodPost, origin+"/console/login", strings.NewReader(`{"code":"`+link.code+`"}`))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Origin", origin)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	var login v3.ConsoleLogin
	if err := json.NewDecoder(res.Body).Decode(&login); err != nil || res.StatusCode != http.StatusOK || len(res.Cookies()) != 1 {
		s.t.Fatalf("login = %s %v, %v", res.Status, res.Cookies(), err)
	}
	return origin, http.Header{
		"Cookie": {res.Cookies()[0].Name + "=" + res.Cookies()[0].Value}, "Origin": {origin},
		"Sec-Websocket-Protocol": {console.Protocol, console.TokenProtocol + login.CSRFToken},
	}
}

// webTerminal is a terminal as a browser has it.
type webTerminal struct {
	t    testing.TB
	conn *websocket.Conn
	seen strings.Builder
	last v3.TerminalMessage
}

func (s *shop) openTerminal(origin string, header http.Header, query string) *webTerminal {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, origin+"/dew/v1/apps/"+s.guid+"/terminal"+query, withProtocols(header))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.CloseNow() })
	return &webTerminal{t: s.t, conn: conn}
}

func (w *webTerminal) send(kind websocket.MessageType, text string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	if err := w.conn.Write(ctx, kind, []byte(text)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *webTerminal) typed(text string) {
	w.t.Helper()
	w.send(websocket.MessageBinary, text)
}

// read reads messages until done returns true, or until the last message.
func (w *webTerminal) read(what string, done func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	for !done() {
		kind, b, err := w.conn.Read(ctx)
		if err != nil {
			w.t.Fatalf("no %s: %v; the screen:\n%s", what, err, &w.seen)
		}
		if kind == websocket.MessageBinary {
			w.seen.Write(b)
			continue
		}
		if err := json.Unmarshal(b, &w.last); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *webTerminal) await(text string) {
	w.t.Helper()
	w.read(text, func() bool { return strings.Contains(w.seen.String(), text) })
}

func (w *webTerminal) end() v3.TerminalMessage {
	w.t.Helper()
	w.read("last message", func() bool { return w.last.Exit != nil || w.last.Error != "" })
	return w.last
}

// withProtocols returns the options for a WebSocket with the protocols in header, which
// the library wants apart.
func withProtocols(header http.Header) *websocket.DialOptions {
	const name = "Sec-Websocket-Protocol"
	o := &websocket.DialOptions{HTTPHeader: header.Clone(), Subprotocols: header[name]}
	o.HTTPHeader.Del(name)
	return o
}
