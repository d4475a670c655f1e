package daemon

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/runtime"
)

// statusHandlers answers requests about the state of the daemon, its tokens and crashes.
type statusHandlers struct{ *Handlers }

func (h statusHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "GET /dew/v1/status", Needs: access.Administer, Handler: h.status, Shape: rest.Returns[v3.Status](200).Query("notices")},
		{Pattern: "GET /dew/v1/credentials", Needs: access.Administer, Local: true, Handler: h.credentials, Shape: rest.Returns[v3.Credentials](200)},
		{Pattern: "POST /dew/v1/token", Needs: access.Administer, Local: true, Handler: h.createToken, Shape: rest.Returns[v3.LocalToken](201)},
		{Pattern: "POST /dew/v1/shutdown", Needs: access.Administer, Handler: h.shutdown, Shape: rest.Empty(202).Reads(rest.JSON[v3.Shutdown]())},
		{
			Pattern: "GET /dew/v1/apps/{guid}/crashes", Needs: access.Read, Resource: access.App,
			Handler: h.listCrashes, Shape: rest.Returns[v3.Crashes](200).Paginated().OrderedBy(rest.ByTime...),
		},
		{
			Pattern: "GET /v3/apps/{guid}/crashes", Needs: access.Read, Resource: access.App,
			Handler: h.listCrashes, Shape: rest.Returns[v3.Crashes](200).Paginated().OrderedBy(rest.ByTime...),
		},
	}
}

// status returns the status of this daemon.
func (h statusHandlers) status(r *http.Request) (any, error) {
	st := h.About
	apps, err := h.Platform.Registry.Apps()
	if err != nil {
		return nil, err
	}
	if h.SetAside != nil {
		st.SetAside = h.SetAside()
	}
	if h.RefusedURLs != nil {
		if st.RefusedURLs, err = h.RefusedURLs(); err != nil {
			return nil, err
		}
	}
	if st.OverQuota, err = h.Platform.OverQuota(); err != nil {
		return nil, err
	}
	if h.Warnings != nil {
		if st.Warnings, err = h.Warnings(); err != nil {
			return nil, err
		}
	}
	if st.Mails, err = h.Queue.status(); err != nil {
		return nil, err
	}
	if err := h.policies(&st, r.URL.Query().Get("notices") == "true"); err != nil {
		return nil, err
	}
	st.Apps = len(apps)
	for _, a := range apps {
		if a.State != app.Started {
			continue
		}
		st.Started++
		ps, err := h.Platform.Registry.Processes(a.GUID)
		if err != nil {
			return nil, err
		}
		for _, p := range ps {
			st.Instances += p.Instances
			for _, slot := range h.Platform.Processes.Instances(p.GUID) {
				switch slot.State {
				case runtime.Running:
					st.Running++
				case runtime.Crashed:
					st.Crashed++
				}
			}
		}
	}
	return st, nil
}

// policyNotice is what dew status says once about a root of an older dewd.
const policyNotice = "Network policies and security groups are not enforced, because an older dewd made this root. " +
	"Enforce them: start dewd with --network-policies on (dew doctor lists the stored security groups first)"

// policies adds the enforcement of network policies to the status. While they are off,
// it names the security groups that would take effect.
func (h statusHandlers) policies(st *v3.Status, notices bool) error {
	if st.NetworkPolicies != "off" {
		return nil
	}
	groups, err := h.Platform.Registry.SecurityGroups()
	if err != nil {
		return err
	}
	for _, g := range groups {
		st.InactiveGroups = append(st.InactiveGroups, g.Name)
	}
	if !notices || h.PolicyNotice == nil {
		return nil
	}
	first, err := h.PolicyNotice()
	if first {
		st.Notices = append(st.Notices, policyNotice)
	}
	return err
}

// credentials shows users of the socket how other programs log in.
func (h statusHandlers) credentials(*http.Request) (any, error) {
	password, err := h.Platform.Auth.FirstPassword()
	if err != nil && !errors.Is(err, auth.ErrNotFound) {
		return nil, err
	}
	return v3.Credentials{API: h.Links.Public.String(), Username: auth.AdminName, Password: password}, nil
}

// createToken gives users of the socket a token of the administrator. This adds no
// permission, because they could also set another password.
func (h statusHandlers) createToken(r *http.Request) (any, error) {
	token, err := h.Platform.Auth.UserToken(auth.AdminName)
	if errors.Is(err, auth.ErrNotFound) {
		return nil, rest.Unprocessable("Cannot create a token: user '%s' does not exist. Log in as another user.", auth.AdminName)
	}
	if err != nil {
		return nil, err
	}
	h.Platform.Log.Info("created a token of the administrator", "to", access.Principal(r.Context()).Name)
	return rest.Answer{Status: http.StatusCreated, Body: v3.LocalToken{Token: token, Type: "bearer"}}, nil
}

func (h statusHandlers) listCrashes(r *http.Request) (any, error) {
	a, err := h.Present.App(r)
	if err != nil {
		return nil, err
	}
	q, err := readCrashQuery(r)
	if err != nil {
		return nil, err
	}
	records, err := h.Platform.ExitsOf(a.GUID)
	if err != nil {
		return nil, err
	}
	kept, order := h.keptInstances(), runtime.CrashOrder(records)
	page := rest.List(h.Links, r, q, records, rest.View[runtime.ExitRecord, v3.Crash]{
		Key: func(record runtime.ExitRecord) rest.Key {
			at := order[record.ID()]
			return rest.Key{Created: at, Updated: at, GUID: fmt.Sprintf("%020d", record.Number)}
		},
		Present: func(record runtime.ExitRecord) v3.Crash {
			c := presentCrash(record, a.Name)
			c.Kept = kept[record.Instance]
			return c
		},
	})
	return v3.Crashes{Pagination: page.Pagination, Crashes: page.Resources}, nil
}

// readCrashQuery reads the parameters of a list of crashes. By default the newest come
// first and a page has the maximum size. Clients that do not support pages then usually
// get all records of an app.
func readCrashQuery(r *http.Request) (rest.Query, error) {
	q, err := rest.ReadQuery(r)
	given := r.URL.Query()
	if !given.Has("order_by") {
		q.OrderBy, q.Descending = "created_at", true
	}
	if !given.Has("per_page") {
		q.PerPage = rest.MaxPerPage
	}
	return q, err
}

// keptInstances returns the crashed instances whose files can still be opened.
func (h statusHandlers) keptInstances() map[runtime.InstanceID]bool {
	out := map[runtime.InstanceID]bool{}
	if h.Crashed == nil {
		return out
	}
	for _, files := range h.Crashed() {
		out[files.Instance] = true
	}
	return out
}

func presentCrash(r runtime.ExitRecord, app string) v3.Crash {
	out := v3.Crash{
		App: r.App, Process: r.Slot.Process, Type: r.Type, Index: r.Slot.Index, Instance: string(r.Instance),
		Cell: r.Cell, Version: r.Version, Droplet: r.Droplet, Reason: r.Reason, Description: r.Description,
		Phase: string(r.Phase), First: presentExit(r.First), ProbableSignal: r.ProbableSignal, Order: string(r.Order),
		Followers: []v3.CrashExit{}, Lines: []v3.CrashLines{},
		StartedAt: r.StartedAt, Stack: r.Stack, Port: r.Port, MemoryLimit: r.State.Memory.Limit, MemoryPeak: r.State.Memory.Peak,
		Listening: []v3.CrashPort{}, Output: []v3.CrashOutput{},
		Count: r.CrashCount, CrashedAt: r.CrashedAt, NextStart: r.NextStart, GivenUp: r.GivenUp, Complete: r.Complete,
	}
	sources := map[string]string{r.First.Exec: r.First.Source}
	for _, e := range r.Followers {
		out.Followers = append(out.Followers, presentExit(e))
		sources[e.Exec] = e.Source
	}
	for _, l := range r.Lines {
		out.Lines = append(out.Lines, v3.CrashLines{Source: sources[l.Exec], From: l.From, To: l.To})
	}
	for _, l := range r.State.Listening {
		out.Listening = append(out.Listening, v3.CrashPort{Source: sources[l.Exec], Port: l.Port, Loopback: l.Loopback})
	}
	for _, o := range r.Output {
		out.Output = append(out.Output, v3.CrashOutput{Source: sources[o.Exec], Stdout: append([]string{}, o.Stdout...), Stderr: append([]string{}, o.Stderr...)})
	}
	v := r.Verdict(app)
	out.Verdict = v3.Verdict{Class: string(v.Class), Sentence: v.Sentence, Evidence: append([]string{}, v.Evidence...), Advice: v.Advice}
	return out
}

func presentExit(e runtime.Exit) v3.CrashExit {
	out := v3.CrashExit{
		Source: e.Source, Sidecar: e.Name, Code: e.Code, OutOfMemory: e.OOM, Cause: string(e.Cause), Detail: e.Detail,
		At: e.At, MemoryLimit: e.Memory.Limit, MemoryPeak: e.Memory.Peak,
	}
	if e.Signal != nil {
		out.SentBy, out.Sender = e.Signal.User, e.Signal.SenderName()
	}
	if u := e.Usage; u != nil {
		out.Usage = &v3.CrashUsage{
			CPUSeconds: u.CPU.Seconds(), ThrottledSeconds: u.Throttled.Seconds(), MeasuredAt: u.MeasuredAt,
			Anon: u.Anon, File: u.File, Kernel: u.Kernel, PIDs: u.PIDs, OpenFiles: u.Files, OOMKills: u.OOMKills,
		}
	}
	if c := e.Check; c != nil {
		out.Check = &v3.CrashCheck{Type: c.Type, Endpoint: c.Endpoint, Status: c.Status}
	}
	return out
}

func (h statusHandlers) shutdown(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.Shutdown](r)
	if err != nil {
		return nil, err
	}
	if h.Shutdown == nil {
		return nil, rest.Unprocessable("dewd cannot be stopped with a request. Stop its process.")
	}
	h.Shutdown(body.Apps)
	return rest.Answer{Status: http.StatusAccepted}, nil
}
