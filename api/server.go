// Package api is the Cloud Foundry v3 dialect and log-cache over HTTP. A handler
// decodes, asks one package, and encodes; it decides nothing that another door
// to the same package would decide differently.
//
//	request ─▶ door (Host, Origin, who asks) ─▶ mux ─▶ handler ─▶ app, droplet, runtime, logstream
//	                                                     │
//	response ◀── serve: a value, or toError of an error ◀┘
//
// There are two doors to one mux: Handler for the listener that everybody on the
// machine can reach, Local for the socket whose mode is the check.
package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/store"
)

// Processes is what runs, as far as handlers ask for it. runtime.Supervisor is
// the real one.
type Processes interface {
	// Instances is what is known of the slots of a process.
	Instances(process string) []runtime.Status
	// Usage is what an instance takes now; false: nobody knows.
	Usage(ctx context.Context, process string, index int) (runtime.Usage, bool)
	// Signal sends sig to main, or to the sidecar with the name.
	Signal(ctx context.Context, process string, index int, sidecar string, sig syscall.Signal) error
	// RestartInstance ends an instance and starts another in its place.
	RestartInstance(process string, index int) error
}

// Exits reads the exit records. runtime.ExitLog is the real one.
type Exits interface {
	Process(process string) ([]runtime.ExitRecord, error)
}

// Config is what a Server needs.
type Config struct {
	DB        *store.DB // where Registry and Events live: a wish and its event are one transaction
	Registry  *app.Registry
	Events    *app.Events
	Jobs      *app.Jobs // New gives it the operations that handlers start
	Packages  *droplet.Packages
	Builds    *droplet.Builds
	Shelf     *droplet.Shelf
	Processes Processes
	Exits     Exits
	Logs      *logstream.Logs

	PublicURL string   // absolute URLs begin with it
	Names     []string // further names of the listener; localhost and PublicURL's host are known
	Version   string   // of the program
	Logger    *slog.Logger

	// About is the part of GET /dew/v1/status that does not change; the server
	// counts the rest.
	About v3.Status

	// UploadDir holds uploads while they come in; empty: the system's temporary folder.
	UploadDir string
	// MaxUpload bounds one upload in bytes; 0: 1 GiB.
	MaxUpload int64

	// Metrics holds what the daemon measures; nil: a new one that nobody else feeds.
	Metrics *Metrics
	// Stats counts starts and crashes, for /metrics. It may be nil.
	Stats func() runtime.Stats
	// Shutdown asks the daemon to leave; with apps, to end them before. It returns
	// at once. Nil: the request is refused.
	Shutdown func(apps bool)
}

// defaultMaxUpload is the platform's own bound of app bits.
const defaultMaxUpload = 1 << 30

// Server answers. It may be used by many goroutines.
type Server struct {
	c      Config
	log    *slog.Logger
	public *url.URL
	names  map[string]bool
	mux    *http.ServeMux
	recent recentTimes
	beat   time.Duration // how often a stream without lines says that it is alive
}

// New makes a Server and gives the jobs their operations.
func New(c Config) (*Server, error) {
	for name, missing := range map[string]bool{
		"DB": c.DB == nil, "Registry": c.Registry == nil, "Events": c.Events == nil, "Jobs": c.Jobs == nil,
		"Packages": c.Packages == nil, "Builds": c.Builds == nil, "Shelf": c.Shelf == nil,
		"Processes": c.Processes == nil, "Exits": c.Exits == nil, "Logs": c.Logs == nil, "Logger": c.Logger == nil,
	} {
		if missing {
			return nil, fmt.Errorf("cannot make the API without %s", name)
		}
	}
	public, err := url.Parse(c.PublicURL)
	if err != nil || public.Host == "" || public.Scheme != "http" && public.Scheme != "https" {
		return nil, fmt.Errorf("cannot make the API: its public URL must be like http://127.0.0.1:8484, not %q", c.PublicURL)
	}
	if c.UploadDir != "" {
		if err := os.MkdirAll(c.UploadDir, 0o700); err != nil {
			return nil, fmt.Errorf("cannot make the folder for uploads: %w", err)
		}
	}
	if c.MaxUpload <= 0 {
		c.MaxUpload = defaultMaxUpload
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics()
	}
	s := &Server{c: c, log: c.Logger, public: public, names: ownNames(public, c.Names), mux: http.NewServeMux(), beat: heartbeat}
	s.c.Metrics.watch(c.Logs, c.Stats)
	s.routes()
	s.operations()
	return s, nil
}

// routes registers everything that is answered. What is on no list is 404
// `Unknown request`: an empty answer would be a lie.
func (s *Server) routes() {
	s.mux.HandleFunc("/", s.serve(func(*http.Request) (any, error) { return nil, errUnknownRequest }))
	for _, list := range []map[string]handler{s.places(), s.apps(), s.processes(), s.bits()} {
		for pattern, h := range list {
			s.mux.HandleFunc(pattern, s.serve(h))
		}
	}
	s.mux.HandleFunc("GET /stream/v1/apps/{guid}", s.streamLog)
	s.mux.Handle("GET /metrics", s.c.Metrics.handler(s.log))
}

// places are the answers about the platform and what apps live in.
func (s *Server) places() map[string]handler {
	return map[string]handler{
		"GET /{$}":     s.root,
		"GET /healthz": s.healthz,

		"GET /v3/organizations":                         s.listOrgs,
		"GET /v3/spaces":                                s.listSpaces,
		"GET /v3/domains":                               s.listDomains,
		"POST /v3/spaces/{guid}/manifest_diff":          s.diffManifest,
		"POST /v3/spaces/{guid}/actions/apply_manifest": s.applyManifest,

		"GET /v3/routes":                       s.listRoutes,
		"GET /v3/routes/{guid}":                s.getRoute,
		"DELETE /v3/routes/{guid}":             s.deleteRoute,
		"GET /v3/routes/{guid}/destinations":   s.getDestinations,
		"POST /v3/routes/{guid}/destinations":  s.addDestinations,
		"PATCH /v3/routes/{guid}/destinations": s.setDestinations,

		"GET /v3/jobs/{guid}":     s.getJob,
		"GET /v3/audit_events":    s.listEvents,
		"GET /api/v1/info":        s.logCacheInfo,
		"GET /api/v1/read/{guid}": s.logCacheRead,
	}
}

func (s *Server) apps() map[string]handler {
	return map[string]handler{
		"GET /v3/apps":           s.listApps,
		"POST /v3/apps":          s.createApp,
		"GET /v3/apps/{guid}":    s.getApp,
		"PATCH /v3/apps/{guid}":  s.updateApp,
		"DELETE /v3/apps/{guid}": s.deleteApp,

		"POST /v3/apps/{guid}/actions/start":   s.startApp,
		"POST /v3/apps/{guid}/actions/stop":    s.stopApp,
		"POST /v3/apps/{guid}/actions/restart": s.restartApp,

		"GET /v3/apps/{guid}/env":                             s.getEnv,
		"GET /v3/apps/{guid}/environment_variables":           s.getVariables,
		"PATCH /v3/apps/{guid}/environment_variables":         s.updateVariables,
		"GET /v3/apps/{guid}/relationships/current_droplet":   s.getCurrentRelationship,
		"PATCH /v3/apps/{guid}/relationships/current_droplet": s.setCurrentDroplet,
		"GET /v3/apps/{guid}/droplets/current":                s.getCurrentDroplet,

		"GET /v3/apps/{guid}/processes": s.listAppProcesses,
		"GET /v3/apps/{guid}/routes":    s.listAppRoutes,
		"GET /v3/apps/{guid}/packages":  s.listAppPackages,
		"GET /v3/apps/{guid}/builds":    s.listAppBuilds,
		"GET /v3/apps/{guid}/sidecars":  s.listAppSidecars,
		"POST /v3/apps/{guid}/sidecars": s.createSidecar,
	}
}

// processes have two names each: their guid, and their app with their type.
func (s *Server) processes() map[string]handler {
	out := map[string]handler{
		"GET /v3/processes":          s.listProcesses,
		"GET /v3/sidecars/{guid}":    s.getSidecar,
		"PATCH /v3/sidecars/{guid}":  s.updateSidecar,
		"DELETE /v3/sidecars/{guid}": s.deleteSidecar,
	}
	for _, name := range []string{"/v3/processes/{guid}", "/v3/apps/{guid}/processes/{type}"} {
		out["GET "+name] = s.getProcess
		out["PATCH "+name] = s.updateProcess
		out["POST "+name+"/actions/scale"] = s.scaleProcess
		out["GET "+name+"/stats"] = s.getStats
		out["GET "+name+"/sidecars"] = s.listProcessSidecars
		out["DELETE "+name+"/instances/{index}"] = s.deleteInstance
	}
	return out
}

// bits are what is pushed, and what is made of it.
func (s *Server) bits() map[string]handler {
	return map[string]handler{
		"POST /v3/resource_matches":        s.matchResources,
		"GET /v3/packages":                 s.listPackages,
		"POST /v3/packages":                s.createPackage,
		"GET /v3/packages/{guid}":          s.getPackage,
		"POST /v3/packages/{guid}/upload":  s.uploadPackage,
		"GET /v3/packages/{guid}/droplets": s.listPackageDroplets,
		"POST /v3/builds":                  s.createBuild,
		"GET /v3/builds/{guid}":            s.getBuild,
		"GET /v3/droplets/{guid}":          s.getDroplet,
	}
}

// local is what the socket answers beside: dew's own.
func (s *Server) local() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("/", s.mux)
	for pattern, h := range map[string]handler{
		"GET /dew/v1/status":                 s.status,
		"GET /dew/v1/apps/{guid}/crashes":    s.listCrashes,
		"POST /dew/v1/processes/{guid}/kill": s.killProcess,
		"POST /dew/v1/shutdown":              s.shutdown,
	} {
		mux.HandleFunc(pattern, s.serve(h))
	}
	return mux
}

// handler answers with a value for the body, an answer, or an error.
type handler func(r *http.Request) (any, error)

// answer is a response that is more than a body with status 200.
type answer struct {
	status   int
	location string // absolute
	body     any    // nil: none
}

// maxBody bounds every body but uploads, which have their own bound.
const maxBody = 16 << 20

// serve turns a handler's value or error into the response.
func (s *Server) serve(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil {
			r.Body = http.MaxBytesReader(w, r.Body, s.bound(r))
		}
		v, err := h(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		a, ok := v.(answer)
		if !ok {
			a = answer{status: http.StatusOK, body: v}
		}
		s.write(w, r, a)
	}
}

// bound is how many bytes a body may have. Uploads are read as a stream, all
// others into memory.
func (s *Server) bound(r *http.Request) int64 {
	if upload, err := path.Match("/v3/packages/*/upload", r.URL.Path); upload && err == nil {
		return s.c.MaxUpload
	}
	return maxBody
}

func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, body := toError(err)
	// A client that went away in the midst of it is nobody's fault.
	if status >= http.StatusInternalServerError && r.Context().Err() == nil {
		s.log.Error("cannot answer", "request", requestID(r.Context()), "method", r.Method, "path", r.URL.Path, "err", err)
	}
	s.write(w, r, answer{status: status, body: body})
}

func (s *Server) write(w http.ResponseWriter, r *http.Request, a answer) {
	h := w.Header()
	if a.location != "" {
		h.Set("Location", a.location)
	}
	if a.body == nil {
		w.WriteHeader(a.status)
		return
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // people read it too, and nobody takes it for a page
	if err := enc.Encode(a.body); err != nil {
		s.log.Error("cannot encode the answer", "request", requestID(r.Context()), "path", r.URL.Path, "err", err)
		a.status = http.StatusInternalServerError
		b.Reset()
		b.WriteString(internalError + "\n")
	}
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(a.status)
	_, _ = w.Write(b.Bytes()) // a client that hung up is its own business
}

// outer is around every request of every door: an id, and a panic that costs one
// answer and not the daemon.
func (s *Server) outer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := uuid.NewString()
		w.Header().Set("X-Vcap-Request-Id", id)
		r = r.WithContext(context.WithValue(r.Context(), requestKey{}, id))
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler { //nolint:errorlint // net/http compares it so, too
				panic(p)
			}
			s.log.Error("panic while answering", "request", id, "method", r.Method, "path", r.URL.Path,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte(internalError + "\n"))
		}()
		next.ServeHTTP(w, r)
	})
}

type requestKey struct{}

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestKey{}).(string)
	return id
}

// href is the absolute URL of a path. It comes from the configuration and never
// from the request: a Host header is the client's word.
func (s *Server) href(elem ...string) string { return s.public.JoinPath(elem...).String() }

// say puts a sentence of the platform into an app's log. A log that cannot be
// written must not undo a wish that is kept already.
func (s *Server) say(appGUID, text string) {
	l, err := s.c.Logs.App(appGUID)
	if err == nil {
		err = l.Append(logstream.Envelope{Source: logstream.Source{Type: "API"}, Stream: logstream.Out, Text: []byte(text)})
	}
	if err != nil {
		s.log.Warn("cannot write to the app's log", "app", appGUID, "err", err)
	}
}
