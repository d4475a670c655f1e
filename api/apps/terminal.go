package apps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	v3 "github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/console"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/sshd"
)

// terminalHandlers answers requests for a terminal in an instance.
type terminalHandlers struct{ *Handlers }

// terminalParameters are the query parameters of a terminal.
var terminalParameters = []string{"cols", "crash", "index", "process", "rows"}

func (h terminalHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /dew/v1/apps/{guid}/terminal", Needs: access.Read, Resource: access.App, // the SSH server checks and records the access
			Raw: http.HandlerFunc(h.openTerminal), Shape: rest.Empty(http.StatusSwitchingProtocols).Query(terminalParameters...),
		},
	}
}

const (
	maxTerminalSize = 1000    // columns or rows
	maxFrame        = 1 << 20 // bytes of one message from the client
	outputBuffer    = 32 << 10
	// farewellLimit is how long a client has to read the last message.
	farewellLimit = 5 * time.Second
)

// openTerminal opens a shell and connects it with a WebSocket. Errors before the shell
// runs are messages as well, because browsers do not show the response to a refused
// WebSocket.
func (h terminalHandlers) openTerminal(w http.ResponseWriter, r *http.Request) {
	a, err := h.Present.App(r)
	if err != nil {
		h.Fail(w, r, err)
		return
	}
	req, err := h.terminalRequest(r, a)
	if err == nil && !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		err = h.refusePlain(w, r, a)
	}
	if err != nil {
		h.Fail(w, r, err)
		return
	}
	// The listener has already checked the Origin.
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true, Subprotocols: []string{console.Protocol}})
	if err != nil {
		return // Accept has responded
	}
	defer func() { _ = conn.CloseNow() }() // usually already closed
	conn.SetReadLimit(maxFrame)
	h.serveTerminal(r.Context(), conn, req)
}

// refusePlain returns the error for a request that is not a WebSocket.
func (h terminalHandlers) refusePlain(w http.ResponseWriter, r *http.Request, a app.App) error {
	if !access.HasScope(access.Principal(r.Context()), http.MethodPost) {
		return access.ErrNotAuthorized
	}
	if err := h.Access.Require(r.Context(), access.Develop, a.Space); err != nil {
		return rest.Missing("App", err)
	}
	why, err := h.sshDisabledReason(a)
	if err != nil {
		return err
	}
	if why != "" {
		return rest.Unprocessable("ssh is not enabled for app '%s': %s", a.Name, why)
	}
	w.Header().Set("Upgrade", "websocket")
	return &rest.Error{Status: http.StatusUpgradeRequired, Code: v3.CodeBadRequest, Title: v3.TitleBadRequest, Detail: "This endpoint is a WebSocket"}
}

// terminalRequest reads the query.
func (h terminalHandlers) terminalRequest(r *http.Request, a app.App) (sshd.TerminalRequest, error) {
	q := r.URL.Query()
	for name := range q {
		if !slices.Contains(terminalParameters, name) {
			return sshd.TerminalRequest{}, rest.BadQuery("Unknown query parameter(s): '%s'. Valid parameters are: '%s'", name, strings.Join(terminalParameters, "', '"))
		}
	}
	number := func(name string, otherwise, least, most int) (int, error) {
		text := q.Get(name)
		if text == "" {
			return otherwise, nil
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			return 0, rest.BadQuery("%s must be a number from %d to %d, not %q", name, least, most, text)
		}
		return n, nil
	}
	const maxIndex, maxCrash = 1 << 20, 1 << 20
	cols, err1 := number("cols", 80, 1, maxTerminalSize)
	rows, err2 := number("rows", 24, 1, maxTerminalSize)
	index, err3 := number("index", 0, 0, maxIndex)
	crash, err4 := number("crash", 0, 1, maxCrash)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return sshd.TerminalRequest{}, err
	}
	req := sshd.TerminalRequest{
		Who: access.Principal(r.Context()), Index: index, Size: runtime.Size{Columns: uint16(cols), Rows: uint16(rows)}, Peer: r.RemoteAddr,
	}
	if crash > 0 {
		err := h.chooseCrash(&req, a, crash)
		return req, err
	}
	kind := q.Get("process")
	if kind == "" {
		kind = app.Web
	}
	ps, err := h.Platform.Registry.Processes(a.GUID)
	if err != nil {
		return req, err
	}
	i := slices.IndexFunc(ps, func(p app.Process) bool { return p.Type == kind })
	if i < 0 {
		return req, rest.NotFound("Process")
	}
	req.Process = ps[i].GUID
	return req, nil
}

// chooseCrash sets the crashed instance with a number; 1 is the newest crash.
func (h terminalHandlers) chooseCrash(req *sshd.TerminalRequest, a app.App, number int) error {
	records, err := h.Platform.ExitsOf(a.GUID)
	if err != nil {
		return err
	}
	if number > len(records) {
		return rest.NotFound(fmt.Sprintf("Crash %d", number))
	}
	req.Process, req.Crashed = records[number-1].Slot.Process, records[number-1].Instance
	return nil
}

// errDisconnected is why a session ends when its client has gone.
var errDisconnected = errors.New("the client closed the connection")

// serveTerminal connects a WebSocket with a shell until one of them ends.
func (h terminalHandlers) serveTerminal(ctx context.Context, conn *websocket.Conn, req sshd.TerminalRequest) {
	if h.Terminals == nil {
		farewell(ctx, conn, v3.TerminalMessage{Error: "ssh is disabled: start dewd with --ssh ADDRESS"})
		return
	}
	t, err := h.Terminals.OpenTerminal(ctx, req)
	if err != nil {
		farewell(ctx, conn, v3.TerminalMessage{Error: err.Error()})
		return
	}
	session, stop := context.WithCancelCause(ctx)
	// The library closes a connection whose context ends, and then the reason could not
	// be sent. So the connection outlives the session.
	connected, disconnect := context.WithCancel(context.WithoutCancel(ctx))
	p := &terminalPump{conn: conn, t: t, stop: stop}
	var copies sync.WaitGroup
	defer func() {
		stop(nil)
		disconnect()
		_ = conn.CloseNow() // usually already closed
		_ = t.Close()       // Close logs its own errors
		copies.Wait()
	}()
	printed := make(chan struct{})
	copies.Go(func() { p.copyInput(connected) })
	copies.Go(func() {
		defer close(printed)
		p.copyOutput(connected)
	})
	copies.Go(func() {
		if err := t.Watch(session, p.alive); err != nil {
			stop(err)
		}
	})
	end, err := t.Wait(session)
	if err == nil {
		select {
		case <-printed:
		case <-session.Done():
		}
	}
	farewell(ctx, conn, lastMessage(session, end, err))
}

// lastMessage returns the result of a session for its client.
func lastMessage(session context.Context, end runtime.SessionEnd, err error) v3.TerminalMessage {
	switch cause := context.Cause(session); {
	case err != nil && cause != nil && !errors.Is(cause, context.Canceled):
		return v3.TerminalMessage{Error: "the session has ended: " + cause.Error()}
	case err != nil:
		return v3.TerminalMessage{Error: "the session has ended: dewd is stopping"}
	case end.Why != "":
		return v3.TerminalMessage{Error: "the session has ended: " + end.Why}
	}
	return v3.TerminalMessage{Exit: &v3.TerminalExit{Status: end.Code}}
}

// farewell sends the last message and closes the connection.
func farewell(ctx context.Context, conn *websocket.Conn, m v3.TerminalMessage) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewellLimit)
	defer cancel()
	b, err := json.Marshal(m)
	if err == nil {
		err = conn.Write(ctx, websocket.MessageText, b)
	}
	if err == nil {
		_ = conn.Close(websocket.StatusNormalClosure, "") // the client may have disconnected
	}
}

// terminalPump copies between a WebSocket and a shell. Each direction has one buffer: if
// one side does not read, the other side waits.
type terminalPump struct {
	conn   *websocket.Conn
	t      *sshd.Terminal
	stop   context.CancelCauseFunc
	paused atomic.Bool // the shell does not read its input
}

// copyInput copies the client's bytes to the shell, and changes the size of its terminal.
func (p *terminalPump) copyInput(ctx context.Context) {
	in := p.t.Streams().In
	for {
		kind, data, err := p.conn.Read(ctx)
		if err != nil {
			p.stop(errDisconnected)
			return
		}
		p.t.Touch()
		if kind == websocket.MessageBinary {
			p.paused.Store(true)
			_, _ = in.Write(data) // the shell may have exited
			p.paused.Store(false)
			continue
		}
		size, err := readResize(data)
		if err != nil {
			p.stop(err)
			return
		}
		_ = p.t.Resize(ctx, size) // the shell may have exited
	}
}

// readResize reads a text message of the client.
func readResize(data []byte) (runtime.Size, error) {
	var m v3.TerminalMessage
	if err := json.Unmarshal(data, &m); err != nil || m.Resize == nil {
		return runtime.Size{}, errors.New(`a text message must be {"resize":{"cols":80,"rows":24}}`)
	}
	cols, rows := m.Resize.Cols, m.Resize.Rows
	if cols < 1 || rows < 1 || cols > maxTerminalSize || rows > maxTerminalSize {
		return runtime.Size{}, fmt.Errorf("the size of the terminal must be from 1 to %d columns and rows, not %dx%d", maxTerminalSize, cols, rows)
	}
	return runtime.Size{Columns: uint16(cols), Rows: uint16(rows)}, nil
}

// copyOutput copies the output of the shell to the client.
func (p *terminalPump) copyOutput(ctx context.Context) {
	out, b := p.t.Streams().Out, make([]byte, outputBuffer)
	for {
		n, err := out.Read(b)
		if n > 0 {
			p.t.Touch()
			if err := p.conn.Write(ctx, websocket.MessageBinary, b[:n]); err != nil {
				p.stop(errDisconnected)
				return
			}
		}
		if err != nil {
			return // the shell has ended
		}
	}
}

// alive reports whether the client responds. Its response cannot be read while the shell
// does not read its input.
func (p *terminalPump) alive(ctx context.Context) bool {
	return p.paused.Load() || p.conn.Ping(ctx) == nil
}
