package apps

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

// statsHandlers answers requests about the usage of instances.
type statsHandlers struct{ *Handlers }

func (h statsHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "GET /v3/processes/{guid}/stats", Needs: access.Read, Resource: access.Process, Handler: h.getStats, Shape: rest.Returns[v3.Stats](200)},
		{Pattern: "GET /v3/apps/{guid}/processes/{type}/stats", Needs: access.Read, Resource: access.App, Handler: h.getStats, Shape: rest.Returns[v3.Stats](200)},
	}
}

// openFiles is the open-file limit of a process, as VCAP_APPLICATION reports it.
const openFiles = 16384

func (h statsHandlers) getStats(r *http.Request) (any, error) {
	shown, err := h.requestedInstances(r)
	if wait := preferredWait(r.Header.Get("Prefer")); err == nil && wait > 0 {
		defer func() { h.waiting.Add(-1) }()
		if h.waiting.Add(1) <= mostWaiting {
			shown, err = h.awaitSettled(r, wait)
		}
	}
	if err != nil {
		return nil, err
	}
	out := v3.Stats{Resources: []v3.InstanceStats{}}
	for _, in := range shown {
		out.Resources = append(out.Resources, h.instanceStats(r.Context(), len(out.Resources), in))
	}
	return out, nil
}

func (h statsHandlers) requestedInstances(r *http.Request) ([]instanceState, error) {
	p, err := h.partOf(r)
	if err != nil {
		return nil, err
	}
	a, err := h.Platform.Registry.App(p.process.App)
	if err != nil {
		return nil, rest.Missing("App", err)
	}
	return h.shownInstances(a, p), nil
}

// A client that waits for an app would otherwise send a request every few milliseconds,
// while the app needs the processor.
const (
	longestWait  = 5 * time.Second
	waitInterval = 2 * time.Millisecond
	// readInterval is how often the desired state is read again, which takes longer than
	// the states of the instances.
	readInterval = 100 * time.Millisecond
	// mostWaiting is the number of requests that wait at the same time. Others are answered
	// at once, so that clients cannot keep dewd busy.
	mostWaiting = 32
)

// preferredWait returns how long the client prefers to wait for the answer: the seconds in
// a Prefer header (RFC 7240), such as wait=1.
func preferredWait(header string) time.Duration {
	for preference := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(preference), "=")
		if n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 16); err == nil && strings.EqualFold(strings.TrimSpace(name), "wait") {
			return min(time.Duration(n)*time.Second, longestWait)
		}
	}
	return 0
}

// awaitSettled returns the instances as soon as one of them runs, has crashed or has
// details, or after the wait.
func (h statsHandlers) awaitSettled(r *http.Request, wait time.Duration) ([]instanceState, error) {
	p, err := h.partOf(r)
	if err != nil {
		return nil, err
	}
	over, look, read := time.NewTimer(wait), time.NewTicker(waitInterval), time.NewTicker(readInterval)
	defer over.Stop()
	defer look.Stop()
	defer read.Stop()
	for seen := ""; ; {
		if now := h.states(p); now != seen || seen == "" {
			shown, err := h.requestedInstances(r)
			if err != nil || settled(shown) || r.Context().Err() != nil {
				return shown, err
			}
			seen = now
		}
		select {
		case <-look.C:
		case <-read.C:
			seen = ""
		case <-over.C:
			return h.requestedInstances(r)
		case <-r.Context().Done():
			seen = "" // the client is gone
		}
	}
}

// states returns a text that changes with the states of the instances of a process.
func (h statsHandlers) states(p part) string {
	text := "instances"
	for _, st := range h.Platform.Processes.Instances(p.process.GUID) {
		text += " " + string(st.Instance) + string(st.State) + detailsOf(st)
	}
	return text
}

// settled reports whether a client that waits for instances can learn anything.
func settled(all []instanceState) bool {
	return len(all) == 0 || slices.ContainsFunc(all, func(in instanceState) bool {
		return in.status.State == runtime.Running || in.status.State == runtime.Crashed || detailsOf(in.status) != ""
	})
}

// instanceState is a desired instance with the state that clients see.
type instanceState struct {
	process app.Process // its desired state
	place   string      // guid of the process, or of its generation
	index   int         // index within place
	status  runtime.Status
}

// shownInstances returns the desired instances, one for each index. Those of an app
// that is stopped are down, as on Cloud Foundry.
func (h *Handlers) shownInstances(a app.App, p part) []instanceState {
	if a.State != app.Started {
		down := instanceState{process: p.process, status: runtime.Status{State: runtime.Down, Since: a.UpdatedAt}}
		return slices.Repeat([]instanceState{down}, p.instances())
	}
	slots := map[runtime.SlotID]runtime.Status{}
	for _, st := range h.Platform.Processes.Instances(p.process.GUID) {
		slots[st.Slot] = st
	}
	now := time.Now()
	var out []instanceState
	for _, sh := range p.shares {
		place := p.process.GUID
		if len(p.shares) > 1 || p.guid != place {
			place = app.GenerationGUID(place, sh.generation)
		}
		for i := range sh.instances {
			st, there := slots[runtime.SlotID{Process: p.process.GUID, Generation: sh.generation, Index: i}]
			if !there {
				// The slot does not exist yet. An empty list would tell clients that
				// there is nothing to wait for.
				st = runtime.Status{State: runtime.Starting, Since: now}
			}
			out = append(out, instanceState{sh.process, place, i, seenSlot(sh.process, st, now)})
		}
	}
	return out
}

// instancesOf returns a summary of shownInstances. It is never nil.
func (h *Handlers) instancesOf(a app.App, p part) []v3.ProcessInstance {
	out := []v3.ProcessInstance{}
	for i, in := range h.shownInstances(a, p) {
		since := secondsSince(in.status.Since)
		if in.status.State == runtime.Down {
			since = max(since, 1) // clients take 0 for a missing value
		}
		out = append(out, v3.ProcessInstance{Index: i, State: string(in.status.State), Since: since})
	}
	return out
}

func secondsSince(t time.Time) int64 { return max(int64(time.Since(t)/time.Second), 0) }

// seenSlot returns the status of a slot for clients. An instance from before the last
// start or restart does not count for the desired state. Clients that wait for the new
// instance must not see the old one as running or crashed.
func seenSlot(p app.Process, st runtime.Status, now time.Time) runtime.Status {
	if st.Version == "" || p.Keeps(st.Version) {
		return st
	}
	switch st.State {
	case runtime.Running:
		st.State = runtime.Stopping
	case runtime.Crashed, runtime.Down:
		st = runtime.Status{Slot: st.Slot, State: runtime.Starting, Since: now}
	}
	st.Ready = false
	return st
}

func (h statsHandlers) instanceStats(ctx context.Context, index int, in instanceState) v3.InstanceStats {
	const mb = 1 << 20
	p, st := in.process, in.status
	out := v3.InstanceStats{
		Type: p.Type, Index: index, State: string(st.State),
		Uptime:   secondsSince(st.Since),
		MemQuota: int64(p.MemoryMB) * mb, DiskQuota: int64(p.DiskMB) * mb, LogRateLimit: logLimit(p.LogRate), FDsQuota: openFiles,
		InstanceGUID: string(st.Instance), Version: st.Version,
		CrashCount: st.CrashCount, NextStart: st.NextStart, GivenUp: st.GivenUp,
	}
	if details := detailsOf(st); details != "" {
		out.Details = &details
	}
	if st.State != runtime.Running {
		return out
	}
	out.Routable = &st.Ready
	if st.Address.IsValid() {
		out.Host, out.InternalIP = st.Address.String(), st.Address.String()
	}
	for _, port := range st.Ports {
		out.InstancePorts = append(out.InstancePorts, v3.InstancePort{External: port, Internal: port})
	}
	if u, ok := h.Platform.Processes.Usage(ctx, in.place, in.index); ok {
		out.Usage = v3.Usage{Time: time.Now().UTC().Format(time.RFC3339), CPU: u.CPU, Mem: u.Memory, Disk: u.Disk, LogRate: u.LogRate}
		if u.Entitled > 0 {
			share := u.CPU / u.Entitled
			out.Usage.CPUEntitlement = &share
		}
		for _, p := range u.Parts {
			out.Parts = append(out.Parts, v3.Part{Sidecar: p.Sidecar, Mem: p.Memory, MemQuota: p.Limit})
		}
	}
	return out
}

// detailsOf returns why an instance is not running, or that it cannot be checked.
func detailsOf(st runtime.Status) string {
	if st.Details != "" {
		return st.Details
	}
	if st.State != runtime.Running && st.State != runtime.Starting {
		return ""
	}
	if u := st.HealthUnknown; !u.Since.IsZero() {
		return fmt.Sprintf("health unknown since %s: %s", u.Since.UTC().Format(time.RFC3339), u.Reason)
	}
	if u := st.ReadinessUnknown; !u.Since.IsZero() {
		return fmt.Sprintf("readiness unknown since %s: %s", u.Since.UTC().Format(time.RFC3339), u.Reason)
	}
	return ""
}
