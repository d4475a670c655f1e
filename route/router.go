// Package route is the router: it sends requests to instances. A table maps hosts and
// paths to processes, and the proxy sends each request to one of their instances.
//
//	registry.Registry ── routes ──▶ table: host ─▶ longest path ─▶ destinations ─▶ pools
//	runtime ──── statuses ───▶ pool (one per process): the instances that are ready
//	request ─▶ table ─▶ pool ─▶ endpoint (one instance, its own connections) ─▶ app
//	        └▶ access line ─▶ bounded queue ─▶ the app's log, as [RTR/0]
//
// The router stores nothing: it derives the table from the desired state and the
// instances. Readers see snapshots, so a change of the table never makes a request wait
// or fail.
package route

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/egress"
	"github.com/dewrun/dew/inbound"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
)

// Registry has the desired routes. *registry.Registry implements it.
type Registry interface {
	Apps() ([]app.App, error)
	Processes(app string) ([]app.Process, error)
	Domains() ([]app.Domain, error)
	Routes() ([]app.Route, error)
	// ListenRoutes calls fn after each change of a route, including its destinations.
	ListenRoutes(fn func(route string))
}

// Config configures a Router.
type Config struct {
	Registry Registry
	// Instances returns the status of the slots of a process.
	Instances func(process string) []runtime.Status
	// Dial connects from inside the instance's network namespace.
	Dial func(ctx context.Context, id runtime.InstanceID, network, address string) (net.Conn, error)
	// Sticky are the session cookies: later requests go to the instance that set them.
	// If empty, the default is JSESSIONID.
	Sticky []string
	// EmptyIsUnknown makes a route without ready instances look like one that does not
	// exist.
	EmptyIsUnknown bool
	// DeleteReplaced drops the replaced destinations of a route for which needed returns false.
	// If nil, they are kept.
	DeleteReplaced func(route string, needed func(d app.Destination) bool) error
	// Services returns the route services by route guid; see Refresh. Nil: there are
	// none.
	Services func() (map[string]Service, error)
	// Egress limits the addresses of restricted services.
	Egress egress.Policy
	// Roots verify the certificates of route services; nil: the machine's.
	Roots *x509.CertPool
	// API handles requests for the names of the API in APIHosts. Nil: there are none.
	API      http.Handler
	APIHosts []string
	// Log appends access lines to the log of an app. It is never called while a request
	// waits.
	Log    func(app string, es ...logstream.Envelope) error
	Logger *slog.Logger
}

// Stats are counts since the router was created.
type Stats struct {
	Requests     uint64 // responses, including errors
	Failed       uint64 // error responses of the router itself: no route, no instance, no working instance
	Retries      uint64 // attempts with a second or third instance
	LinesDropped uint64 // access lines that were dropped
}

// Router has the routing table and handles requests.
type Router struct {
	c            Config
	log          *slog.Logger
	lines        *accessLog
	proxy        httputil.ReverseProxy // settings of all requests
	wake         chan struct{}         // capacity 1: routes have changed
	replacedWake chan struct{}         // capacity 1: replaced destinations may be dropped
	ports        chan struct{}         // capacity 1: TCP routes may have changed

	sticky           []string
	apiHosts         map[string]bool
	idle             time.Duration // maximum idle time of a connection
	rate             inbound.Rate  // minimum rate of request bodies
	signer           signer
	serviceTransport *http.Transport   // to external route services
	restricted       http.RoundTripper // the same, limited by Config.Egress
	unreachableLog   unreachableLog
	adopted          atomic.Bool // all instances of an earlier daemon are known

	table atomic.Pointer[table]

	requests, failed, retries atomic.Uint64

	mu          sync.Mutex // guards the fields below, and every change of table and pools
	pools       map[processKey]*pool
	live        map[runtime.SlotID]*endpoint   // the ready instances
	changed     map[runtime.SlotID]bool        // slots that changed before all were read; nil from then on
	withdrawn   map[runtime.SlotID][]*endpoint // withdrawn instances that may still have connections
	traffic     map[runtime.SlotID]*traffic    // requests of the current instances
	failedPorts map[int]error                  // ports of TCP routes that cannot be opened
	openPorts   map[int]bool                   // ports of TCP routes that are open
}

// New returns a Router with the current routes. Run keeps them up to date.
func New(c Config) (*Router, error) {
	for name, missing := range map[string]bool{
		"Registry": c.Registry == nil, "Instances": c.Instances == nil, "Dial": c.Dial == nil,
		"Log": c.Log == nil, "Logger": c.Logger == nil,
	} {
		if missing {
			return nil, fmt.Errorf("cannot create a router without %s", name)
		}
	}
	r := &Router{
		c:            c,
		log:          c.Logger,
		lines:        newAccessLog(c.Log, c.Logger),
		proxy:        commonProxy(c.Logger),
		wake:         make(chan struct{}, 1),
		replacedWake: make(chan struct{}, 1),
		ports:        make(chan struct{}, 1),

		sticky:           c.Sticky,
		apiHosts:         map[string]bool{},
		idle:             idleTimeout,
		rate:             inbound.MinimumRate,
		signer:           newSigner(),
		serviceTransport: newServiceTransport(c.Roots),

		pools:       map[processKey]*pool{},
		live:        map[runtime.SlotID]*endpoint{},
		changed:     map[runtime.SlotID]bool{},
		withdrawn:   map[runtime.SlotID][]*endpoint{},
		traffic:     map[runtime.SlotID]*traffic{},
		failedPorts: map[int]error{},
		openPorts:   map[int]bool{},
	}
	r.restricted = r.c.Egress.Transport(r.serviceTransport, serviceDial)
	for _, host := range c.APIHosts {
		r.apiHosts[hostKey(host)] = c.API != nil
	}
	if len(r.sticky) == 0 {
		r.sticky = []string{sessionCookie}
	}
	// Listen first: a route that changes during the read is read again.
	c.Registry.ListenRoutes(func(string) { post(r.wake) })
	if err := r.readRoutes(); err != nil {
		return nil, err
	}
	return r, nil
}

// Changed handles a new status of a slot. After it returns, no new request goes to an
// instance that is not ready. It is fast and never waits for a request, the disk or the
// network.
func (r *Router) Changed(st runtime.Status) {
	r.mu.Lock()
	if r.changed != nil {
		r.changed[st.Slot] = true
	}
	r.forgetTraffic(st)
	gone := r.place(st)
	over := r.ended(st, gone)
	r.mu.Unlock()
	if len(r.table.Load().replaced) > 0 {
		post(r.replacedWake)
	}
	if gone != nil {
		gone.withdraw()
	}
	for _, e := range over {
		e.end()
	}
}

// ended returns the instances of the slot that have ended according to st. It remembers
// instances that are only withdrawn and still connected, such as gone. The caller holds
// r.mu.
func (r *Router) ended(st runtime.Status, gone *endpoint) (out []*endpoint) {
	all := r.withdrawn[st.Slot]
	if gone != nil {
		all = append(all, gone)
	}
	var stay []*endpoint
	for _, e := range all {
		switch {
		case st.Instance != e.instance || st.State == runtime.Down:
			out = append(out, e)
		case e == gone || !e.idle():
			stay = append(stay, e)
		}
	}
	if len(stay) == 0 {
		delete(r.withdrawn, st.Slot)
		return out
	}
	r.withdrawn[st.Slot] = stay
	return out
}

// Stats returns a copy of the counts.
func (r *Router) Stats() Stats {
	return Stats{
		Requests:     r.requests.Load(),
		Failed:       r.failed.Load(),
		Retries:      r.retries.Load(),
		LinesDropped: r.lines.dropped.Load(),
	}
}

// Reload reads the routes and their services again, synchronously.
func (r *Router) Reload() error { return r.readRoutes() }

// Refresh makes Run read the routes and their services again.
func (r *Router) Refresh() { post(r.wake) }

// Run updates the table when routes change, reads the existing instances once, and
// writes the access lines, until ctx is cancelled. Requests before and after that use
// the current table.
func (r *Router) Run(ctx context.Context) error {
	var writer sync.WaitGroup
	writer.Go(func() { r.lines.run(ctx) })
	defer writer.Wait()
	defer r.closeIdle()
	r.try(ctx, "cannot read the instances, trying again", r.readInstances)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
			r.try(ctx, "cannot read the routes, trying again", r.readRoutes)
			post(r.replacedWake)
		case <-r.replacedWake:
			r.try(ctx, "cannot delete replaced destinations, trying again", r.deleteReplaced)
		}
	}
}

// retryPause is the pause between two attempts to read.
const retryPause = time.Second

// try repeats read until it succeeds or ctx is cancelled. Until then the old table is
// used.
func (r *Router) try(ctx context.Context, complaint string, read func() error) {
	for {
		err := read()
		if err == nil {
			return
		}
		r.log.Error(complaint, "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryPause):
		}
	}
}

// readRoutes creates a new table from the desired routes.
func (r *Router) readRoutes() error {
	routes, err := r.c.Registry.Routes()
	if err != nil {
		return fmt.Errorf("cannot read the routes: %w", err)
	}
	domains, err := r.c.Registry.Domains()
	if err != nil {
		return fmt.Errorf("cannot read the domains: %w", err)
	}
	services, err := r.services()
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	used := map[processKey]*pool{}
	t := newTable(routes, domains, func(k processKey) *pool {
		if used[k] == nil {
			used[k] = r.pool(k)
		}
		return used[k]
	})
	for k, p := range r.pools {
		if used[k] == nil && len(p.endpoints()) == 0 {
			delete(r.pools, k)
		}
	}
	t.bind(services)
	r.table.Store(t)
	post(r.ports)
	return nil
}

// readInstances reads every slot once. A status that a slot reported itself is newer.
func (r *Router) readInstances() error {
	apps, err := r.c.Registry.Apps()
	if err != nil {
		return fmt.Errorf("cannot read the apps: %w", err)
	}
	for _, a := range apps {
		ps, err := r.c.Registry.Processes(a.GUID)
		if err != nil {
			return fmt.Errorf("cannot read the processes of %s: %w", a.Name, err)
		}
		for _, p := range ps {
			r.placeUnchanged(r.c.Instances(p.GUID))
		}
	}
	r.mu.Lock()
	r.changed = nil
	r.mu.Unlock()
	return nil
}

func (r *Router) placeUnchanged(sts []runtime.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, st := range sts {
		if !r.changed[st.Slot] {
			r.place(st) // withdraws nothing: a slot with an endpoint has changed
		}
	}
}

// place updates the pools for st and returns the endpoint that must no longer be used.
// The caller holds r.mu.
func (r *Router) place(st runtime.Status) (gone *endpoint) {
	old := r.live[st.Slot]
	if old != nil && old.serves(st) {
		return nil
	}
	if old != nil {
		delete(r.live, st.Slot)
		r.pool(old.process).remove(old)
	}
	if routable(st) {
		e := newEndpoint(st, r.c.Dial, r.idle)
		e.traffic = r.trafficOf(st)
		r.live[st.Slot] = e
		r.pool(e.process).add(e)
	}
	return old
}

// pool returns the pool of a process, and creates it if needed. The caller holds r.mu.
func (r *Router) pool(k processKey) *pool {
	p := r.pools[k]
	if p == nil {
		p = &pool{}
		r.pools[k] = p
	}
	return p
}

// closeIdle closes the idle connections: they would pin the network namespaces of
// instances that outlive the daemon.
func (r *Router) closeIdle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.live {
		e.closeIdle()
	}
	for _, way := range []http.RoundTripper{r.serviceTransport, r.restricted} {
		(&http.Client{Transport: way}).CloseIdleConnections()
	}
}

// post sends to a channel of capacity 1 without blocking.
func post(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
