package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/mail"
	"os"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	apidaemon "github.com/dewrun/dew/api/daemon"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/notify"
	"github.com/dewrun/dew/notify/crashmail"
	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/notify/directory"
	"github.com/dewrun/dew/notify/inbox"
	"github.com/dewrun/dew/notify/smtp"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/store"
)

// mailing holds the flags for mails.
type mailing struct {
	SMTP         string // address of the mail server; empty: the inbox stores mails
	TLS, Auth    string
	User         string
	PasswordFile string
	Password     string // used without a file (not a flag, because other users could see it)
	CA           string // file with certificates
	From         string // empty: no-reply@ with the domain

	// Original means that the settings come from the variables of the original service.
	// Like that service, dewd sends mails without authentication where it is not
	// possible.
	Original   bool
	Unverified bool // the certificate of the mail server is not verified
}

func defaultMailing() mailing {
	return mailing{TLS: string(smtp.TLSIfOffered), Auth: string(smtp.AuthNone)}
}

func (m *mailing) flags() []cli.Flag {
	return []cli.Flag{
		text(&m.SMTP, "smtp", "Mail server `address` for notifications, host:port (default: none; dew inbox shows the mails)"),
		text(&m.TLS, "smtp-tls", "Encryption of connections to the mail server, `if-offered|starttls|tls|none`"),
		text(&m.Auth, "smtp-auth", "Authentication at the mail server, `none|plain|cram-md5`"),
		text(&m.User, "smtp-user", "User `name` at the mail server"),
		text(&m.PasswordFile, "smtp-password-file", "Password `file` for the mail server; for cram-md5, a file with the secret"),
		text(&m.CA, "smtp-ca", "PEM `file` with the certificate authorities to trust for the mail server, instead of those of this machine"),
		text(&m.From, "mail-from", "Sender `address` of notifications (default: no-reply@ and --domain)"),
	}
}

func (m *mailing) validate() (errs []error) {
	if m.From != "" {
		if _, err := mail.ParseAddress(m.From); err != nil {
			errs = append(errs, fmt.Errorf("--mail-from: %q is not a valid mail address", m.From))
		}
	}
	if m.SMTP == "" {
		if m.User != "" || m.PasswordFile != "" {
			errs = append(errs, errors.New("--smtp-user and --smtp-password-file need --smtp"))
		}
		return errs
	}
	c := m.settings()
	if m.PasswordFile != "" {
		c.Password = "in a file" // it is read later
	}
	if _, err := smtp.New(c); err != nil {
		errs = append(errs, fmt.Errorf("%s: %w", m.source(), err))
	}
	return errs
}

// source returns where the settings of the mail server come from, for errors.
func (m *mailing) source() string {
	if m.Original {
		return "SMTP_HOST and the other SMTP_ variables"
	}
	return "--smtp"
}

func (m *mailing) settings() smtp.Config {
	return smtp.Config{
		Address: m.SMTP, TLS: smtp.TLSUse(m.TLS), Auth: smtp.AuthUse(m.Auth), User: m.User, Password: m.Password, AuthOptional: m.Original,
	}
}

// post returns the client of the mail server.
func (m *mailing) post(log *slog.Logger) (*smtp.Client, error) {
	c := m.settings()
	c.Logger = log
	if m.PasswordFile != "" {
		b, err := os.ReadFile(m.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("--smtp-password-file: %w", err)
		}
		c.Password = strings.TrimRight(string(b), "\r\n")
	}
	if m.CA != "" {
		pem, err := os.ReadFile(m.CA)
		if err != nil {
			return nil, fmt.Errorf("--smtp-ca: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--smtp-ca: no PEM certificate found in %s", m.CA)
		}
		c.Trust = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	if m.Unverified && m.CA == "" {
		c.Trust = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true} //nolint:gosec // VERIFY_SSL=false asks for it
	}
	return smtp.New(c)
}

// notifyParts holds the dependencies of the notification service.
type notifyParts struct {
	DB        *store.DB
	Auth      *auth.Server
	Roles     *auth.Roles
	Registry  *registry.Registry
	Exits     *runtime.ExitLog // nil: no crashes
	Journal   string           // file for mails that are being handed over; empty: none
	PublicURL string           // public URL of the API
	Domain    string
	Space     func() error // fails when the disk is almost full; nil: no check
	Metrics   *delivery.Metrics
	Logger    *slog.Logger
}

// notifier holds all parts of the notification service.
type notifier struct {
	server  *notify.Server
	courier *delivery.Courier
	crashes *crashmail.Crashes
	smtp    *smtp.Client // nil: inbox stores the mails
	inbox   *inbox.Inbox // nil: smtp sends them
	page    *inbox.Page

	mailQueue *delivery.Queue
}

// openNotify creates the notification service.
func openNotify(p notifyParts, m mailing) (n *notifier, err error) {
	queue := delivery.NewQueue(p.DB)
	n = &notifier{mailQueue: queue}
	people := directory.NewAccounts(p.Auth.Accounts(), p.Roles, p.Registry)
	from := m.From
	if from == "" {
		from = "no-reply@" + p.Domain
	}
	public := strings.TrimSuffix(p.PublicURL, "/") + "/notify"
	n.server, err = notify.New(notify.Config{
		DB: p.DB, Auth: p.Auth, Directory: people, Queue: queue, PublicURL: public, From: from, Domain: p.Domain, CheckDisk: p.Space, Metrics: p.Metrics, Logger: p.Logger,
	})
	if err != nil {
		return nil, err
	}
	if err := n.server.Register("dew", crashmail.Kinds()...); err != nil {
		return nil, err
	}
	post, err := n.openPost(p, m, public)
	if err != nil {
		return nil, err
	}
	n.crashes = crashmail.New(p.DB, p.Registry, people, queue, p.Logger)
	if p.Exits != nil {
		p.Exits.Listen(func(r runtime.ExitRecord) {
			if r.First.Cause.Counts() {
				n.crashes.Enqueue(crashOf(r))
			}
		})
	}
	if n.smtp == nil {
		p.Journal = "" // the inbox recognizes a mail that it has already stored
	}
	n.courier, err = delivery.NewCourier(delivery.CourierConfig{
		Queue: queue, Directory: people, Composer: n.server, Mailer: post, From: from, Journal: p.Journal, Metrics: p.Metrics, Logger: p.Logger,
	})
	return n, err
}

func (n *notifier) openPost(p notifyParts, m mailing, public string) (_ delivery.Mailer, err error) {
	if m.SMTP != "" {
		n.smtp, err = m.post(p.Logger)
		return n.smtp, err
	}
	n.inbox = inbox.New(p.DB)
	n.page, err = inbox.NewPage(n.inbox, public, p.Logger)
	return n.inbox, err
}

// crashOf returns the data of an exit record for a mail.
func crashOf(r runtime.ExitRecord) crashmail.Crash {
	return crashmail.Crash{
		App: r.App, Instance: string(r.Instance), Type: r.Type, Index: r.Slot.Index, Description: r.Description, Sentence: r.Verdict("").Sentence,
		Count: r.CrashCount, At: r.CrashedAt, NextStart: r.NextStart, GivenUp: r.GivenUp,
	}
}

// handler serves the paths below /notify: the service, and the page of the inbox.
func (n *notifier) handler() http.Handler {
	service := n.server.Handler()
	if n.page == nil {
		return service
	}
	page := n.page.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/inbox" || strings.HasPrefix(r.URL.Path, "/inbox/") {
			page.ServeHTTP(w, r)
			return
		}
		service.ServeHTTP(w, r)
	})
}

// mails returns the inbox for the API. Nil means that there is none.
func (n *notifier) mails() *apidaemon.Mails {
	if n.inbox == nil {
		return nil
	}
	return &apidaemon.Mails{Inbox: n.inbox, Link: n.page.Link}
}

// queue returns the queue of mails for the API.
func (n *notifier) queue() *apidaemon.MailQueue {
	return &apidaemon.MailQueue{Queue: n.mailQueue, StalledSince: n.courier.StalledSince}
}

// run delivers mails until ctx is done.
func (n *notifier) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.courier.Run(ctx) })
	g.Go(func() error { return n.crashes.Run(ctx) })
	err := g.Wait()
	if n.smtp != nil {
		err = errors.Join(err, n.smtp.Close())
	}
	return err
}
