package api

import (
	"context"
	"net/http"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

// openFiles is how many files a process may have open, as VCAP_APPLICATION says.
const openFiles = 16384

func (s *Server) getStats(r *http.Request) (any, error) {
	p, err := s.processOf(r)
	if err != nil {
		return nil, err
	}
	a, err := s.c.Registry.App(p.App)
	if err != nil {
		return nil, missing("App", err)
	}
	out := v3.Stats{Resources: []v3.InstanceStats{}}
	for i, st := range s.shownInstances(a, p) {
		out.Resources = append(out.Resources, s.instanceStats(r.Context(), p, i, st))
	}
	return out, nil
}

// shownInstances are the instances that are wished for, one each by index. An app
// that is stopped has none.
func (s *Server) shownInstances(a app.App, p app.Process) []runtime.Status {
	if a.State != app.Started {
		return nil
	}
	slots := map[int]runtime.Status{}
	for _, st := range s.c.Processes.Instances(p.GUID) {
		if st.Slot.Generation == p.Generation {
			slots[st.Slot.Index] = st
		}
	}
	now := time.Now()
	out := make([]runtime.Status, p.Instances)
	for i := range out {
		st, there := slots[i]
		if !there {
			// The wish is younger than the slot. An empty list would mean to clients
			// that there is nothing to wait for.
			st = runtime.Status{State: runtime.Starting, Since: now}
		}
		out[i] = seenSlot(p, st, now)
	}
	return out
}

// instancesOf tells the same in short. It is never nil.
func (s *Server) instancesOf(a app.App, p app.Process) []v3.ProcessInstance {
	out := []v3.ProcessInstance{}
	for i, st := range s.shownInstances(a, p) {
		out = append(out, v3.ProcessInstance{Index: i, State: string(st.State), Since: secondsSince(st.Since)})
	}
	return out
}

func secondsSince(t time.Time) int64 { return max(int64(time.Since(t)/time.Second), 0) }

// seenSlot is what clients see of a slot. What an instance of before the last start
// or restart does says nothing about the wish: clients that wait for the new one
// must neither take the old one for it, nor its crash.
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

func (s *Server) instanceStats(ctx context.Context, p app.Process, index int, st runtime.Status) v3.InstanceStats {
	const mb = 1 << 20
	out := v3.InstanceStats{
		Type: p.Type, Index: index, State: string(st.State),
		Uptime:   secondsSince(st.Since),
		MemQuota: int64(p.MemoryMB) * mb, DiskQuota: int64(p.DiskMB) * mb, LogRateLimit: logLimit(p.LogRate), FDsQuota: openFiles,
		InstanceGUID: string(st.Instance), Version: st.Version,
		CrashCount: st.CrashCount, NextStart: st.NextStart, GivenUp: st.GivenUp,
	}
	if st.Details != "" && st.State != runtime.Running {
		out.Details = &st.Details
	}
	if st.State != runtime.Running {
		return out
	}
	out.Routable = &st.Ready
	if st.Address.IsValid() {
		out.Host = st.Address.String()
	}
	for _, port := range st.Ports {
		out.InstancePorts = append(out.InstancePorts, v3.InstancePort{External: port, Internal: port})
	}
	if u, ok := s.c.Processes.Usage(ctx, p.GUID, index); ok {
		out.Usage = v3.Usage{Time: time.Now().UTC().Format(time.RFC3339), CPU: u.CPU, Mem: u.Memory, Disk: u.Disk}
	}
	return out
}
