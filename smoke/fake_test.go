package smoke

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
)

// cloud is a fake daemon with one app, "shop", and a router for it.
type cloud struct {
	t      *testing.T
	url    string
	router string

	mu      sync.Mutex
	pushed  bool
	asked   []string
	crashes []v3.Crash
	stats   []v3.InstanceStats
	lines   []v3.Line
	mails   []v3.Mail
	refuse  map[string]int               // maps "POST /v3/organizations" to a status
	page    http.HandlerFunc             // handler of the app
	signal  func(k v3.Kill) (c v3.Crash) // effect of a signal
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	c := &cloud{
		t: t, refuse: map[string]int{}, stats: []v3.InstanceStats{{State: v3.StateRunning, InstanceGUID: "i-1"}},
		page: func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello from %s%s", r.Host, r.URL.Path) },
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.page(w, r) }))
	api := httptest.NewServer(c.handler())
	t.Cleanup(front.Close)
	t.Cleanup(api.Close)
	c.router, c.url = front.URL, api.URL
	return c
}

func (c *cloud) newClient(t *testing.T) *client.Client {
	t.Helper()
	newClient, err := client.New(client.Options{URL: c.url, Space: func(context.Context) (string, error) { return "space-1", nil }})
	if err != nil {
		t.Fatal(err)
	}
	return newClient
}

// did reports whether a request was made.
func (c *cloud) did(what string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.asked {
		if one == what {
			return true
		}
	}
	return false
}

func (c *cloud) handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, fn func(r *http.Request) any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { c.serve(w, r, fn) })
	}
	shop := v3.App{GUID: "app-1", Name: "shop", State: v3.AppStarted}
	handle("GET /{$}", func(*http.Request) any { return v3.Root{} })
	handle("POST /v3/organizations", func(*http.Request) any { return v3.Organization{GUID: "org-1"} })
	handle("DELETE /v3/organizations/org-1", func(*http.Request) any { return struct{}{} })
	handle("POST /v3/spaces", func(*http.Request) any { return v3.Space{GUID: "space-1"} })
	handle("GET /dew/v1/status", func(*http.Request) any { return v3.Status{Router: c.router, Domain: "dew.localhost"} })
	handle("GET /v3/apps", func(*http.Request) any {
		if !c.pushed {
			return v3.List[v3.App]{}
		}
		return v3.List[v3.App]{Resources: []v3.App{shop}}
	})
	handle("GET /v3/apps/app-1/processes", func(*http.Request) any {
		return v3.List[v3.Process]{Resources: []v3.Process{{GUID: "app-1", Type: "web"}}}
	})
	handle("GET /v3/processes/app-1/stats", func(*http.Request) any { return v3.Stats{Resources: c.stats} })
	handle("GET /dew/v1/apps/app-1/crashes", func(*http.Request) any { return v3.Crashes{Crashes: c.crashes} })
	handle("GET /v3/apps/app-1/routes", func(*http.Request) any {
		return v3.List[v3.Route]{Resources: []v3.Route{
			{Protocol: "http", URL: "shop.dew.localhost", Destinations: []v3.Destination{{App: v3.DestinationApp{GUID: "app-1"}, Port: 8080}}},
			{Protocol: "http", URL: "debug.dew.localhost", Destinations: []v3.Destination{{App: v3.DestinationApp{GUID: "app-1"}, Port: 9000}}},
		}}
	})
	handle("POST /dew/v1/processes/app-1/kill", func(r *http.Request) any {
		var k v3.Kill
		if err := json.NewDecoder(r.Body).Decode(&k); err != nil {
			c.t.Error(err)
		}
		c.crashes = append([]v3.Crash{c.signal(k)}, c.crashes...)
		return struct{}{}
	})
	handle("GET /dew/v1/inbox", func(r *http.Request) any { return c.inbox(r) })
	handle("GET /dew/v1/inbox/{id}", func(r *http.Request) any {
		for _, m := range c.mails {
			if m.ID == r.PathValue("id") {
				return m
			}
		}
		return http.StatusNotFound
	})
	handle("GET /v3/apps/app-1/env", func(*http.Request) any {
		return v3.Env{Environment: map[string]string{"PASSWORD": "very-secret"}}
	})
	handle("GET /v3/audit_events", func(*http.Request) any { return v3.List[v3.Event]{Resources: []v3.Event{{Type: "app.crash"}}} })
	mux.HandleFunc("GET /stream/v1/apps/app-1", c.stream)
	return mux
}

func (c *cloud) inbox(r *http.Request) v3.Inbox {
	var in v3.Inbox
	for _, m := range c.mails {
		if to := r.URL.Query().Get("to"); to == "" || to == m.To {
			in.Mails = append(in.Mails, m)
		}
	}
	return in
}

func (c *cloud) serve(w http.ResponseWriter, r *http.Request, fn func(*http.Request) any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := r.Method + " " + r.URL.Path
	c.asked = append(c.asked, key)
	v := fn(r)
	if status, refused := c.refuse[key]; refused {
		v = status
	}
	if status, ok := v.(int); ok {
		w.WriteHeader(status)
		v = v3.Errors{Errors: []v3.Error{{Title: "CF-No", Detail: "no"}}}
	}
	if err := json.NewEncoder(w).Encode(v); err != nil {
		c.t.Error(err)
	}
}

// stream sends the existing lines, and then waits like a followed log.
func (c *cloud) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	c.mu.Lock()
	lines := append([]v3.Line{}, c.lines...)
	c.mu.Unlock()
	for i, l := range lines {
		l.Seq = uint64(i + 1)
		text, err := l.MarshalJSON()
		if err != nil {
			c.t.Error(err)
		}
		fmt.Fprintf(w, "id: %d\ndata: %s\n\n", l.Seq, text)
	}
	if r.URL.Query().Get("follow") == "false" {
		fmt.Fprint(w, "event: end\ndata: x\n\n")
		return
	}
	fmt.Fprint(w, "id: 99\n\n")
	_ = http.NewResponseController(w).Flush() // a client that closed its connection gets nothing
	<-r.Context().Done()
}

// fakeCommands implement the commands with a cloud.
type fakeCommands struct {
	c     *cloud
	err   error // error of a push
	after func()
	out   Output
	dials int

	pushes   []Push
	services []Service
}

func (v *fakeCommands) Push(_ context.Context, p Push) error {
	v.pushes = append(v.pushes, p)
	v.c.mu.Lock()
	v.c.pushed = true
	v.c.mu.Unlock()
	if v.after != nil {
		v.after()
	}
	return v.err
}

func (v *fakeCommands) CreateService(_ context.Context, s Service) error {
	v.services = append(v.services, s)
	if s.Name == "none" {
		return &Failure{Status: StatusFailed, Err: errors.New("there is no such plan")}
	}
	return nil
}

func (v *fakeCommands) SSH(context.Context, Instance, string) (Output, error) { return v.out, nil }

func (v *fakeCommands) Dial(ctx context.Context, _ Instance, _ int) (net.Conn, error) {
	v.dials++
	return (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(v.c.router, "http://"))
}

func (v *fakeCommands) Show(_ context.Context, app string, w io.Writer) error {
	_, err := fmt.Fprintf(w, "name: %s\npassword: very-secret\n", app)
	return err
}

// crash returns the exit record of an instance.
func crash(instance, description string, index int) v3.Crash {
	return v3.Crash{
		Process: "app-1", Type: "web", Index: index, Instance: instance, Reason: "CRASHED", Description: description,
		CrashedAt: time.Unix(1, 0), First: v3.CrashExit{OutOfMemory: strings.Contains(description, "out of memory")},
	}
}
