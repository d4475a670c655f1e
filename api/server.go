// Package api serves the Cloud Foundry v3 API and log-cache over HTTP. It combines the
// groups of handlers, and checks every request against the row of its endpoint.
//
//	request ─▶ listener (Host, Origin, caller) ─▶ mux ─▶ guard (the row's need) ─▶ handler of a group
//	                                                                                    │
//	response ◀── serve: a value, or rest.ToError of an error ◀── platform, registry ◀───┘
//
// There are two listeners for one mux. Handler is for the address that every program on
// the machine can reach. Local is for the socket, whose file mode controls the access.
package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/apps"
	"github.com/dewrun/dew/api/bits"
	"github.com/dewrun/dew/api/daemon"
	"github.com/dewrun/dew/api/logs"
	"github.com/dewrun/dew/api/market"
	"github.com/dewrun/dew/api/orgs"
	"github.com/dewrun/dew/api/present"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/routes"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/console"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/netpolicy"
	"github.com/dewrun/dew/notify"
	"github.com/dewrun/dew/notify/crashmail"
	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/services/marketplace"
	"github.com/dewrun/dew/sshd"
	"github.com/dewrun/dew/store"
)

// Logins serves the pages of logins before the authorization server.
type Logins interface {
	Wrap(programs http.Handler) http.Handler
}

// Config holds the dependencies and settings of a Server.
type Config struct {
	DB        *store.DB // database of Registry and Events: a change and its event are one transaction
	Registry  *registry.Registry
	Events    *registry.Events
	Jobs      *registry.Jobs // New registers the operations that handlers start
	Packages  *droplet.Packages
	Builds    *droplet.Builds
	Shelf     *droplet.Droplets
	Catalog   *droplet.Catalog // catalog of buildpacks
	Processes platform.Processes
	Exits     platform.Exits
	Logs      *logstream.Logs
	Services  *marketplace.Marketplace
	Logins    Logins       // the login page for browsers; nil: there is none
	Auth      *auth.Server // authenticates callers of the listener
	Roles     *auth.Roles  // the roles of callers

	PublicURL string   // prefix of absolute URLs
	FixedURL  bool     // the operator set PublicURL: a proxy can be in front of the plain listener
	Names     []string // additional names of the listener besides localhost and PublicURL's host
	APINames  []string // names that the router leads to the API, in addition to Names
	AuthNames []string // those of them that are names of the authorization server
	Version   string   // version of the program
	Logger    *slog.Logger

	// RefusedURLs returns the stored URLs that a non-administrator could not set now.
	// Nil means not known.
	RefusedURLs func() ([]v3.RefusedURL, error)
	// About is the part of GET /dew/v1/status that does not change. The server fills in
	// the rest.
	About v3.Status
	// PolicyNotice reports, once, that network policies are not enforced because an older
	// dewd made the root. It can be nil.
	PolicyNotice func() (bool, error)
	// SetAside returns the problems that the daemon cannot repair now. Nil means none.
	SetAside func() []v3.SetAside
	// Warnings returns what is wrong with the addresses of the daemon. Nil means not known.
	Warnings func() ([]string, error)
	// Domain is the domain whose names of the API are reserved. Empty means none.
	Domain string
	// Doctor runs the checks of dewd doctor. Nil means that they are not available.
	Doctor func(ctx context.Context) []v3.Finding

	// UploadDir holds uploads while they arrive. Empty means the system's temporary
	// folder.
	UploadDir string
	// MaxUpload is the maximum size of one upload in bytes. 0 means 1 GiB.
	MaxUpload int64

	// BrokerWait is how long a request waits for the first answer of a broker before it
	// returns the URL of its job.
	BrokerWait time.Duration
	// Bindings returns the services that an app is bound to now, if instances read them
	// at every start. If it is nil, instances have the bindings of their droplet.
	Bindings func(app string) (droplet.Bindings, error)

	// Snapshots copies the data of service instances. If it is nil, snapshots are not
	// supported.
	Snapshots platform.Snapshots

	// PortTrouble returns why the port of a TCP route cannot be opened. It returns an
	// empty string if the port is open or not needed. It can be nil.
	PortTrouble func(port int) string

	// SSH is the SSH server for instances. Nil means none.
	SSH *platform.SSHEndpoint
	// Terminals opens shells in instances. Nil means that there is no SSH server.
	Terminals *sshd.Server

	// Notify serves requests under /notify, with the prefix stripped. Nil means none.
	Notify http.Handler
	// Mails is the built-in inbox. It is nil if mails go to another server.
	Mails *daemon.Mails
	// MailQueue is the queue of mails. Nil means none.
	MailQueue *daemon.MailQueue
	// PreviewMail renders a template of mails. Nil means not available.
	PreviewMail func(notify.Preview) (delivery.Mail, error)
	// CrashMails sends mails about crashes. Nil means none.
	CrashMails *crashmail.Crashes

	// Console is the web console. Nil means none.
	Console *console.Console

	// Crashed lists the crashed instances whose files are stored. It can be nil.
	Crashed func() []runtime.CrashFiles

	// Usage has the usage of the running instances. Nil means not known.
	Usage apps.Usage

	// Metrics holds the daemon's measurements. Nil means a new one without other
	// sources.
	Metrics *daemon.Metrics
	// Stats counts starts and crashes, for /metrics. It can be nil.
	Stats func() runtime.Stats
	// Shutdown makes the daemon stop, and stops the apps first if apps is set. It
	// returns at once. If it is nil, the request is refused.
	Shutdown func(apps bool)
}

// defaultMaxUpload is Cloud Foundry's own limit of app files.
const defaultMaxUpload = 1 << 30

// Server serves the API. It is safe for concurrent use.
type Server struct {
	c         Config
	log       *slog.Logger
	links     rest.Links
	access    *access.Control
	platform  *platform.Platform
	names     map[string]bool
	routed    map[string]bool // names that the router leads here
	auth      map[string]bool // names of the authorization server
	views     *views
	mux       *http.ServeMux
	rows      []rest.Endpoint
	people    *store.Memo[present.People]
	described func() rest.Object // description of the rows, created on first use

	apps   *apps.Handlers
	bits   *bits.Handlers
	routes *routes.Handlers
	orgs   *orgs.Handlers
	market *market.Handlers
	logs   *logs.Handlers
	daemon *daemon.Handlers
}

// New returns a Server and registers the operations of jobs.
func New(c Config) (*Server, error) {
	for name, missing := range map[string]bool{
		"DB": c.DB == nil, "Registry": c.Registry == nil, "Events": c.Events == nil, "Jobs": c.Jobs == nil,
		"Packages": c.Packages == nil, "Catalog": c.Catalog == nil, "Builds": c.Builds == nil, "Shelf": c.Shelf == nil,
		"Processes": c.Processes == nil, "Exits": c.Exits == nil, "Logs": c.Logs == nil, "Logger": c.Logger == nil,
		"Auth": c.Auth == nil, "Roles": c.Roles == nil, "Services": c.Services == nil,
	} {
		if missing {
			return nil, fmt.Errorf("cannot create the API without %s", name)
		}
	}
	public, err := url.Parse(c.PublicURL)
	if err != nil || public.Host == "" || public.Scheme != "http" && public.Scheme != "https" {
		return nil, fmt.Errorf("cannot create the API: the public URL must be a URL such as http://127.0.0.1:8484, not %q", c.PublicURL)
	}
	if c.UploadDir != "" {
		if err := os.MkdirAll(c.UploadDir, 0o700); err != nil {
			return nil, fmt.Errorf("cannot create the folder for uploads: %w", err)
		}
	}
	if c.MaxUpload <= 0 {
		c.MaxUpload = defaultMaxUpload
	}
	if c.Metrics == nil {
		c.Metrics = daemon.NewMetrics()
	}
	s := &Server{c: c, log: c.Logger, links: rest.Links{Public: public}, views: &views{}, mux: http.NewServeMux()}
	s.names, s.routed, s.auth = ownNames(public, slices.Concat(c.Names, c.APINames)), nameSet(c.APINames), nameSet(c.AuthNames)
	s.access = &access.Control{Registry: c.Registry, Roles: c.Roles, Packages: c.Packages, Builds: c.Builds, Droplets: c.Shelf, Services: c.Services}
	s.platform = &platform.Platform{
		DB: c.DB, Registry: c.Registry, Events: c.Events, Jobs: c.Jobs, Packages: c.Packages, Builds: c.Builds, Droplets: c.Shelf, Catalog: c.Catalog,
		Services: c.Services, Roles: c.Roles, Auth: c.Auth, Exits: c.Exits, Processes: c.Processes, Logs: c.Logs, Log: c.Logger,
		Bindings: c.Bindings, Snapshots: c.Snapshots, Explain: rest.ToError, APIDomain: c.Domain, Policies: netpolicy.NewStore(c.DB),
	}
	s.group()
	c.Registry.Listen(func(string) { s.logs.AppsChanged() })
	s.c.Metrics.Watch(c.Logs, c.Stats)
	if c.Usage != nil {
		s.c.Metrics.WatchUsage(c.Usage.Once, c.Registry, c.Logger)
	}
	if err := s.register(); err != nil {
		return nil, err
	}
	s.described = sync.OnceValue(func() rest.Object { return rest.DescribeAll(s.rows, market.ServiceFieldNames) })
	s.platform.HandleApps()
	s.platform.HandleDeletions()
	s.platform.HandleServices()
	return s, nil
}

// group creates the groups of handlers.
func (s *Server) group() {
	s.people = present.NewPeople(s.c.DB)
	show := &present.Presenter{Access: s.access, Links: s.links, Platform: s.platform, PortTrouble: s.c.PortTrouble, Memo: s.people}
	s.apps = &apps.Handlers{
		Access: s.access, Links: s.links, Platform: s.platform, Present: show, SSH: s.c.SSH, Version: s.c.Version,
		Live: apps.Live{Usage: s.c.Usage, Fail: s.fail}, Terminals: s.c.Terminals, Fail: s.fail,
	}
	s.bits = &bits.Handlers{Access: s.access, Links: s.links, Platform: s.platform, Present: show, Downloads: bits.NewDownloads(), UploadDir: s.c.UploadDir, MaxUpload: s.c.MaxUpload}
	s.routes = &routes.Handlers{Access: s.access, Links: s.links, Platform: s.platform, Present: show}
	s.orgs = &orgs.Handlers{Access: s.access, Links: s.links, Platform: s.platform, Present: show}
	s.market = &market.Handlers{Access: s.access, Links: s.links, Platform: s.platform, Present: show, FirstAnswer: s.c.BrokerWait}
	s.logs = &logs.Handlers{Access: s.access, Platform: s.platform, Present: show, Fail: s.fail, Beat: logs.Heartbeat, GaugeInterval: logs.GaugeInterval}
	if s.c.Usage != nil {
		s.logs.Usage = s.c.Usage
	}
	s.daemon = &daemon.Handlers{
		Access: s.access, Links: s.links, Platform: s.platform, Present: show,
		Self: daemon.Self{
			Version: s.c.Version, About: s.c.About, SSH: s.c.SSH, RefusedURLs: s.c.RefusedURLs, SetAside: s.c.SetAside, PolicyNotice: s.c.PolicyNotice, Warnings: s.c.Warnings, Doctor: s.c.Doctor, Crashed: s.c.Crashed,
			Metrics: s.c.Metrics, Shutdown: s.c.Shutdown, Console: s.c.Console,
		},
		Mailing: daemon.Mailing{Notify: s.c.Notify, Mails: s.c.Mails, Queue: s.c.MailQueue, Preview: s.c.PreviewMail, CrashMails: s.c.CrashMails},
	}
}

// register registers all endpoints, each with its guard. An incomplete row fails the
// start. Every other request gets 404 `Unknown request`.
func (s *Server) register() error {
	s.rows = s.endpoints()
	slices.SortFunc(s.rows, func(a, b rest.Endpoint) int { return strings.Compare(a.Pattern, b.Pattern) })
	var errs []error
	for i, e := range s.rows {
		if i > 0 && s.rows[i-1].Pattern == e.Pattern {
			errs = append(errs, fmt.Errorf("endpoint %q: is registered twice", e.Pattern))
			continue
		}
		errs = append(errs, e.Check())
		h := e.Raw
		if h == nil {
			h = s.serve(e.Handler)
		}
		s.mux.Handle(e.Pattern, s.guard(e, h))
	}
	unknown := rest.Endpoint{Pattern: "/", Needs: access.Authenticated} // unauthenticated callers learn nothing about existing endpoints
	s.mux.Handle(unknown.Pattern, s.guard(unknown, s.serve(func(*http.Request) (any, error) { return nil, access.ErrUnknownRequest })))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cannot create the API: %w", err)
	}
	return nil
}

// serve turns a handler's value or error into the response.
func (s *Server) serve(h rest.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil {
			r.Body = http.MaxBytesReader(w, r.Body, s.bound(r))
		}
		v, err := h(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		a, ok := v.(rest.Answer)
		if !ok {
			a = rest.Answer{Status: http.StatusOK, Body: v}
		}
		s.write(w, r, a)
	}
}

// bound is the maximum number of bytes of a body. Uploads are read as a stream, all
// others into memory.
func (s *Server) bound(r *http.Request) int64 {
	for _, pattern := range []string{"/v3/packages/*/upload", "/v3/buildpacks/*/upload", "/v3/droplets/*/upload", "/dew/v1/spaces/*/buildpacks"} {
		if upload, err := path.Match(pattern, r.URL.Path); upload && err == nil {
			return s.c.MaxUpload
		}
	}
	if r.URL.Path == "/dew/v1/stacks/upload" {
		return stack.MaxUpload
	}
	return rest.MaxBody
}

// statusGone is the status that proxies log for a client that closed its connection.
const statusGone = 499

func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	// If the client closed its connection during the request, there is no error and no
	// response.
	if r.Context().Err() != nil && errors.Is(err, r.Context().Err()) {
		w.WriteHeader(statusGone)
		return
	}
	status, body := rest.ToError(err)
	if status >= http.StatusInternalServerError && r.Context().Err() == nil {
		s.log.Error("cannot handle a request", "request", rest.RequestID(r.Context()), "method", r.Method, "path", r.URL.Path, "err", err)
	}
	s.write(w, r, rest.Answer{Status: status, Body: body})
}

func (s *Server) write(w http.ResponseWriter, r *http.Request, a rest.Answer) {
	h := w.Header()
	if a.Location != "" {
		h.Set("Location", a.Location)
	}
	if len(a.Warnings) > 0 {
		h.Set("X-Cf-Warnings", joinWarnings(a.Warnings))
	}
	if a.Raw != nil || a.Content != nil || a.Produce != nil {
		s.writeRaw(w, r, a)
		return
	}
	if a.Body == nil {
		w.WriteHeader(a.Status)
		return
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // people also read it, and browsers do not treat it as a page
	if err := enc.Encode(a.Body); err != nil {
		s.log.Error("cannot encode a response", "request", rest.RequestID(r.Context()), "path", r.URL.Path, "err", err)
		a.Status = http.StatusInternalServerError
		b.Reset()
		b.WriteString(rest.InternalError + "\n")
	}
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(a.Status)
	_, _ = w.Write(b.Bytes()) // ignore a client that closed its connection
}

// writeRaw writes a body that is not JSON. Browsers must not treat it as a page.
func (s *Server) writeRaw(w http.ResponseWriter, r *http.Request, a rest.Answer) {
	h := w.Header()
	h.Set("Content-Type", a.ContentType)
	h.Set("X-Content-Type-Options", "nosniff")
	if a.Raw != nil {
		h.Set("Content-Length", strconv.Itoa(len(a.Raw)))
		w.WriteHeader(a.Status)
		_, _ = w.Write(a.Raw) // ignore a client that closed its connection
		return
	}
	if a.Size > 0 {
		h.Set("Content-Length", strconv.FormatInt(a.Size, 10))
	}
	w.WriteHeader(a.Status)
	if a.Content != nil {
		a.Produce = func(w io.Writer) error {
			_, err := io.Copy(w, a.Content)
			return errors.Join(err, a.Content.Close())
		}
	}
	if err := a.Produce(w); err != nil && r.Context().Err() == nil {
		s.log.Warn("a download stopped before its end", "request", rest.RequestID(r.Context()), "endpoint", r.Pattern, "err", err)
		panic(http.ErrAbortHandler) // the client must not mistake it for the complete body
	}
}

// joinWarnings encodes warnings as clients read them: escaped and separated by commas.
func joinWarnings(texts []string) string {
	escaped := make([]string, len(texts))
	for i, text := range texts {
		escaped[i] = url.QueryEscape(text)
	}
	return strings.Join(escaped, ",")
}

// outer wraps every request of every listener. It sets a request id, and a panic fails
// only one response and not the daemon.
func (s *Server) outer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := uuid.NewString()
		w.Header().Set("X-Vcap-Request-Id", id)
		r = withoutSlash(r.WithContext(context.WithValue(r.Context(), rest.RequestKey{}, id)))
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler { //nolint:errorlint // net/http compares it so, too
				panic(p)
			}
			s.log.Error("panic while handling a request", "request", id, "method", r.Method, "path", r.URL.Path,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte(rest.InternalError + "\n"))
		}()
		next.ServeHTTP(w, r)
	})
}

// withoutSlash returns a request for a path of the API without the slashes at its end.
// For clients it is the same path.
func withoutSlash(r *http.Request) *http.Request {
	p := r.URL.Path
	if !strings.HasSuffix(p, "/") || !strings.HasPrefix(p, "/v3/") && !strings.HasPrefix(p, "/api/v1/") && !strings.HasPrefix(p, "/v2/read/") {
		return r
	}
	u := *r.URL
	u.Path, u.RawPath = strings.TrimRight(p, "/"), strings.TrimRight(u.RawPath, "/")
	r.URL = &u // WithContext made a copy of the request
	return r
}

// AllowSSH checks whether a principal can open an SSH session in the instances of an
// app.
func (s *Server) AllowSSH(who auth.Principal, a app.App) error { return s.apps.AllowSSH(who, a) }

// RecordSSH records an SSH session, or the attempt to open one, as an audit event.
func (s *Server) RecordSSH(who auth.Principal, a app.App, index int, refused error) {
	s.apps.RecordSSH(who, a, index, refused)
}
