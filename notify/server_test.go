package notify

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/dewrun/dew/auth"
)

// The header selects the API version; both are served at the same time.
func TestVersions(t *testing.T) {
	w := newHTTPWorld(t)
	for header, want := range map[string]string{
		"": `{"version":1}`, "1": `{"version":1}`, "01": `{"version":1}`, "+1": `{"version":1}`, "2": `{"version":2}`,
		"3": "", "0": "", "-1": "", "x": "", "1.0": "", " 1 2": "", "99999999999999999999": "",
	} {
		g := w.do("", "GET", "/info", "", with(VersionHeader, header))
		if want == "" {
			if g.code != 404 || g.body != "404 page not found\n" {
				t.Errorf("version %q: %d %q", header, g.code, g.body)
			}
			continue
		}
		g.want(t, "version "+header, 200, want)
	}
	w.do(w.sender(), "POST", "/templates", `{"name":"one","html":"h"}`)
	w.do(w.sender(), "GET", "/templates", "", version2).want(t, "templates of version 2", 200, `{"_links":{"self":{"href":"/templates"}},"templates":[]}`)
}

// Unknown paths give 404, with any method.
func TestUnknown(t *testing.T) {
	w := newHTTPWorld(t)
	for _, tt := range []struct{ method, path string }{
		{"GET", "/"},
		{"GET", "/nothing"},
		{"POST", "/info"},
		{"HEAD", "/info"},
		{"DELETE", "/templates"},
		{"GET", "/templates/"},
		{"PUT", "/notifications/"},
		{"GET", "/everyone"},
		{"PATCH", "/templates/x"},
		{"GET", "/senders"},
		{"POST", "/users/a/b"},
	} {
		g := w.do(w.sender(), tt.method, tt.path, "")
		if g.code != 404 || g.body != "404 page not found\n" {
			t.Errorf("%s %s: %d %q", tt.method, tt.path, g.code, g.body)
		}
	}
	for path, want := range map[string]string{
		"//templates": "/notify/templates", "/./info": "/notify/info", "/x/../info?a=b": "/notify/info?a=b", "//evil.example.com/info": "/notify/evil.example.com/info",
	} {
		g := w.do(w.sender(), "GET", "http://127.0.0.1:8484"+path, "")
		if g.code != 301 || g.header.Get("Location") != want {
			t.Errorf("GET %s: %d to %q, want %q", path, g.code, g.header.Get("Location"), want)
		}
	}
}

// Names in paths are decoded: a kind of an older dewd can contain spaces and slashes.
func TestPathNames(t *testing.T) {
	w := newHTTPWorld(t)
	w.register()
	k := Kind{Client: "sender", ID: "a b/c", Description: "d"}
	if err := w.s.buckets.kinds.Put(keyOf(k.Client, k.ID), k); err != nil {
		t.Fatal(err)
	}
	w.do(w.sender(), "PUT", "/clients/sender/notifications/a%20b%2Fc/template", `{"template":"default"}`).want(t, "assign", 204, "")
	w.do(w.sender(), "GET", "/templates/a%20b", "").want(t, "unknown", 404, errorJSON(`Template with ID "a b" could not be found`))
	long := strings.Repeat("x", 5000)
	w.do(w.sender(), "GET", "/templates/"+long, "").want(t, "long", 404, errorJSON(`Template with ID "`+long[:64]+`..." could not be found`))
}

// Errors end with a newline; 401, 403 and successes do not.
func TestLineEnds(t *testing.T) {
	w := newHTTPWorld(t)
	for _, tt := range []struct {
		token, path string
		want        bool
	}{
		{"", "/templates", false}, {w.client("nothing", "openid"), "/templates", false}, {w.sender(), "/templates", false}, {w.sender(), "/templates/x", true},
	} {
		if g := w.do(tt.token, "GET", tt.path, ""); strings.HasSuffix(g.body, "\n") != tt.want {
			t.Errorf("GET %s: %d %q", tt.path, g.code, g.body)
		}
	}
}

// A panic affects only one response.
func TestPanic(t *testing.T) {
	w := newHTTPWorld(t, func(c *Config) { c.Auth = panicking{} })
	w.do("a.b.c", "GET", "/templates", "").want(t, "panic", 500, errorJSON("Internal Server Error"))
	if !strings.Contains(w.logged.String(), "panic while handling a request") {
		t.Errorf("log = %s", w.logged)
	}
}

type panicking struct{}

func (panicking) Verify(string) (auth.Principal, error) { panic("no") }

// A request with a known principal needs no token.
func TestKnownCaller(t *testing.T) {
	w := newHTTPWorld(t)
	who := auth.Principal{ID: "local", Scopes: []string{ScopeTemplatesRead, ScopeManage}}
	known := func(r *http.Request) { *r = *r.WithContext(auth.NewContext(r.Context(), who)) }
	w.do("", "GET", "/templates", "", known).want(t, "list", 200, "{}")
	w.do("", "POST", "/everyone", "", known).want(t, "send", 403, forbiddenJSON("The token needs the scope notifications.write"))
	w.do("", "PUT", "/notifications", `{"source_name":"s"}`, known).want(t, "register", 204, "")
}

func TestNewRefuses(t *testing.T) {
	w := newHTTPWorld(t)
	good := Config{DB: w.db, Auth: w.auth, Directory: w.s.c.Directory, Queue: w.queue, PublicURL: serviceURL, Logger: slog.New(slog.DiscardHandler)}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(c *Config){
		"DB": func(c *Config) { c.DB = nil }, "Auth": func(c *Config) { c.Auth = nil }, "Directory": func(c *Config) { c.Directory = nil },
		"Queue": func(c *Config) { c.Queue = nil }, "Logger": func(c *Config) { c.Logger = nil }, "public URL": func(c *Config) { c.PublicURL = "nowhere" },
	} {
		c := good
		spoil(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}
