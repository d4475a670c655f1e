package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/dewrun/dew/runtime/kubernetes/link"
	"github.com/dewrun/dew/runtime/kubernetes/wrapper"
)

func (a *Agent) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(link.PathAttach, a.handleAttach)
	mux.HandleFunc(link.PathReady, a.handleReady)
	mux.HandleFunc(link.PathStart, a.handleStart)
	mux.HandleFunc(link.PathSignal, a.handleSignal)
	mux.HandleFunc(link.PathUsage, a.handleUsage)
	mux.HandleFunc(link.PathTree, a.pass)
	mux.HandleFunc(link.PathFiles, a.pass)
	mux.HandleFunc(link.PathPack, a.pass)
	mux.HandleFunc(link.PathSession, a.pass)
	mux.HandleFunc(link.PathDial, handleDial)
	mux.HandleFunc(link.PathQuit, a.handleQuit)
	mux.HandleFunc(link.PathLost, a.handleLost)
	return mux
}

// fail answers with an error unless err is nil.
func fail(w http.ResponseWriter, err error) {
	if err != nil {
		link.Fail(w, http.StatusConflict, err)
	}
}

// wrapperOf waits until the wrapper of a process is connected.
func (a *Agent) wrapperOf(ctx context.Context, exec string) (*link.Client, error) {
	i := slices.IndexFunc(a.procs, func(p *proc) bool { return p.exec == exec })
	if i < 0 {
		return nil, fmt.Errorf("the Pod has no process %q", exec)
	}
	p := a.procs[i]
	stop := context.AfterFunc(ctx, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.changed.Broadcast()
	})
	defer stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	for p.client == nil {
		if p.finished != nil {
			return nil, fmt.Errorf("process %s has exited", exec)
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("the wrapper of process %s is not connected", exec)
		}
		a.changed.Wait()
	}
	return p.client, nil
}

// handleReady answers when every wrapper is connected.
func (a *Agent) handleReady(w http.ResponseWriter, r *http.Request) {
	for _, p := range a.procs {
		if _, err := a.wrapperOf(r.Context(), p.exec); err != nil {
			fail(w, err)
			return
		}
	}
}

// handleStart starts all processes at the same time. If one cannot be started, the
// others are killed with the Pod.
func (a *Agent) handleStart(w http.ResponseWriter, r *http.Request) {
	var s link.Start
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
		link.Fail(w, http.StatusBadRequest, err)
		return
	}
	errs := make([]error, len(s.Processes))
	var work sync.WaitGroup
	for i, p := range s.Processes {
		work.Go(func() {
			one := wrapper.Start{Process: p}
			if i == 0 {
				one.Files, one.FilesDir = s.Files, s.FilesDir
			}
			c, err := a.wrapperOf(r.Context(), p.Exec)
			if err == nil {
				err = c.Call(r.Context(), link.PathStart, one, nil)
			}
			errs[i] = err
		})
	}
	work.Wait()
	for i, err := range errs {
		if err != nil {
			w.Header().Set(link.ExecHeader, s.Processes[i].Exec)
			fail(w, err)
			return
		}
	}
}

// handleSignal sends a signal to the processes that still run.
func (a *Agent) handleSignal(w http.ResponseWriter, r *http.Request) {
	var s link.Signal
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
		link.Fail(w, http.StatusBadRequest, err)
		return
	}
	fail(w, a.each(func(p *proc, c *link.Client) error {
		if !slices.Contains(s.Execs, p.exec) {
			return nil
		}
		return c.Call(r.Context(), link.PathSignal, s, nil)
	}))
}

// each calls a function for every process with a connected wrapper, in parallel.
func (a *Agent) each(call func(*proc, *link.Client) error) error {
	errs := make([]error, len(a.procs))
	var work sync.WaitGroup
	for i, p := range a.procs {
		a.mu.Lock()
		c := p.client
		a.mu.Unlock()
		if c != nil {
			work.Go(func() { errs[i] = call(p, c) })
		}
	}
	work.Wait()
	return errors.Join(errs...)
}

func (a *Agent) handleUsage(w http.ResponseWriter, r *http.Request) {
	out := make([]link.Usage, len(a.procs))
	a.mu.Lock()
	for i, p := range a.procs {
		out[i].Exec = p.exec
		for _, x := range a.exits {
			if x.Exec == p.exec {
				out[i] = x.Usage
			}
		}
	}
	a.mu.Unlock()
	err := a.each(func(p *proc, c *link.Client) error {
		path := link.PathUsage + "?" + r.URL.RawQuery
		return c.Call(r.Context(), path, nil, &out[p.index])
	})
	if err != nil {
		fail(w, err)
		return
	}
	_ = json.NewEncoder(w).Encode(out) // dewd finds out that the answer is missing
}

// pass sends a request on to the wrapper that the query names, and its answer back.
func (a *Agent) pass(w http.ResponseWriter, r *http.Request) {
	c, err := a.wrapperOf(r.Context(), r.URL.Query().Get("exec"))
	if err != nil {
		link.Fail(w, http.StatusNotFound, err)
		return
	}
	answer, err := c.Relay(r.Context(), r.URL.Path+"?"+r.URL.RawQuery, r.Body)
	if err != nil {
		fail(w, err)
		return
	}
	defer answer.Close()
	_, out := link.Answer(w, r)
	if _, err := io.Copy(out, answer); err != nil {
		panic(http.ErrAbortHandler) // the other side must not take the answer for complete
	}
}

// dialTimeout is how long a connection inside the Pod can take.
const dialTimeout = 30 * time.Second

// handleDial opens a connection in the network of the Pod.
func handleDial(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	ctx, cancel := context.WithTimeout(r.Context(), dialTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, q.Get("network"), q.Get("address"))
	if err != nil {
		link.Fail(w, http.StatusBadGateway, err)
		return
	}
	defer conn.Close()
	in, out := link.Answer(w, r)
	stop := context.AfterFunc(r.Context(), func() { _ = conn.Close() })
	defer stop()
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		go func() { _, _ = io.Copy(conn, in); _ = conn.Close() }()
		_, _ = io.Copy(out, conn)
		return
	}
	link.Join(in, out, tcp)
}

// handleQuit ends all processes and the wrappers. It answers when all have ended.
func (a *Agent) handleQuit(w http.ResponseWriter, r *http.Request) {
	err := a.each(func(p *proc, c *link.Client) error {
		if err := c.Call(r.Context(), link.PathQuit, nil, nil); err != nil {
			select {
			case <-c.Done(): // it ended before it could answer
				return nil
			default:
				return err
			}
		}
		select {
		case <-c.Done():
			return nil
		case <-r.Context().Done():
			return fmt.Errorf("process %s has not ended: %w", p.exec, context.Cause(r.Context()))
		}
	})
	fail(w, err)
}

// handleLost records the end of a process according to Kubernetes.
func (a *Agent) handleLost(_ http.ResponseWriter, r *http.Request) {
	for _, p := range a.procs {
		if p.exec == r.URL.Query().Get("exec") {
			a.lost(p)
		}
	}
}
