package cftest

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dewrun/dew/services/servicestest"
)

// Every command is recorded, run live or left out with a reason.
func TestUnscripted(t *testing.T) {
	t.Parallel()
	var all []Recording
	for _, name := range Commands() {
		if name != "push" && live[name] == "" && leftOut[name] == "" {
			all = append(all, Recording{Command: []string{name}})
		}
	}
	if missing, needless := Unscripted(all); !slices.Equal(missing, []string{"push"}) || len(needless) > 0 {
		t.Errorf("missing = %v, needless = %v; want push and none", missing, needless)
	}
	all = append(all, Recording{Command: []string{"push"}}, Recording{Command: []string{"help"}})
	if missing, needless := Unscripted(all); len(missing) > 0 || !slices.Equal(needless, []string{"help"}) {
		t.Errorf("missing = %v, needless = %v; want none and help", missing, needless)
	}
	known := Commands()
	for _, names := range []map[string]string{live, leftOut} {
		for name, why := range names {
			if !slices.Contains(known, name) || why == "" {
				t.Errorf("%q is no command of the client, or has no reason: %q", name, why)
			}
		}
	}
}

// A broker follows its instructions.
func TestSetBehaviour(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"first": `{"services":[]}`, "newer": `{"services":[1]}`} {
		if err := os.WriteFile(filepath.Join(dir, name+".json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, err := NewBroker(dir, "first")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewBroker(dir, "none"); err == nil {
		t.Error("a broker has a catalog that is not there")
	}
	ask := func(method, path string) string {
		r := httptest.NewRequest(method, path, strings.NewReader("{}"))
		r.SetBasicAuth("user", "pass")
		r.Header.Set("X-Broker-Api-Version", "2.17")
		w := httptest.NewRecorder()
		b.ServeHTTP(w, r)
		return w.Body.String()
	}
	for _, step := range []struct{ what, method, path, want string }{
		{"broker1 offers newer", http.MethodGet, "/v2/catalog", `{"services":[1]}`},
		{"broker1 provision later", http.MethodPut, "/v2/service_instances/a", `{"operation": "provision"}`},
		{"broker1 provision later", http.MethodGet, "/v2/service_instances/a/last_operation", `{"state": "in progress", "description": "still at it"}`},
		{"broker1 provision obeys", http.MethodPut, "/v2/service_instances/b", `{"dashboard_url": "http://broker.example/b"}`},
		{"broker1 provision fails", http.MethodPut, "/v2/service_instances/c", `{"operation": "provision"}`},
	} {
		if err := SetBehaviour([]*servicestest.Broker{b}, dir, step.what); err != nil {
			t.Fatal(err)
		}
		if got := ask(step.method, step.path); got != step.want {
			t.Errorf("%s: %s %s = %s, want %s", step.what, step.method, step.path, got, step.want)
		}
	}
	for _, what := range []string{"", "broker1 offers", "broker2 offers newer", "broker offers newer", "broker1 offers none", "broker1 provision sings"} {
		if SetBehaviour([]*servicestest.Broker{b}, dir, what) == nil {
			t.Errorf("%q is understood", what)
		}
	}
}

// An uploaded droplet is recorded file by file, and packed again.
func TestTarIsUploadedAgain(t *testing.T) {
	t.Parallel()
	files := map[string]any{
		"./app/":          map[string]any{"mode": "drwxr-xr-x", "text": ""},
		"./app/hello.txt": map[string]any{"mode": "-rw-r--r--", "text": "hello\n"},
	}
	body, kind, err := form(map[string]any{"bits": map[string]any{"filename": "ready.tgz", "files": files}})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/v3/droplets/1/upload", nil)
	r.Header.Set("Content-Type", kind)
	got, err := NewTape("none").body(Raw{Request: r, Body: body})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"bits": map[string]any{"filename": "ready.tgz", "files": files}}
	if show(got) != show(want) {
		t.Errorf("recorded again: %s, want %s", show(got), show(want))
	}
}
