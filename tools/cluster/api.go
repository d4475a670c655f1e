package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"syscall"
)

// componentState is one component in the answer of GET /components.
type componentState struct {
	Machine string `json:"machine"`
	Name    string `json:"name"`
	State   string `json:"state"`         // running, paused or stopped
	PID     int    `json:"pid,omitempty"` // in the PID namespace of the tests
	Starts  int    `json:"starts"`
}

func (m *machine) states() []componentState {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []componentState
	for _, c := range m.components {
		state := componentState{Machine: m.name, Name: c.name, Starts: c.starts, State: "stopped"}
		if c.process != nil {
			state.PID, state.State = c.process.pid, "running"
		}
		if c.process != nil && c.paused {
			state.State = "paused"
		}
		all = append(all, state)
	}
	return all
}

// act carries out the action of a request on a component.
func (m *machine) act(name, action string) error {
	c, err := m.find(name)
	if err != nil {
		return err
	}
	switch action {
	case "kill":
		return m.kill(c)
	case "stop":
		return m.stop(c, syscall.SIGTERM)
	case "start":
		return m.start(c)
	case "pause":
		_, err = m.signal(c, syscall.SIGSTOP)
	case "resume":
		_, err = m.signal(c, syscall.SIGCONT)
	default:
		err = fmt.Errorf("unknown action %q: kill, stop, start, pause or resume", action)
	}
	return err
}

// handler serves a request. A returned value is the JSON of the answer.
type handler func(r *http.Request) (any, error)

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	value, err := h(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // the client has gone
}

// serve answers requests on a unix socket until the process exits.
func serve(socket string, mux *http.ServeMux) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	if err := os.Chmod(socket, 0o666); err != nil {
		return err
	}
	go func() { _ = http.Serve(listener, mux) }() //nolint:gosec // only tests connect
	return nil
}

// api returns the endpoints that every machine has.
func (m *machine) api() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /components", handler(func(*http.Request) (any, error) { return m.states(), nil }))
	mux.Handle("POST /machines/"+m.name+"/components/{name}/{action}", handler(func(r *http.Request) (any, error) {
		return struct{}{}, m.act(r.PathValue("name"), r.PathValue("action"))
	}))
	return mux
}

// nodeAPI adds the endpoints of a node.
func (m *machine) nodeAPI() *http.ServeMux {
	mux := m.api()
	mux.Handle("POST /machines/"+m.name+"/images", handler(func(r *http.Request) (any, error) {
		file, err := os.CreateTemp("/var/tmp", "image-*.tar")
		if err != nil {
			return nil, err
		}
		defer func() {
			file.Close()
			_ = os.Remove(file.Name()) // the folder of the node is removed
		}()
		if _, err := io.Copy(file, r.Body); err != nil {
			return nil, err
		}
		return struct{}{}, m.importImage(file.Name())
	}))
	return mux
}

// clientOf returns a client for the socket of a machine.
func clientOf(socket string) *http.Client {
	return &http.Client{Transport: transportTo(socket)}
}

func transportTo(socket string) *http.Transport {
	return &http.Transport{
		DisableKeepAlives: true, // the machine can be switched off
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}
}

// forwardTo passes requests to the socket of a node.
func forwardTo(socket string) http.Handler {
	return &httputil.ReverseProxy{
		Transport: transportTo(socket),
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "node"}) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "the node does not answer: "+err.Error(), http.StatusBadGateway)
		},
	}
}
