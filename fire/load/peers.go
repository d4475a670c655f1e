package load

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/mail"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/dewrun/dew/services/servicestest"
)

// catalog is the catalog of the service broker.
const catalog = `{"services":[{"id":"fire-offering","name":"fire-queue","description":"d","bindable":true,` +
	`"plans":[{"id":"fire-plan","name":"small","description":"d"}]}]}`

// Peers are the servers that dewd connects to, each behind a gate.
type Peers struct {
	Mail, Syslog, Broker, Registry *Gate
	Queue                          *servicestest.Broker

	mu       sync.Mutex
	mails    map[string]int  // by recipient
	last     map[Printer]int // newest line that the syslog server has
	problems []string
	drained  int
}

// NewPeers starts the servers, until ctx is done.
func NewPeers(ctx context.Context) (*Peers, error) {
	p := &Peers{mails: map[string]int{}, last: map[Printer]int{}, Queue: servicestest.New(catalog)}
	p.Queue.Username, p.Queue.Password = "fire", "fire"
	mails := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &session{peers: p}, nil }))
	mails.Domain, mails.ErrorLog = "localhost", silent{}
	broker := &http.Server{Handler: p.Queue, ReadHeaderTimeout: time.Minute}
	images := &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0))), ReadHeaderTimeout: time.Minute}
	for _, server := range []struct {
		gate  **Gate
		serve func(net.Listener) error
	}{{&p.Mail, mails.Serve}, {&p.Broker, broker.Serve}, {&p.Syslog, p.serveSyslog}, {&p.Registry, images.Serve}} {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, func() { _ = l.Close() })
		go func() { _ = server.serve(l) }() // until the listener is closed
		if *server.gate, err = NewGate(ctx, l.Addr().String()); err != nil {
			return nil, err
		}
	}
	return p, nil
}

type silent struct{}

func (silent) Printf(string, ...any) {}
func (silent) Println(...any)        {}

// session receives one mail after the other.
type session struct {
	peers *Peers
	to    string
}

func (*session) Mail(string, *smtp.MailOptions) error        { return nil }
func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error { s.to = to; return nil }
func (*session) Reset()                                      {}
func (*session) Logout() error                               { return nil }
func (s *session) Data(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if _, err := mail.ReadMessage(bytes.NewReader(b)); err != nil {
		return err
	}
	s.peers.mu.Lock()
	defer s.peers.mu.Unlock()
	s.peers.mails[s.to]++
	return nil
}

// Delivered returns how many mails a recipient has.
func (p *Peers) Delivered(to string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mails[to]
}

// serveSyslog receives lines in frames with a length, as in RFC 6587.
func (p *Peers) serveSyslog(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			p.readFrames(bufio.NewReader(c))
		}()
	}
}

func (p *Peers) readFrames(r *bufio.Reader) {
	for {
		head, err := r.ReadString(' ')
		if err != nil {
			return
		}
		n, err := strconv.Atoi(strings.TrimSpace(head))
		if err != nil {
			p.problem("the syslog server received a frame without a length: %q", head)
			return
		}
		frame := make([]byte, n)
		if _, err := io.ReadFull(r, frame); err != nil {
			return
		}
		p.frame(string(frame))
	}
}

// frame checks the number of a line. After a broken connection a line can arrive twice.
func (p *Peers) frame(text string) {
	for _, role := range []string{"main ", "sidecar "} {
		i := strings.LastIndex(text, role)
		if i < 0 {
			continue
		}
		printer, n, ok := numbered(text[i:])
		if !ok {
			continue
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.drained++
		last, known := p.last[printer]
		if known && n > last+1 {
			p.problems = append(p.problems, fmt.Sprintf("the syslog server received line %d of the %s of instance %s after line %d", n, printer.Role, printer.Instance, last))
		}
		p.last[printer] = max(last, n)
		return
	}
}

func (p *Peers) problem(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, fmt.Sprintf(format, args...))
}

// Drained returns how many lines the syslog server has received, the newest line of each
// printer, and what was wrong with them.
func (p *Peers) Drained() (lines int, last map[Printer]int, problems []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	copied := map[Printer]int{}
	for k, v := range p.last {
		copied[k] = v
	}
	return p.drained, copied, append([]string(nil), p.problems...)
}
