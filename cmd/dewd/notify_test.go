//go:build integration || bench

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/mail"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"golang.org/x/crypto/bcrypt"

	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/notify"
	"github.com/dewrun/dew/notify/inbox"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

// mailServer is a real SMTP server that counts its mails.
type mailServer struct {
	address string
	mu      sync.Mutex
	mails   map[string][]*mail.Message // by recipient
	news    chan struct{}              // holds one signal: a mail arrived
}

func newMailServer(t testing.TB) *mailServer {
	t.Helper()
	p := &mailServer{mails: map[string][]*mail.Message{}, news: make(chan struct{}, 1)}
	l := testkit.Listen(t)
	p.address = l.Addr().String()
	srv := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &smtpSession{p: p}, nil }))
	srv.Domain = "localhost"
	srv.ErrorLog = silentLogger{} // clients are killed here
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return p
}

type silentLogger struct{}

func (silentLogger) Printf(string, ...any) {}
func (silentLogger) Println(...any)        {}

type smtpSession struct {
	p  *mailServer
	to string
}

func (*smtpSession) Mail(string, *smtp.MailOptions) error        { return nil }
func (c *smtpSession) Rcpt(to string, _ *smtp.RcptOptions) error { c.to = to; return nil }
func (*smtpSession) Reset()                                      {}
func (*smtpSession) Logout() error                               { return nil }
func (c *smtpSession) Data(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	m, err := mail.ReadMessage(bytes.NewReader(b))
	if err != nil {
		return err
	}
	c.p.mu.Lock()
	c.p.mails[c.to] = append(c.p.mails[c.to], m)
	c.p.mu.Unlock()
	select {
	case c.p.news <- struct{}{}:
	default:
	}
	return nil
}

// count returns the number of recipients with mail, and the number of mails.
func (p *mailServer) count() (people, mails int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ms := range p.mails {
		mails += len(ms)
	}
	return len(p.mails), mails
}

// until waits until n recipients have mail.
func (p *mailServer) until(t testing.TB, n int) {
	t.Helper()
	late := time.After(4 * time.Minute)
	for {
		if people, mails := p.count(); people >= n {
			return
		} else if t.Context().Err() != nil {
			t.Fatalf("%d people have %d mails, want %d people", people, mails, n)
		}
		select {
		case <-p.news:
		case <-late:
			people, mails := p.count()
			t.Fatalf("%d people have %d mails, want %d people", people, mails, n)
		}
	}
}

// notifyService is the notification service as in dewd, with the authorization server,
// but without the parts that run apps.
type notifyService struct {
	db       *store.DB
	auth     *auth.Server
	roles    *auth.Roles
	registry *registry.Registry
	n        *notifier
}

func openNotifyService(dir, public string, m mailing) (*notifyService, error) {
	db, err := store.Open(filepath.Join(dir, "dew.db"), store.Options{})
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	s := &notifyService{db: db, roles: auth.NewRoles(db), registry: registry.New(db)}
	if _, err := s.registry.EnsureDefaults("dew.localhost"); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s.auth, err = auth.Open(auth.Config{
		DB: db, Keys: filepath.Join(dir, "keys"), AdminPassword: filepath.Join(dir, "admin-password"), Domain: "dew.localhost",
		PublicURL: public, Logger: log, Cost: bcrypt.MinCost,
	})
	if err == nil {
		s.n, err = openNotify(notifyParts{
			DB: db, Auth: s.auth, Roles: s.roles, Registry: s.registry, Journal: filepath.Join(dir, handoverFile), PublicURL: public, Domain: "dew.localhost", Logger: log,
		}, m)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// serve serves l and delivers until ctx is done.
func (s *notifyService) serve(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("/uaa/", s.auth.Handler())
	mux.Handle("/notify/", http.StripPrefix("/notify", s.n.handler()))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	go func() { _ = srv.Serve(l) }()
	return errors.Join(s.n.run(ctx), s.db.Close())
}

// TestNotifyChild is not a test. It runs the service in its own process, which other
// tests kill.
func TestNotifyChild(t *testing.T) {
	dir := os.Getenv("DEW_TEST_NOTIFY")
	if dir == "" {
		t.Skip("started by TestNotifyKilled")
	}
	l, err := net.Listen("tcp", os.Getenv("DEW_TEST_LISTEN"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := openNotifyService(dir, "http://"+l.Addr().String(), mailing{SMTP: os.Getenv("DEW_TEST_SMTP")})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.serve(t.Context(), l); err != nil {
		t.Fatal(err)
	}
}

// startNotifyChild starts the service in its own process and waits until it responds.
func startNotifyChild(t testing.TB, dir, listen, smtp string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^TestNotifyChild$", "-test.timeout=10m")
	c.Env = append(os.Environ(), "DEW_TEST_NOTIFY="+dir, "DEW_TEST_LISTEN="+listen, "DEW_TEST_SMTP="+smtp, "DEW_TEST_BIN="+programs)
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the service answers", func() error {
		resp, err := http.Get("http://" + listen + "/notify/info")
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	})
	return c
}

// notifyCaller is a client with a token.
type notifyCaller struct {
	t     testing.TB
	base  string
	token string
	two   bool // uses the second version of the API
}

func clientToken(t testing.TB, base, id, secret string) *notifyCaller {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", base+"/uaa/oauth/token", strings.NewReader(url.Values{"grant_type": {"client_credentials"}}.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth(id, secret)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var body struct {
		AccessToken string `json:"access_token"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil || body.AccessToken == "" {
		t.Fatalf("no token: %d, %v", resp.StatusCode, err)
	}
	return &notifyCaller{t: t, base: base + "/notify", token: body.AccessToken}
}

func (c *notifyCaller) do(want int, method, path, body string) []byte {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.base+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	if c.two {
		req.Header.Set(notify.VersionHeader, "2")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if resp.StatusCode != want {
		c.t.Fatalf("%s %s = %d %s, want %d", method, path, resp.StatusCode, b, want)
	}
	return b
}

// seedUsers creates n users with addresses, without passwords, and a client.
func seedUsers(t testing.TB, dir string, n int) {
	t.Helper()
	s, err := openNotifyService(dir, "http://127.0.0.1:1", mailing{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.db.Close()
	err = s.db.Update(func(tx *store.Tx) error {
		for i := range n {
			if _, err := s.auth.Accounts().With(tx).CreateUser(auth.NewUser{
				Name: fmt.Sprintf("user-%d", i), Origin: "elsewhere", Email: fmt.Sprintf("user-%d@example.com", i),
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.auth.Accounts().CreateClient(auth.NewClient{
		ID: "mailer", Secret: "mailer-secret", GrantTypes: []string{auth.GrantClient},
		Authorities: []string{"notifications.manage", "notifications.write", "critical_notifications.write"},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A service that is killed during a notification to all users delivers the rest after
// its restart. No user is left out.
func TestNotifyKilled(t *testing.T) {
	users := 300
	if os.Getenv("DEW_PROOF") != "" {
		users = 10000
	}
	dir, listen, smtpServer := t.TempDir(), freeAddress(t), newMailServer(t)
	seedUsers(t, dir, users)
	child := startNotifyChild(t, dir, listen, smtpServer.address)
	kill := func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}
	defer func() { kill() }()

	c := clientToken(t, "http://"+listen, "mailer", "mailer-secret")
	c.do(204, "PUT", "/notifications", `{"source_name":"Mailer","notifications":{"news":{"description":"News"}}}`)
	var queued []struct {
		ID string `json:"notification_id"`
	}
	if err := json.Unmarshal(c.do(200, "POST", "/everyone", `{"kind_id":"news","subject":"Hello","text":"to all","html":"<p>to all</p>"}`), &queued); err != nil {
		t.Fatal(err)
	}
	everybody := users + 1 // plus admin
	if len(queued) != everybody {
		t.Fatalf("queued = %d, want %d", len(queued), everybody)
	}
	for part := 1; part <= 3; part++ {
		smtpServer.until(t, everybody*part/5)
		kill()
		child = startNotifyChild(t, dir, listen, smtpServer.address)
	}
	smtpServer.until(t, everybody)
	people, mails := smtpServer.count()
	t.Logf("%d people got %d mails over 3 deaths", people, mails)
	if people != everybody {
		t.Errorf("people with mail = %d, want %d", people, everybody)
	}
	again := clientToken(t, "http://"+listen, "mailer", "mailer-secret")
	waitStatus(t, again, queued[0].ID, "delivered")
	waitStatus(t, again, queued[len(queued)-1].ID, "delivered")
}

// waitStatus waits until the service reports the status, which can be stored shortly
// after the mail has arrived.
func waitStatus(t testing.TB, c *notifyCaller, id, want string) {
	t.Helper()
	testkit.Eventually(t, "message "+id+" is "+want, func() error {
		if got := c.do(200, "GET", "/messages/"+id, ""); !strings.Contains(string(got), `"`+want+`"`) {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
}

// userToken logs a user in with a password.
func userToken(t testing.TB, base, name, password string) *notifyCaller {
	t.Helper()
	form := url.Values{"grant_type": {"password"}, "username": {name}, "password": {password}}
	req, err := http.NewRequestWithContext(t.Context(), "POST", base+"/uaa/oauth/token", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth(auth.ClientCF, "")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var body struct {
		AccessToken string `json:"access_token"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil || body.AccessToken == "" {
		t.Fatalf("no token of %s: %d, %v", name, resp.StatusCode, err)
	}
	return &notifyCaller{t: t, base: base + "/notify", token: body.AccessToken}
}

// The test runs the whole process once: client, token, two kinds, a template, every
// kind of recipient. Mails arrive at a real mail server, and in the inbox. A user
// unsubscribes from a kind that is not critical.
func TestNotifyScript(t *testing.T) {
	for _, way := range []string{"smtp", "inbox"} {
		t.Run(way, func(t *testing.T) {
			smtpServer := newMailServer(t)
			m := mailing{}
			if way == "smtp" {
				m.SMTP = smtpServer.address
			}
			l := testkit.Listen(t)
			base := "http://" + l.Addr().String()
			s, err := openNotifyService(t.TempDir(), base, m)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.serve(ctx, l) }()
			defer func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}()
			script(t, s, base, func(to, subject string) { arrives(t, s, smtpServer, to, subject) })
		})
	}
}

// arrives waits for a mail in its mail server or inbox.
func arrives(t testing.TB, s *notifyService, smtpServer *mailServer, to, subject string) {
	t.Helper()
	if s.n.inbox != nil {
		if _, err := s.n.inbox.Wait(t.Context(), inbox.Filter{To: to, Subject: subject}, patience); err != nil {
			t.Errorf("mail %q to %s: %v", subject, to, err)
		}
		return
	}
	testkit.EventuallyTrue(t, fmt.Sprintf("mail %q to %s comes", subject, to), func() bool {
		smtpServer.mu.Lock()
		defer smtpServer.mu.Unlock()
		for _, m := range smtpServer.mails[to] {
			if strings.Contains(m.Header.Get("Subject"), subject) {
				return true
			}
		}
		return false
	})
}

func script(t *testing.T, s *notifyService, base string, arrives func(to, subject string)) {
	accounts := s.auth.Accounts()
	ann, err := accounts.CreateUser(auth.NewUser{Name: "ann", Email: "ann@example.com", Password: "ann-password", Groups: []string{"special.scope"}})
	if err != nil {
		t.Fatal(err)
	}
	org, err := s.registry.OrgByName("local")
	if err != nil {
		t.Fatal(err)
	}
	space, err := s.registry.SpaceIn(org.GUID, "dev")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []auth.Role{{User: ann.GUID, Type: auth.OrgManager, Org: org.GUID}, {User: ann.GUID, Type: auth.SpaceDeveloper, Space: space.GUID}} {
		if _, err := s.roles.Put(r); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := accounts.CreateClient(auth.NewClient{
		ID: "mailer", Secret: "mailer-secret", GrantTypes: []string{auth.GrantClient},
		Authorities: []string{"notifications.manage", "notifications.write", "notification_templates.write", "notification_templates.read", "critical_notifications.write", "emails.write"},
	}); err != nil {
		t.Fatal(err)
	}
	c := clientToken(t, base, "mailer", "mailer-secret")
	c.do(204, "PUT", "/notifications", `{"source_name":"Mailer","notifications":{"news":{"description":"News"},"alarm":{"description":"Alarm","critical":true}}}`)
	var made map[string]string
	if err := json.Unmarshal(c.do(201, "POST", "/templates", `{"name":"loud","subject":"LOUD {{.Subject}}","text":"{{.Text}}!","html":"<b>{{.HTML}}</b>"}`), &made); err != nil || len(made) != 1 || made["template-id"] == "" {
		t.Fatalf("template = %v, %v", made, err)
	}
	if list := c.do(200, "GET", "/templates", ""); !strings.Contains(string(list), `"loud"`) {
		t.Errorf("templates = %s", list)
	}
	c.do(204, "PUT", "/clients/mailer/notifications/news/template", `{"template":"`+made["template-id"]+`"}`)
	for subject, path := range map[string]string{
		"one": "/users/" + ann.GUID, "space": "/spaces/" + space.GUID, "org": "/organizations/" + org.GUID,
		"all": "/everyone", "scope": "/uaa_scopes/special.scope",
	} {
		c.do(200, "POST", path, `{"kind_id":"news","subject":"`+subject+`","text":"t","html":"<p>h</p>","reply_to":"help@example.com"}`)
		arrives("ann@example.com", "LOUD "+subject)
	}
	arrives("admin@dew.localhost", "LOUD all")
	c.do(200, "POST", "/emails", `{"to":"Else <else@example.com>","subject":"bare","text":"t"}`)
	arrives("else@example.com", "bare")

	me := userToken(t, base, "ann", "ann-password")
	me.do(204, "PATCH", "/user_preferences", `{"clients":{"mailer":{"news":{"email":false}}}}`)
	me.do(422, "PATCH", "/user_preferences", `{"clients":{"mailer":{"alarm":{"email":false}}}}`)
	var sent []struct {
		ID string `json:"notification_id"`
	}
	if err := json.Unmarshal(c.do(200, "POST", "/users/"+ann.GUID, `{"kind_id":"news","subject":"unwanted","text":"t"}`), &sent); err != nil {
		t.Fatal(err)
	}
	c.do(200, "POST", "/users/"+ann.GUID, `{"kind_id":"alarm","subject":"fire","text":"t"}`)
	arrives("ann@example.com", "fire")
	waitStatus(t, c, sent[0].ID, "unsubscribed")
}
