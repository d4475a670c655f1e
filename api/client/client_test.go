package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/v3"
)

// newTestClient returns a client of a handler, and the daemon's warnings.
func newTestClient(t *testing.T, h http.HandlerFunc) (*Client, *[]string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	warned := &[]string{}
	c, err := New(Options{URL: s.URL, Tokens: Fixed("secret"), UserAgent: "test", Warn: func(w string) { *warned = append(*warned, w) }})
	if err != nil {
		t.Fatal(err)
	}
	return c, warned
}

func TestNewRefuses(t *testing.T) {
	for _, u := range []string{"127.0.0.1:8484", "http://", ":"} {
		if _, err := New(Options{URL: u}); err == nil {
			t.Errorf("%q was accepted", u)
		}
	}
}

func TestErrors(t *testing.T) {
	for body, want := range map[string]Error{
		`{"errors":[{"code":10010,"title":"CF-ResourceNotFound","detail":"App not found"}]}`:       {Status: 404, Code: 10010, Title: "CF-ResourceNotFound", Detail: "App not found"},
		`{"errors":[{"code":1,"title":"A","detail":"one"},{"code":2,"title":"B","detail":"two"}]}`: {Status: 404, Code: 1, Title: "A", Detail: "one\ntwo"},
		`not JSON`:      {Status: 404, Detail: "not JSON"},
		`{"errors":[]}`: {Status: 404, Detail: `{"errors":[]}`},
		``:              {Status: 404},
	} {
		c, _ := newTestClient(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, body)
		})
		_, err := c.Processes().Get(t.Context(), "p")
		e := (*Error)(nil)
		if !errors.As(err, &e) || *e != want || !NotFound(err) || e.Error() == "" {
			t.Errorf("%s: %+v", body, err)
		}
	}
}

func TestUnreachable(t *testing.T) {
	c, err := New(Options{Run: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Apps().List(t.Context())
	if u := (*Unreachable)(nil); !errors.As(err, &u) || u.Address != c.Address() {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = c.Apps().List(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the end of ctx became %v", err)
	}
	// A response that breaks off because the daemon dies is an error.
	c, _ = newTestClient(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		fmt.Fprint(w, "{")
		panic(http.ErrAbortHandler)
	})
	_, err = c.Daemon().Status(t.Context())
	if u := (*Unreachable)(nil); !errors.As(err, &u) {
		t.Errorf("got %v", err)
	}
}

func TestInvalidResponse(t *testing.T) {
	c, _ := newTestClient(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") })
	if _, err := c.Daemon().Status(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot read the response to GET /dew/v1/status") {
		t.Errorf("got %v", err)
	}
}

func TestWarnings(t *testing.T) {
	c, warned := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "bearer secret" || r.Header.Get("User-Agent") != "test" {
			t.Errorf("headers are %v", r.Header)
		}
		w.Header().Set("X-Cf-Warnings", "first+one,second%2C%20too,,%zz")
		fmt.Fprint(w, "{}")
	})
	if _, err := c.Daemon().Root(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"first one", "second, too", "%zz"}; !slices.Equal(*warned, want) {
		t.Errorf("got %q", *warned)
	}
}

// An endpoint that does not exist must not be mistaken for a resource that is already
// deleted.
func TestUnknownCall(t *testing.T) {
	if NotFound(&Error{Status: http.StatusNotFound, Detail: v3.DetailUnknownRequest}) {
		t.Error("an unknown call counts as a missing thing")
	}
}

// The client requests further pages from its own address, whatever host they name.
func TestPages(t *testing.T) {
	c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		page := v3.List[v3.App]{Resources: []v3.App{{Name: "a"}}}
		if r.URL.Query().Get("page") == "" {
			page.Pagination.Next = &v3.Link{Href: "http://elsewhere:1/v3/apps?page=2"}
		}
		if err := json.NewEncoder(w).Encode(page); err != nil {
			t.Error(err)
		}
	})
	apps, err := c.Apps().List(t.Context())
	if err != nil || len(apps) != 2 {
		t.Errorf("got %v, %v", apps, err)
	}
}

func TestAppByName(t *testing.T) {
	c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.Query().Get("names"); got != "a%2Cb%25" {
			t.Errorf("the filter is %q", got)
		}
		fmt.Fprint(w, `{"resources":[]}`)
	})
	_, err := c.Apps().ByName(t.Context(), "a,b%")
	if n := (*NoApp)(nil); !errors.As(err, &n) || n.Name != "a,b%" {
		t.Errorf("got %v", err)
	}
}

func TestJobs(t *testing.T) {
	states := []string{v3.JobProcessing, v3.JobProcessing, v3.JobFailed}
	requests := 0
	h := func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			w.Header().Set("Location", "http://elsewhere:1/v3/jobs/j")
			w.WriteHeader(http.StatusAccepted)
			return
		}
		j := v3.Job{State: states[requests], Errors: []v3.Error{{Code: 1, Detail: "one"}, {Detail: "two"}}, Warnings: []v3.Warning{{Detail: "careful"}}}
		requests++
		if err := json.NewEncoder(w).Encode(j); err != nil {
			t.Error(err)
		}
	}
	c, _ := newTestClient(t, h)
	if err := c.Apps().Delete(t.Context(), "a"); err == nil || err.Error() != "one\ntwo" || requests != 3 {
		t.Errorf("got %v after %d looks", err, requests)
	}
	requests, states = 0, []string{v3.JobComplete}
	c, warned := newTestClient(t, h)
	if err := c.Apps().Delete(t.Context(), "a"); err != nil || len(*warned) != 1 {
		t.Errorf("got %v, warned %q", err, *warned)
	}
	if err := jobError(v3.Job{Operation: "app.delete"}); !strings.Contains(err.Error(), "app.delete") {
		t.Errorf("got %v", err)
	}
}

func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, last, requests := time.Now(), time.Now(), 0
		err := Poll(t.Context(), func() (bool, error) {
			if pause, want := time.Since(last), min(max(last.Sub(began)/16, minPause), maxPause); requests > 0 && pause != want {
				t.Errorf("a pause of %s after %s, want %s", pause, last.Sub(began), want)
			}
			last, requests = time.Now(), requests+1
			return time.Since(began) > time.Minute, nil
		})
		if most := int(time.Minute/maxPause) + 100; err != nil || requests > most {
			t.Errorf("%d requests in a minute, %v, want at most %d", requests, err, most)
		}
		cause := errors.New("too long")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		if err := Poll(ctx, func() (bool, error) { return false, nil }); !errors.Is(err, cause) {
			t.Errorf("got %v", err)
		}
	})
}

func TestUpload(t *testing.T) {
	var parts []string
	c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		m, err := r.MultipartReader()
		if err != nil {
			t.Error(err)
			return
		}
		parts = nil
		for {
			p, err := m.NextPart()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return // it was aborted
			}
			b, err := io.ReadAll(p)
			if err != nil {
				return
			}
			parts = append(parts, p.FormName()+" "+p.FileName()+" "+string(b))
		}
		fmt.Fprint(w, `{"guid":"p","state":"READY"}`)
	})
	bits := func(w io.Writer) error { _, err := io.WriteString(w, "zip"); return err }
	p, err := c.Bits().UploadPackage(t.Context(), "p", nil, bits)
	if err != nil || p.State != v3.PackageReady {
		t.Fatalf("got %+v, %v", p, err)
	}
	if diff := cmp.Diff([]string{"resources  []", "bits package.zip zip"}, parts); diff != "" {
		t.Errorf("other parts (-want +got):\n%s", diff)
	}
	if _, err := c.Bits().UploadPackage(t.Context(), "p", []v3.Resource{{Path: "a"}}, nil); err != nil || len(parts) != 1 {
		t.Errorf("got %q, %v", parts, err)
	}
	// A file that cannot be read is reported as such, not as a broken connection.
	unreadable := errors.New("cannot read a")
	if _, err := c.Bits().UploadPackage(t.Context(), "p", nil, func(io.Writer) error { return unreadable }); !errors.Is(err, unreadable) {
		t.Errorf("got %v", err)
	}
}

// The daemon can refuse an upload before it has read everything.
func TestUploadRefused(t *testing.T) {
	c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		// The connection stays open until the client closes it. Closing it with unread
		// bytes could discard the response before a slow client has read it.
		answer := http.NewResponseController(w)
		err := answer.EnableFullDuplex()
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		fmt.Fprint(w, `{"errors":[{"code":1,"title":"T","detail":"too large"}]}`)
		if err := errors.Join(err, answer.Flush()); err != nil {
			t.Error(err)
		}
		_, _ = io.Copy(io.Discard, r.Body) // until the client closes the connection
	})
	block := make([]byte, 64<<10)
	_, err := c.Bits().UploadPackage(t.Context(), "p", nil, func(w io.Writer) error {
		for range 200 {
			if _, err := w.Write(block); err != nil {
				return err
			}
		}
		return nil
	})
	if e := (*Error)(nil); !errors.As(err, &e) || e.Detail != "too large" {
		t.Errorf("got %v", err)
	}
}

func TestMatchResourcesInParts(t *testing.T) {
	var sizes []int
	c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		var m v3.ResourceMatches
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		sizes = append(sizes, len(m.Resources))
		m.Resources = m.Resources[:1]
		if err := json.NewEncoder(w).Encode(m); err != nil {
			t.Error(err)
		}
	})
	got, err := c.Bits().MatchResources(t.Context(), make([]v3.Resource, v3.MaxResources+1))
	if err != nil || len(got) != 2 || !slices.Equal(sizes, []int{v3.MaxResources, 1}) {
		t.Errorf("got %d in %v, %v", len(got), sizes, err)
	}
}

func TestNewestPackage(t *testing.T) {
	c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		if want := "order_by=-created_at&page=1&per_page=1&states=READY"; r.URL.RawQuery != want {
			t.Errorf("asked %s", r.URL.RawQuery)
		}
		fmt.Fprint(w, `{"pagination":{"next":{"href":"http://x/never"}},"resources":[{"guid":"p"}]}`)
	})
	p, ok, err := c.Bits().NewestPackage(t.Context(), "a")
	if err != nil || !ok || p.GUID != "p" {
		t.Errorf("got %+v, %v, %v", p, ok, err)
	}
}
