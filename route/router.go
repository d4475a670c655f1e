// Package route sends requests to instances: a table says which host and path
// belongs to which processes, and the proxy in front asks one of their instances.
//
//	registry.Registry ── routes ──▶ table: host ─▶ longest path ─▶ destinations ─▶ pools
//	runtime ──── statuses ───▶ pool (one per process): the instances that are ready
//	request ─▶ table ─▶ pool ─▶ endpoint (one instance, its own connections) ─▶ app
//	        └▶ access line ─▶ bounded queue ─▶ the app's log, as [RTR/0]
//
// Nothing here is remembered: the table is derived from desired state and facts. Readers
// see snapshots, so a change of the table never makes a request wait or fail.
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

// Registry has the desired routes. *registry.Registry is the real one.
type Registry interface {
	Apps() ([]app.App, error)
	Processes(app string) ([]app.Process, error)
	Domains() ([]app.Domain, error)
	Routes() ([]app.Route, error)
	// ListenRoutes calls fn after each change of a route, its destinations included.
	ListenRoutes(fn func(route string))
}

// Config is what a Router needs.
type Config struct {
	Registry Registry
	// Instances is what is known about the slots of a process.
	Instances func(process string) []runtime.Status
	// Dial connects from inside the instance's network namespace.
	Dial func(ctx context.Context, id runtime.InstanceID, network, address string) (net.Conn, error)
	// Sticky are the cookies that make a client's further requests go to the instance
	// which gave them; empty: JSESSIONID.
	Sticky []string
	// Forget lets go of what destinations of a route replaced, where needed says that
	// no instance needs it. Nil: it is kept.
	Forget func(route string, needed func(d app.Destination) bool) error
	// Services gives the service that the requests of a route go through, by the guid
	// of the route; see Refresh. Nil: there are none.
	Services func() (map[string]Service, error)
	// Egress decides where restricted services may be.
	Egress egress.Policy
	// Roots are the authorities that route services may have; nil: the machine's.
	Roots *x509.CertPool
	// Log appends access lines to the log of an app. It is never called on the path
	// of a request.
	Log    func(app string, es ...logstream.Envelope) error
	Logger *slog.Logger
}

// Stats counts what happened since the router was made.
type Stats struct {
	Requests     uint64 // that were answered, also with an error
	Failed       uint64 // that were answered by the router itself: no route, no instance, none that worked
	Retries      uint64 // attempts at a further instance
	LinesDropped uint64 // access lines that nobody will read
}

// Router keeps the table and serves requests by it.
type Router struct {
	c          Config
	log        *slog.Logger
	lines      *accessLog
	proxy      httputil.ReverseProxy // what all requests have in common
	wake       chan struct{}         // holds one: routes have changed
	forgetWake chan struct{}         // holds one: something may be forgotten
	ports      chan struct{}         // holds one: TCP routes may have changed

	sticky           []string
	idle             time.Duration // how long a connection that no request uses is kept
	rate             inbound.Rate  // at which bodies must arrive
	signer           signer
	serviceTransport *http.Transport   // to route services elsewhere
	restricted       http.RoundTripper // the same, as Config.Egress allows
	unreachableLog   unreachableLog
	adopted          atomic.Bool // all instances of an earlier daemon are known

	table atomic.Pointer[table]

	requests, failed, retries atomic.Uint64

	mu          sync.Mutex // guards the fields below, and every change of table and pools
	pools       map[processKey]*pool
	live        map[runtime.SlotID]*endpoint   // the ready instances
	changed     map[runtime.SlotID]bool        // slots that changed before all were read; nil from then on
	withdrawn   map[runtime.SlotID][]*endpoint // instances that are withdrawn and may still be connected
	failedPorts map[int]error                  // ports of TCP routes that cannot be opened
	openPorts   map[int]bool                   // ports of TCP routes that are open
}

// New makes a Router that knows the routes of this moment. Run keeps it in step.
func New(c Config) (*Router, error) {
	for name, missing := range map[string]bool{
		"Registry": c.Registry == nil, "Instances": c.Instances == nil, "Dial": c.Dial == nil,
		"Log": c.Log == nil, "Logger": c.Logger == nil,
	} {
		if missing {
			return nil, fmt.Errorf("cannot make a router without %s", name)
		}
	}
	r := &Router{
		c:          c,
		log:        c.Logger,
		lines:      newAccessLog(c.Log, c.Logger),
		proxy:      commonProxy(c.Logger),
		wake:       make(chan struct{}, 1),
		forgetWake: make(chan struct{}, 1),
		ports:      make(chan struct{}, 1),

		sticky:           c.Sticky,
		idle:             idleTimeout,
		rate:             inbound.MinimumRate,
		signer:           newSigner(),
		serviceTransport: newServiceTransport(c.Roots),

		pools:       map[processKey]*pool{},
		live:        map[runtime.SlotID]*endpoint{},
		changed:     map[runtime.SlotID]bool{},
		withdrawn:   map[runtime.SlotID][]*endpoint{},
		failedPorts: map[int]error{},
		openPorts:   map[int]bool{},
	}
	r.restricted = r.c.Egress.Transport(r.serviceTransport, serviceDial)
	if len(r.sticky) == 0 {
		r.sticky = []string{sessionCookie}
	}
	// Listening comes first: a route that is put while we read is read again.
	c.Registry.ListenRoutes(func(string) { post(r.wake) })
	if err := r.readRoutes(); err != nil {
		return nil, err
	}
	return r, nil
}

// Changed takes note of a slot's new status. From its return on no new request
// goes to an instance that is not ready. It is quick and never waits for a
// request, the disk or the network.
func (r *Router) Changed(st runtime.Status) {
	r.mu.Lock()
	if r.changed != nil {
		r.changed[st.Slot] = true
	}
	gone := r.place(st)
	over := r.ended(st, gone)
	r.mu.Unlock()
	if len(r.table.Load().former) > 0 {
		post(r.forgetWake)
	}
	if gone != nil {
		gone.withdraw()
	}
	for _, e := range over {
		e.end()
	}
}

// ended are the instances of the slot that are no more, now that it has st. Those that
// are withdrawn only and still connected, such as gone, are remembered. The caller
// holds r.mu.
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

// Stats is a copy of the counts.
func (r *Router) Stats() Stats {
	return Stats{
		Requests:     r.requests.Load(),
		Failed:       r.failed.Load(),
		Retries:      r.retries.Load(),
		LinesDropped: r.lines.dropped.Load(),
	}
}

// Reload reads the routes and their services again, now.
func (r *Router) Reload() error { return r.readRoutes() }

// Refresh reads the routes and their services again, soon.
func (r *Router) Refresh() { post(r.wake) }

// Run keeps the table in step with the routes, asks once for the instances that
// were there before, and writes the access lines, until ctx ends. Requests are
// served before and after by what is known then.
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
			post(r.forgetWake)
		case <-r.forgetWake:
			r.try(ctx, "cannot forget replaced destinations, trying again", r.forget)
		}
	}
}

// retryPause is between two attempts to read what could not be read.
const retryPause = time.Second

// try repeats read until it succeeds or ctx ends. Meanwhile the old table serves.
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

// readRoutes makes a new table of the desired routes.
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

// readInstances asks for every slot once. What a slot said itself is newer.
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

// place makes the pools agree with st and returns the endpoint that is no longer
// to be used. The caller holds r.mu.
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
		r.live[st.Slot] = e
		r.pool(e.process).add(e)
	}
	return old
}

// pool finds or makes the pool of a process. The caller holds r.mu.
func (r *Router) pool(k processKey) *pool {
	p := r.pools[k]
	if p == nil {
		p = &pool{}
		r.pools[k] = p
	}
	return p
}

// closeIdle lets go of the connections that no request uses: they would pin the
// network namespaces of instances that outlive us.
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

// post leaves a mark in a channel that holds one.
func post(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
