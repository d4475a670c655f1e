package apps

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/usage"
	"github.com/dewrun/dew/store"
)

// Usage is what the handlers need of the usage of instances. *usage.Sampler implements
// it.
type Usage interface {
	Now(ctx context.Context) map[runtime.InstanceID]*usage.Usage
	Once(ctx context.Context) map[runtime.InstanceID]*usage.Usage
	History(app string) []usage.History
	Crashes(process string) (usage.Crashes, error)
}

// Live has the dependencies of requests about the usage of running instances.
type Live struct {
	Usage Usage
	// Interval is the time between two events of a stream; 0 is one second.
	Interval time.Duration
	// Fail sends the response for an error.
	Fail func(w http.ResponseWriter, r *http.Request, err error)
}

// liveHandlers answers requests about the current state and usage of apps.
type liveHandlers struct{ *Handlers }

func (h liveHandlers) endpoints() []rest.Endpoint {
	filters := []string{"app_guids", "space_guids", "organization_guids"}
	return []rest.Endpoint{
		{Pattern: "GET /dew/v1/live", Needs: access.Authenticated, Handler: h.getLive, Shape: rest.Returns[v3.LiveApps](200).Query(filters...)},
		{
			Pattern: "GET /dew/v1/live/stream", Needs: access.Authenticated,
			Raw: http.HandlerFunc(h.streamLive), Shape: rest.ReturnsBytes("text/event-stream").Query(append(filters, "follow")...),
		},
		{Pattern: "GET /dew/v1/apps/{guid}/usage", Needs: access.Read, Resource: access.App, Handler: h.getUsage, Shape: rest.Returns[v3.UsageHistory](200)},
	}
}

func (h liveHandlers) getLive(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	return h.live(r.Context(), q, perms)
}

// getUsage returns the samples of the last hour.
func (h liveHandlers) getUsage(r *http.Request) (any, error) {
	a, err := h.Present.App(r)
	if err != nil {
		return nil, err
	}
	out := v3.UsageHistory{Interval: int(usage.Interval / time.Second), Resources: []v3.UsageSeries{}}
	if h.Live.Usage == nil {
		return out, nil
	}
	for _, s := range h.Live.Usage.History(a.GUID) {
		series := v3.UsageSeries{
			Type: s.Type, Index: s.Slot.Index, Instance: string(s.Instance),
			Times: s.Times, Requests: s.Requests, LatencyMS: s.LatencyMS, LogRate: s.LogRate, Processes: []v3.PartSeries{},
		}
		for _, p := range s.Parts {
			series.Processes = append(series.Processes, v3.PartSeries{Sidecar: p.Sidecar, MemQuota: p.Limit, Mem: p.Memory, CPU: p.CPU})
		}
		out.Resources = append(out.Resources, series)
	}
	return out, nil
}

// live returns the apps that perms and the query allow.
func (h liveHandlers) live(ctx context.Context, q rest.Query, perms access.Permissions) (v3.LiveApps, error) {
	out := v3.LiveApps{Time: time.Now().UTC(), Resources: []v3.LiveApp{}}
	d, err := h.readLive(q, perms)
	if err != nil {
		return out, err
	}
	if h.Live.Usage != nil {
		d.usage = h.Live.Usage.Now(ctx)
	}
	for _, a := range d.apps {
		shown, err := h.liveApp(a, d)
		if err != nil {
			return out, err
		}
		out.Resources = append(out.Resources, shown)
	}
	slices.SortFunc(out.Resources, func(a, b v3.LiveApp) int {
		return cmp.Or(strings.Compare(a.Space.OrgName, b.Space.OrgName), strings.Compare(a.Space.Name, b.Space.Name),
			strings.Compare(a.Name, b.Name), strings.Compare(a.GUID, b.GUID))
	})
	return out, nil
}

// liveData is what a response needs of the store, read at once.
type liveData struct {
	apps      []app.App
	spaces    map[string]v3.LiveSpace
	processes map[string][]app.Process // by app
	routes    map[string][]string      // URLs by app
	moving    map[string]app.Deployment
	usage     map[runtime.InstanceID]*usage.Usage
}

// readLive reads each kind of resource once, or only those of the apps that the query
// names.
func (h liveHandlers) readLive(q rest.Query, perms access.Permissions) (liveData, error) {
	d := liveData{spaces: map[string]v3.LiveSpace{}, processes: map[string][]app.Process{}, routes: map[string][]string{}}
	reg := h.Platform.Registry
	orgs, oerr := reg.Orgs()
	spaces, serr := reg.Spaces()
	domains, derr := reg.Domains()
	moving, merr := reg.ActiveDeployments()
	apps, processes, routes, err := h.readApps(q)
	if err := errors.Join(oerr, serr, derr, merr, err); err != nil {
		return d, err
	}
	d.moving = moving
	orgNames := make(map[string]string, len(orgs))
	for _, o := range orgs {
		orgNames[o.GUID] = o.Name
	}
	for _, sp := range spaces {
		if perms.SeesSpace(sp.GUID) && q.Matches("space_guids", sp.GUID) && q.Matches("organization_guids", sp.Org) {
			d.spaces[sp.GUID] = v3.LiveSpace{GUID: sp.GUID, Name: sp.Name, OrgGUID: sp.Org, OrgName: orgNames[sp.Org]}
		}
	}
	d.apps = slices.DeleteFunc(apps, func(a app.App) bool { _, seen := d.spaces[a.Space]; return !seen })
	for _, p := range processes {
		d.processes[p.App] = append(d.processes[p.App], p)
	}
	domainNames := make(map[string]string, len(domains))
	for _, dm := range domains {
		domainNames[dm.GUID] = dm.Name
	}
	for _, rt := range routes {
		url := rt.URL(domainNames[rt.Domain])
		for _, to := range rt.Destinations {
			if !slices.Contains(d.routes[to.App], url) {
				d.routes[to.App] = append(d.routes[to.App], url)
			}
		}
	}
	return d, nil
}

// readApps reads the apps with their processes and routes: all of them, or those that
// the query names.
func (h liveHandlers) readApps(q rest.Query) (apps []app.App, processes []app.Process, routes []app.Route, err error) {
	reg := h.Platform.Registry
	guids, some := q.Filters["app_guids"]
	if !some {
		return h.cache.read(h.Platform.DB, reg)
	}
	for _, guid := range slices.Compact(slices.Sorted(slices.Values(guids))) {
		a, err := reg.App(guid)
		if errors.Is(err, app.ErrNotFound) {
			continue
		}
		ps, perr := reg.Processes(guid)
		rts, rerr := reg.RoutesOf(guid)
		if err := errors.Join(err, perr, rerr); err != nil {
			return nil, nil, nil, err
		}
		apps, processes, routes = append(apps, a), append(processes, ps...), append(routes, rts...)
	}
	return apps, processes, routes, nil
}

// liveCache has all apps, processes and routes as long as nothing in the store changes.
// Clients read live values every second, and decoding hundreds of values takes longer
// than everything else.
type liveCache struct {
	mu        sync.Mutex // guards the fields below
	version   int
	apps      []app.App
	processes []app.Process
	routes    []app.Route
}

// read returns the values. The caller can change the slice of apps only.
func (c *liveCache) read(db *store.DB, reg *registry.Registry) ([]app.App, []app.Process, []app.Route, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	version, err := db.Version() // before the values: a later change is noticed next time
	if err != nil {
		return nil, nil, nil, err
	}
	if version != c.version {
		apps, aerr := reg.Apps()
		processes, perr := reg.AllProcesses()
		routes, rerr := reg.Routes()
		if err := errors.Join(aerr, perr, rerr); err != nil {
			return nil, nil, nil, err
		}
		c.version, c.apps, c.processes, c.routes = version, apps, processes, routes
	}
	return slices.Clone(c.apps), c.processes, c.routes, nil
}

func (h liveHandlers) liveApp(a app.App, d liveData) (v3.LiveApp, error) {
	out := v3.LiveApp{
		GUID: a.GUID, Name: a.Name, State: string(a.State), Space: d.spaces[a.Space],
		Routes: d.routes[a.GUID], Instances: []v3.LiveInstance{},
	}
	slices.Sort(out.Routes)
	for _, p := range d.processes[a.GUID] {
		var crashed usage.Crashes
		if h.Live.Usage != nil {
			var err error
			if crashed, err = h.Live.Usage.Crashes(p.GUID); err != nil {
				return out, err
			}
		}
		if c := crashed.Newest; c != nil && (out.LastCrash == nil || c.At.After(out.LastCrash.Time)) {
			out.LastCrash = &v3.LiveCrash{Time: c.At, Type: c.Type, Index: c.Slot.Index, Class: string(c.Class), Sentence: c.Sentence}
		}
		parts, err := h.partsOf(p, d.moving[a.GUID])
		if err != nil {
			return out, err
		}
		for _, pt := range parts {
			for i, in := range h.shownInstances(a, pt) {
				if a.State != app.Started {
					in.index = i
				}
				if in.status.Slot.Process == "" { // it has no slot now
					in.status.Slot = runtime.SlotID{Process: p.GUID, Generation: p.Generation, Index: in.index}
				}
				out.Instances = append(out.Instances, liveInstance(in, crashed.Counts, d.usage[in.status.Instance]))
			}
		}
	}
	slices.SortStableFunc(out.Instances, func(a, b v3.LiveInstance) int {
		return cmp.Or(strings.Compare(a.Type, b.Type), cmp.Compare(a.Index, b.Index))
	})
	return out, nil
}

// liveInstance shows an instance. The usage can be nil.
func liveInstance(in instanceState, crashed map[runtime.SlotID]int, u *usage.Usage) v3.LiveInstance {
	const mb = 1 << 20
	p, st := in.process, in.status
	out := v3.LiveInstance{
		Type: p.Type, Index: in.index, State: string(st.State), Ready: st.Ready, Since: st.Since.UTC(), Details: detailsOf(st),
		Restarts: crashed[st.Slot], NextStart: st.NextStart, GivenUp: st.GivenUp,
		MemQuota: int64(p.MemoryMB) * mb, DiskQuota: int64(p.DiskMB) * mb,
	}
	if u == nil || st.State != runtime.Running {
		return out
	}
	out.CPU, out.Mem, out.Disk, out.LogRate = short(u.CPU), u.Memory, u.Disk, u.LogRate
	out.Requests, out.LatencyMS = short(u.Requests), short(float64(u.Latency)/float64(time.Millisecond))
	for _, p := range u.Parts {
		out.Processes = append(out.Processes, v3.LivePart{
			Sidecar: p.Sidecar, CPU: short(p.CPU), Mem: p.Memory, MemQuota: p.Limit, Cache: p.Cache,
			Peak: p.Peak, PeakEver: p.PeakEver, Throttled: short(p.Throttled), PIDs: p.PIDs,
		})
	}
	return out
}

// short rounds a number to the digits that clients show.
func short(v float64) float64 { return math.Round(v*1000) / 1000 }

// The times of a stream of live values.
const (
	streamInterval  = time.Second      // between two events
	streamKeepAlive = 15 * time.Second // between two comments without an event
)

// streamLive sends the apps as server-sent events: at once, and then whenever they have
// changed, at most once a second. With follow=false it sends one event. An event "change"
// says that something stored has changed, so that clients need not poll other resources.
// The stream ends when the client disconnects or can no longer log in.
func (h liveHandlers) streamLive(w http.ResponseWriter, r *http.Request) {
	q, err := rest.ReadQuery(r)
	follow := true
	if err == nil {
		follow, err = readFollow(q)
	}
	if err != nil {
		h.Live.Fail(w, r, err)
		return
	}
	s := liveStream{w: w, interval: h.Live.Interval, flush: http.NewResponseController(w).Flush, version: h.Platform.DB.Version}
	if s.seen, err = s.version(); err != nil {
		h.Live.Fail(w, r, err)
		return
	}
	next := func() (v3.LiveApps, error) {
		perms, err := h.currentPermissions(r.Context())
		if err != nil {
			return v3.LiveApps{}, err
		}
		return h.live(r.Context(), q, perms)
	}
	first, err := next()
	if err != nil {
		h.Live.Fail(w, r, err)
		return
	}
	s.begin()
	if _, err = s.send(first); err == nil && follow {
		err = s.run(r.Context(), next)
	}
	if err != nil && r.Context().Err() == nil {
		h.Platform.Log.Debug("a stream of live values ended", "request", rest.RequestID(r.Context()), "err", err)
	}
}

// readFollow returns whether the stream continues after the first event.
func readFollow(q rest.Query) (bool, error) {
	values, given := q.Filters["follow"]
	if !given {
		return true, nil
	}
	if len(values) != 1 || values[0] != "true" && values[0] != "false" {
		return false, rest.BadQuery("follow must be true or false")
	}
	return values[0] == "true", nil
}

// currentPermissions reads the permissions of the caller again, because a stream can be
// open for days.
func (h liveHandlers) currentPermissions(ctx context.Context) (access.Permissions, error) {
	who, err := h.Platform.Auth.Current(access.Principal(ctx))
	if err != nil {
		return access.Permissions{}, err
	}
	if !access.HasScope(who, http.MethodGet) {
		return access.Permissions{}, access.ErrNotAuthorized
	}
	return h.Access.PermissionsOf(who)
}

// liveStream is an open stream of live values.
type liveStream struct {
	w        http.ResponseWriter
	flush    func() error
	interval time.Duration // between two events; 0 is streamInterval
	sent     []byte        // JSON of the last event, without its time

	version func() (int, error) // of the store
	seen    int                 // the version that the client knows
}

func (s *liveStream) begin() {
	header := s.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no")
	header.Set("X-Content-Type-Options", "nosniff")
	s.w.WriteHeader(http.StatusOK)
}

// run sends each changed value of next, until ctx is done or the client has
// disconnected.
func (s *liveStream) run(ctx context.Context, next func() (v3.LiveApps, error)) error {
	tick := time.NewTicker(cmp.Or(s.interval, streamInterval))
	defer tick.Stop()
	written := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		sent, err := s.step(next)
		if err == nil && !sent && time.Since(written) >= streamKeepAlive {
			sent, err = true, s.write([]byte(": keep-alive\n\n"))
		}
		if err != nil {
			return err
		}
		if sent {
			written = time.Now()
		}
	}
}

// step sends the events of one moment: the apps first, because clients use them when
// they read other resources after a change.
func (s *liveStream) step(next func() (v3.LiveApps, error)) (bool, error) {
	version, err := s.version()
	if err != nil {
		return false, err
	}
	apps, err := next()
	if err != nil {
		return false, err
	}
	sent, err := s.send(apps)
	if err != nil || version == s.seen {
		return sent, err
	}
	s.seen = version
	// It has no data about the change: the caller may not be allowed to see it.
	return true, s.write([]byte("event: change\ndata: {}\n\n"))
}

// send sends an event, unless only the time has changed.
func (s *liveStream) send(apps v3.LiveApps) (bool, error) {
	resources, err := json.Marshal(apps.Resources)
	if err != nil {
		return false, err
	}
	if bytes.Equal(resources, s.sent) {
		return false, nil
	}
	s.sent = resources
	data, err := json.Marshal(struct {
		Time      time.Time       `json:"time"`
		Resources json.RawMessage `json:"resources"`
	}{apps.Time, resources})
	if err != nil {
		return false, err
	}
	return true, s.write(slices.Concat([]byte("event: live\ndata: "), data, []byte("\n\n")))
}

func (s *liveStream) write(b []byte) error {
	if _, err := s.w.Write(b); err != nil {
		return err
	}
	return s.flush()
}
