package supervisor

import (
	"errors"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/runtime"
)

// routable handles a changed result of the readiness check.
func (s *Slot) routable(in *Instance, r readiness) {
	if in.leaving {
		return
	}
	s.publish(func(st *runtime.Status) { st.Ready = r.ready })
	if in.ready.Type == app.CheckNone {
		return
	}
	if r.ready {
		s.logCell(in.spec, logstream.Out, "Container passed the readiness health check. Container marked ready and added to route pool.")
	} else {
		s.log.Info("instance not ready", "instance", in.spec.Instance, "err", r.err)
		s.logCell(in.spec, logstream.Err, "Container failed the readiness health check. Container marked not ready and removed from route pool: "+r.err.Error())
	}
	s.recordReadiness(in, runtime.Readiness{
		Instance: in.spec.Instance, Index: s.id.Index, Cell: in.spec.Cell, Ready: r.ready, Version: in.spec.Version,
	})
}

// recordReadiness writes the change to the audit events and to the app's log.
func (s *Slot) recordReadiness(in *Instance, r runtime.Readiness) {
	events := s.sup.c.Events
	if events == nil {
		return
	}
	a, org, err := appAndOrg(s.sup.c.Registry, in.spec.App)
	if err != nil {
		s.log.Error("cannot record a change of readiness", "instance", r.Instance, "ready", r.Ready, "err", err)
		return
	}
	err = events.Record(app.Event{
		Type: r.Event(), Actor: app.Actor{GUID: s.id.Process, Type: "process", Name: in.spec.Type},
		Target: app.Target{GUID: a.GUID, Type: "app", Name: a.Name}, Space: a.Space, Org: org, CreatedAt: time.Now().UTC().Round(0),
		Data: map[string]any{
			"instance": string(r.Instance), "index": r.Index, "cell_id": r.Cell, "ready": r.Ready, "version": r.Version,
			"process_guid": s.id.Process, "process_type": in.spec.Type,
		},
	})
	if err != nil {
		s.log.Error("cannot store the event of a change of readiness", "instance", r.Instance, "err", err)
	}
	s.append(a.GUID, logstream.Envelope{Source: logstream.Source{Type: runtime.SourceAPI}, Stream: logstream.Out, Text: []byte(r.Line(s.id.Process))})
}

// appAndOrg reads an app and its org.
func appAndOrg(r *registry.Registry, guid string) (a app.App, org string, err error) {
	if a, err = r.App(guid); err != nil {
		return a, "", err
	}
	sp, err := r.Space(a.Space)
	if err != nil && !errors.Is(err, app.ErrNotFound) {
		return a, "", err
	}
	return a, sp.Org, nil
}
