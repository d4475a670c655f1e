package apps

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

// A build that has not started shows how many builds are ahead of it.
func TestPushShowsTheQueue(t *testing.T) {
	const text = "waiting for 2 builds of other apps"
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"resources":[{"guid":"build-8"},{"guid":"build-9"},{"guid":"build-1"}]}`)
	}))
	defer daemon.Close()
	api, err := client.New(client.Options{URL: daemon.URL})
	if err != nil {
		t.Fatal(err)
	}
	s := &stagingLog{api: api, out: &console.Console{Err: io.Discard}}
	q := stagingQueue{build: v3.Build{GUID: "build-1"}, log: s, wait: s.out.Wait("Staging"), next: time.Unix(1, 0)}
	defer q.wait.End()
	if err := q.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := q.wait.Text(0); !strings.HasSuffix(got, text) {
		t.Errorf("it tells %q", got)
	}
	s.any = true
	if err := q.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := q.wait.Text(0); strings.Contains(got, text) {
		t.Errorf("a build that has begun still tells %q", got)
	}
}

func TestInstancesNote(t *testing.T) {
	got := instancesNote("web", []v3.InstanceStats{{State: v3.StateStarting}, {State: v3.StateRunning}, {State: v3.StateCrashed}})
	if want := "web: 1 of 3 instances running, 1 crashed, 1 starting"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
