package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"github.com/dewrun/dew/notify"
	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/notify/directory"
	"github.com/dewrun/dew/notify/smtp"
	"github.com/dewrun/dew/route"
	"github.com/dewrun/dew/store"
)

// notifyCommand returns the command dewd notify, which runs only the notification
// service, for another Cloud Foundry installation.
func notifyCommand() *cli.Command {
	a := newNotifyConfig()
	return &cli.Command{
		Name: "notify", Usage: "Run only the notification service, for a Cloud Foundry on other machines", Description: a.help(),
		Flags: a.flags(), Before: a.read, Action: command(&a.config, a.run), OnUsageError: usageError,
	}
}

func (a *notifyConfig) run(c *cli.Context, cfg config) (err error) {
	log := cfg.logger()
	if len(a.idle) > 0 {
		log.Info("these environment variables have no effect", "names", strings.Join(a.idle, " "))
	}
	if a.Unverified {
		log.Warn("VERIFY_SSL is false: certificates are not verified, so an attacker in the network can read and change requests (unset VERIFY_SSL)")
	}
	if a.Mailing.Original && a.Mailing.TLS == string(smtp.TLSNone) {
		log.Warn("SMTP_TLS is false: mails are sent unencrypted, and without a password unless the mail server is on this machine (set SMTP_TLS to true)")
	}
	s, err := a.open(c.Context, log)
	if err != nil {
		return infrastructure(err)
	}
	return errors.Join(s.serve(c.Context), s.close())
}

// handoverFile is the name of the file that records mails while they are handed over to
// the mail server.
const handoverFile = "notify-handover"

// standaloneService holds all parts of the standalone notification service.
type standaloneService struct {
	log     *slog.Logger
	listen  []net.Listener
	db      *store.DB
	keys    *notify.RemoteKeys
	server  *notify.Server
	courier *delivery.Courier
	smtp    *smtp.Client // nil: mails are not sent
	metrics *prometheus.Registry
}

// open opens all parts. The authorization server must respond, because the service is
// useless if it cannot verify tokens. The mail server need not respond yet.
func (a *notifyConfig) open(ctx context.Context, log *slog.Logger) (_ *standaloneService, err error) {
	s := &standaloneService{log: log, metrics: prometheus.NewRegistry()}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.listen, err = listenTCP(a.Listen, "listen"); err != nil {
		return nil, err
	}
	if a.PublicURL == "" {
		a.PublicURL = "http://" + s.listen[0].Addr().String()
	}
	if s.keys, err = notify.NewRemoteKeys(ctx, notify.KeysConfig{UAA: a.UAA, Every: a.KeysEvery, Trust: a.trust(), Logger: log}); err != nil {
		return nil, err
	}
	if err := s.keys.Load(ctx); err != nil {
		return nil, fmt.Errorf("UAA_HOST: %w (correct the URL, or start the authorization server)", err)
	}
	if s.db, err = openOwnStore(a.Root); err != nil {
		return nil, err
	}
	return s, a.connect(ctx, s)
}

// trust returns the TLS configuration for the API and the authorization server.
func (a *notifyConfig) trust() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: a.Unverified}
}

func openOwnStore(root string) (*store.DB, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("cannot use root: %w (choose another folder with --root)", err)
	}
	path := filepath.Join(root, "notify.db")
	db, err := store.Open(path, store.Options{Format: storeFormat})
	if errors.Is(err, store.ErrInUse) {
		return nil, fmt.Errorf("cannot use root %s: another notification service uses it: %w (stop that service, or choose another folder with --root)", root, err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", path, err)
	}
	return db, nil
}

// connect creates the parts that depend on the store.
func (a *notifyConfig) connect(ctx context.Context, s *standaloneService) error {
	people, err := directory.NewRemote(directory.RemoteConfig{API: a.API, UAA: a.UAA, ClientID: a.ClientID, ClientSecret: a.Secret, Trust: a.trust()})
	if err != nil {
		return err
	}
	queue, metrics := delivery.NewQueue(s.db), delivery.NewMetrics()
	if err := s.metrics.Register(metrics); err != nil {
		return fmt.Errorf("cannot measure deliveries: %w", err)
	}
	s.server, err = notify.New(notify.Config{
		DB: s.db, Auth: s.keys, Directory: people, Queue: queue, PublicURL: a.PublicURL, From: a.Mailing.From, Domain: a.Domain,
		EncryptionKey: a.EncryptionKey, CORSOrigin: a.CORSOrigin, DefaultScopes: a.DefaultScopes, Metrics: metrics, Logger: s.log,
	})
	if err != nil {
		return err
	}
	var post delivery.Mailer = testModeMailer{s.log}
	if !a.TestMode {
		if s.smtp, err = a.Mailing.post(s.log); err != nil {
			return err
		}
		post = s.smtp
		if err := s.smtp.Check(ctx); err != nil {
			s.log.Warn("the mail server does not respond; mails stay in the queue and dewd tries again", "address", a.Mailing.SMTP, "err", err)
		}
	}
	s.courier, err = delivery.NewCourier(delivery.CourierConfig{
		Queue: queue, Directory: people, Composer: s.server, Mailer: post, From: a.Mailing.From,
		Journal: filepath.Join(a.Root, handoverFile), Metrics: metrics, Logger: s.log,
	})
	return err
}

// testModeMailer is the Post of the test mode: mails count as delivered, but are not sent.
type testModeMailer struct{ log *slog.Logger }

// Send implements delivery.Mailer.
func (u testModeMailer) Send(_ context.Context, m delivery.Mail) error {
	u.log.Info("test mode: mail not sent", "message", m.ID, "client", m.Client, "kind", m.Kind)
	return nil
}

// serve serves requests and delivers mails until ctx is done or a part fails.
func (s *standaloneService) serve(ctx context.Context) error {
	systemd := service{s.log}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.courier.Run(ctx) })
	g.Go(func() error { return s.keys.Run(ctx) })
	g.Go(func() error { systemd.watch(ctx, s.checkHealth); return nil })
	handler := s.handler()
	for _, l := range s.listen {
		g.Go(func() error { return serve(ctx, route.Screen(l), apiServer(handler), s.log) })
	}
	systemd.ready()
	s.log.Info("ready", "version", version, "notifications", s.listen[0].Addr())
	<-ctx.Done()
	systemd.stopping()
	s.log.Info("exiting; mails in the queue are sent after the next start")
	return g.Wait()
}

// handler serves the service and its health.
func (s *standaloneService) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		status, body := http.StatusOK, `{"status":"ok"}`
		if err := s.checkHealth(); err != nil {
			s.log.Error("the notification service is unhealthy", "err", err)
			status, body = http.StatusServiceUnavailable, `{"status":"failed"}`
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics, promhttp.HandlerOpts{}))
	mux.Handle("/", s.server.Handler())
	return mux
}

// checkHealth returns an error if requests cannot be stored.
func (s *standaloneService) checkHealth() error {
	return s.db.View(func(*store.Tx) error { return nil })
}

// close closes everything that was opened.
func (s *standaloneService) close() (err error) {
	for _, l := range s.listen {
		l.Close() // listeners that were served are closed already
	}
	if s.smtp != nil {
		err = s.smtp.Close()
	}
	if s.db != nil {
		err = errors.Join(err, s.db.Close())
	}
	return err
}
