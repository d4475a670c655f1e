package sshd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime"
)

// sessionChannel is one session channel: its settings, then its running session.
type sessionChannel struct {
	c    *connection
	ch   ssh.Channel
	env  []string
	size int // of env, in bytes
	tty  *runtime.Terminal
	run  runtime.Session // nil before it starts
	done sync.WaitGroup

	answering sync.Mutex // held until a request is answered, so that the channel is not closed before
}

const (
	maxEnv        = 64 << 10 // bytes of variables that a client can send
	maxCommand    = 128 << 10
	failureStatus = 255 // exit status if dew failed and not the command
)

func (c *connection) openSession(ctx context.Context, nc ssh.NewChannel) {
	at := c.g.instanceKey()
	if !c.s.countSession(at) {
		c.refuse(nc, ssh.ResourceShortage, fmt.Sprintf("instance %d already has %d sessions, which is the limit", at.index, c.s.limits.Sessions))
		return
	}
	defer c.s.uncountSession(at)
	ch, reqs, err := nc.Accept()
	if err != nil {
		return
	}
	r := &sessionChannel{c: c, ch: ch}
	defer r.end()
	for req := range reqs {
		c.touch()
		ok := r.answer(ctx, req)
		if ok && r.run == nil && begins(req.Type) {
			r.begin(ctx, req)
		}
	}
}

// end is called when the client has closed the channel or is lost.
func (r *sessionChannel) end() {
	if r.run != nil {
		_ = r.run.Close() // Close logs its own errors
	}
	r.done.Wait()
	_ = r.ch.Close() // usually already closed
}

func begins(kind string) bool { return kind == "shell" || kind == "exec" || kind == "subsystem" }

// answer handles a request and replies to the client. For a request that ends the
// session, the reply is sent before the channel is closed.
func (r *sessionChannel) answer(ctx context.Context, req *ssh.Request) bool {
	r.answering.Lock()
	defer r.answering.Unlock()
	ok := r.handle(ctx, req)
	if req.WantReply {
		_ = req.Reply(ok, nil) // the client may have disconnected
	}
	return ok
}

// handle handles one request of the session.
func (r *sessionChannel) handle(ctx context.Context, req *ssh.Request) bool {
	switch req.Type {
	case "shell", "exec", "subsystem":
		_, err := parseStart(req.Type, req.Payload)
		return err == nil && r.run == nil
	case "env":
		return r.setEnv(req.Payload)
	case "pty-req":
		p, err := parsePTY(req.Payload)
		if err != nil || r.run != nil {
			return false
		}
		r.tty = &p.terminal
		return r.addEnv("TERM", p.term)
	case "window-change":
		return r.resize(ctx, req.Payload)
	case "signal":
		return r.signal(req.Payload)
	}
	return false
}

// parseStart returns what to run.
func parseStart(kind string, payload []byte) (runtime.ExecSpec, error) {
	var m struct{ Value string }
	if kind == "shell" {
		return runtime.ExecSpec{Kind: runtime.ExecShell}, nil
	}
	if err := ssh.Unmarshal(payload, &m); err != nil {
		return runtime.ExecSpec{}, err
	}
	switch {
	case len(m.Value) > maxCommand || strings.ContainsRune(m.Value, 0):
		return runtime.ExecSpec{}, errors.New("the command is not valid")
	case kind == "exec":
		return runtime.ExecSpec{Kind: runtime.ExecCommand, Command: m.Value}, nil
	case m.Value == "sftp":
		return runtime.ExecSpec{Kind: runtime.ExecFiles}, nil
	}
	return runtime.ExecSpec{}, fmt.Errorf("unknown subsystem %q", m.Value)
}

func (r *sessionChannel) setEnv(payload []byte) bool {
	var m struct{ Name, Value string }
	if err := ssh.Unmarshal(payload, &m); err != nil || r.run != nil {
		return false
	}
	return r.addEnv(m.Name, m.Value)
}

// addEnv adds a variable of the client, if it is valid.
func (r *sessionChannel) addEnv(name, value string) bool {
	size := len(name) + len(value) + 2
	if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) || r.size+size > maxEnv {
		return false
	}
	r.size += size
	r.env = append(r.env, name+"="+value)
	return true
}

func (r *sessionChannel) resize(ctx context.Context, payload []byte) bool {
	size, err := parseWindow(payload)
	if err != nil || r.tty == nil {
		return false
	}
	r.tty.Size = size
	if r.run == nil {
		return true
	}
	if err := r.run.Resize(ctx, size); err != nil {
		r.c.log.Debug("cannot resize a terminal", "err", err)
		return false
	}
	return true
}

func (r *sessionChannel) signal(payload []byte) bool {
	sig, err := parseSignal(payload)
	if err != nil || r.run == nil {
		return false
	}
	if err := r.run.Signal(sig); err != nil {
		r.c.log.Debug("cannot signal a session", "err", err)
		return false
	}
	return true
}

// begin starts the session. The request is already granted, so errors are reported like
// those of a program.
func (r *sessionChannel) begin(ctx context.Context, req *ssh.Request) {
	spec, err := parseStart(req.Type, req.Payload)
	if err != nil {
		return // handle has refused it
	}
	spec.Env, spec.TTY = r.env, r.tty
	if spec.Kind == runtime.ExecFiles {
		spec.TTY = nil
	}
	ses, err := r.c.s.exec(ctx, r.c.g, spec)
	if err != nil {
		r.c.log.Warn("cannot open a session", "kind", spec.Kind, "err", err)
		r.finish(runtime.SessionEnd{Code: failureStatus, Why: err.Error()})
		return
	}
	r.run = ses
	r.done.Go(func() {
		defer r.c.recoverPanic()
		r.copyStreams(ctx, ses)
	})
}

// copyStreams copies input and output until the session has ended and the client has received
// all of its output.
func (r *sessionChannel) copyStreams(ctx context.Context, ses runtime.Session) {
	st := ses.Streams()
	go func() {
		_ = r.c.copyData(st.In, r.ch) // the session or its client has ended
		_ = st.In.Close()
	}()
	var outputs sync.WaitGroup
	outputs.Go(func() { _ = r.c.copyData(r.ch, st.Out) })
	outputs.Go(func() { _ = r.c.copyData(r.ch.Stderr(), st.Err) })
	end, err := ses.Wait(ctx)
	if err != nil {
		end = runtime.SessionEnd{Code: failureStatus, Why: disconnectReason(ctx)}
		_ = ses.Close() // which closes its output
	}
	outputs.Wait()
	r.finish(end)
}

// disconnectReason returns why a connection is closed.
func disconnectReason(ctx context.Context) string {
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err.Error()
	}
	return "the server closed the connection"
}

// finish sends the exit status to the client. Without a status, clients report an
// error.
func (r *sessionChannel) finish(end runtime.SessionEnd) {
	if end.Why != "" {
		_, _ = io.WriteString(r.ch.Stderr(), "\r\ndew: the session has ended: "+end.Why+"\r\n") // the client may have disconnected
	}
	status := struct{ Status uint32 }{uint32(end.Code)}
	_, _ = r.ch.SendRequest("exit-status", false, ssh.Marshal(&status))
	r.answering.Lock()
	defer r.answering.Unlock()
	_ = r.ch.Close()
}

// pty is the terminal request of a client.
type pty struct {
	term     string
	terminal runtime.Terminal
}

func parsePTY(payload []byte) (pty, error) {
	var m struct {
		Term                         string
		Columns, Rows, Width, Height uint32
		Modes                        string
	}
	if err := ssh.Unmarshal(payload, &m); err != nil {
		return pty{}, err
	}
	modes, err := parseModes([]byte(m.Modes))
	if err != nil {
		return pty{}, err
	}
	return pty{term: m.Term, terminal: runtime.Terminal{Size: clamp(m.Columns, m.Rows), Modes: modes}}, nil
}

func parseWindow(payload []byte) (runtime.Size, error) {
	var m struct{ Columns, Rows, Width, Height uint32 }
	if err := ssh.Unmarshal(payload, &m); err != nil {
		return runtime.Size{}, err
	}
	return clamp(m.Columns, m.Rows), nil
}

func clamp(columns, rows uint32) runtime.Size {
	const most = 1<<16 - 1
	return runtime.Size{Columns: uint16(min(columns, most)), Rows: uint16(min(rows, most))}
}

// parseModes parses a list of opcodes with a number each, terminated by 0. It also
// stops at opcodes from 160 on, whose format is undefined.
func parseModes(b []byte) ([]runtime.TerminalMode, error) {
	const end, unknown, one = 0, 160, 5
	var out []runtime.TerminalMode
	for len(b) > 0 && b[0] != end && b[0] < unknown {
		if len(b) < one {
			return nil, errors.New("the terminal modes are incomplete")
		}
		out = append(out, runtime.TerminalMode{Opcode: b[0], Value: uint32(b[1])<<24 | uint32(b[2])<<16 | uint32(b[3])<<8 | uint32(b[4])})
		b = b[one:]
	}
	return out, nil
}

func parseSignal(payload []byte) (syscall.Signal, error) {
	var m struct{ Name string }
	if err := ssh.Unmarshal(payload, &m); err != nil {
		return 0, err
	}
	sig := unix.SignalNum("SIG" + m.Name)
	if sig == 0 {
		return 0, fmt.Errorf("unknown signal %q", m.Name)
	}
	return sig, nil
}
