package lease

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// server is the part of the API server that Leases need.
type server struct {
	mu      sync.Mutex
	lease   *coordinationv1.Lease
	version int
	away    map[string]bool // callers that do not reach it
}

// as returns the server for a caller.
func (s *server) as(name string) Leases { return caller{s, name} }

type caller struct {
	*server
	name string
}

var resource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// enter locks the server, and returns an error if the caller does not reach it.
func (c caller) enter() error {
	c.mu.Lock()
	if c.away[c.name] {
		return errors.New("connection refused")
	}
	return nil
}

func (c caller) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	defer c.mu.Unlock()
	if err := c.enter(); err != nil {
		return nil, err
	}
	if c.lease == nil {
		return nil, apierrors.NewNotFound(resource, Name)
	}
	return c.lease.DeepCopy(), nil
}

func (c caller) Create(_ context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	defer c.mu.Unlock()
	if err := c.enter(); err != nil {
		return nil, err
	}
	if c.lease != nil {
		return nil, apierrors.NewAlreadyExists(resource, Name)
	}
	return c.put(l), nil
}

func (c caller) Update(_ context.Context, l *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	defer c.mu.Unlock()
	if err := c.enter(); err != nil {
		return nil, err
	}
	if l.ResourceVersion != c.lease.ResourceVersion {
		return nil, apierrors.NewConflict(resource, Name, errors.New("the object has been modified"))
	}
	return c.put(l), nil
}

func (c caller) put(l *coordinationv1.Lease) *coordinationv1.Lease {
	c.version++
	c.lease = l.DeepCopy()
	c.lease.ResourceVersion = strconv.Itoa(c.version)
	return c.lease.DeepCopy()
}

// cut cuts or restores the connection of a caller.
func (s *server) cut(name string, away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away == nil {
		s.away = map[string]bool{}
	}
	s.away[name] = away
}

func newLease(holder string) *Lease { return New("dew", holder, slog.New(slog.DiscardHandler)) }

// take takes the Lease for a holder. The test releases it.
func take(t *testing.T, s *server, holder string) *Lease {
	t.Helper()
	l := newLease(holder)
	if err := l.Take(t.Context(), s.as(holder)); err != nil {
		t.Fatal(err)
	}
	return l
}

func release(t *testing.T, l *Lease) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// The Lease is renewed for as long as dewd runs.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := take(t, &server{}, "a/1")
		time.Sleep(time.Hour)
		if err := l.Check(); err != nil {
			t.Error(err)
		}
		release(t, l)
	})
}

// A second dewd is refused within seconds, and the message says who holds the Lease.
func TestSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		first := take(t, s, "cell-1/0b7c")
		began := time.Now()
		err := newLease("laptop//root").Take(t.Context(), s.as("laptop"))
		if !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), "dewd in Pod cell-1 (0b7c) holds the Lease dewd") || !strings.Contains(err.Error(), "--namespace") {
			t.Errorf("error = %v, want the holder", err)
		}
		if took := time.Since(began); took > 2*interval {
			t.Errorf("it took %s to refuse, want at most %s", took, 2*interval)
		}
		if err := first.Check(); err != nil {
			t.Errorf("the first one: %v", err)
		}
		release(t, first)
	})
}

// A dewd that exited leaves nothing to wait for.
func TestRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		release(t, take(t, s, "a/1"))
		began := time.Now()
		second := take(t, s, "b/2")
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %s", took)
		}
		release(t, second)
	})
}

// After dewd was killed, the next process of the same Pod takes the Lease at once, and
// another Pod after the Lease has expired.
func TestKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		killed := take(t, s, "dewd-0/1")
		killed.stop()
		<-killed.result
		began := time.Now()
		again := take(t, s, "dewd-0/1")
		if took := time.Since(began); took > 0 {
			t.Errorf("the same Pod waited %s", took)
		}
		again.stop()
		<-again.result
		began = time.Now()
		other := take(t, s, "dewd-0/2")
		if took := time.Since(began); took < Duration || took > Duration+interval {
			t.Errorf("another Pod waited %s, want %s", took, Duration)
		}
		release(t, other)
	})
}

// While the API server is away, dewd runs and changes nothing. It continues when the
// server is back.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		l := take(t, s, "a/1")
		s.cut("a/1", true)
		time.Sleep(Duration)
		if err := l.Check(); err == nil || !strings.Contains(err.Error(), "has not renewed its Lease") {
			t.Errorf("error = %v, want that the Lease was not renewed", err)
		}
		s.cut("a/1", false)
		time.Sleep(interval + time.Second)
		if err := l.Check(); err != nil {
			t.Errorf("after the outage: %v", err)
		}
		release(t, l)
	})
}

// Only one of two dewds can change the cluster at any moment, even if the first one is
// cut off and comes back. The first one then fails with a plain message.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		first, second := take(t, s, "dewd-0/1"), newLease("dewd-0/2")
		s.cut("dewd-0/1", true)
		taken := make(chan error, 1)
		go func() { taken <- second.Take(t.Context(), s.as("dewd-0/2")) }()
		for range 60 {
			time.Sleep(500 * time.Millisecond)
			if first.Check() == nil && second.Check() == nil {
				t.Fatal("both can change the cluster")
			}
		}
		if err := <-taken; err != nil {
			t.Fatal(err)
		}
		s.cut("dewd-0/1", false)
		err := first.Wait(t.Context())
		if !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), "dewd in Pod dewd-0 (2) has taken the Lease dewd of namespace dew") {
			t.Errorf("error = %v, want who has taken the Lease", err)
		}
		if err := first.Check(); !errors.Is(err, ErrHeld) {
			t.Errorf("the first one can change the cluster: %v", err)
		}
		release(t, first)
		if err := second.Check(); err != nil {
			t.Errorf("the release of a lost Lease: %v", err)
		}
		release(t, second)
	})
}

// Two that start at the same moment do not both get the Lease.
func TestRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		results := make(chan error, 2)
		all := []*Lease{newLease("a/1"), newLease("b/2")}
		for _, l := range all {
			go func() { results <- l.Take(t.Context(), s.as(l.holder)) }()
		}
		a, b := <-results, <-results
		if (a == nil) == (b == nil) {
			t.Errorf("results %v and %v, want one success", a, b)
		}
		for _, l := range all {
			release(t, l)
		}
	})
}

// A missing permission is an error and not an endless wait.
func TestForbidden(t *testing.T) {
	s := &server{}
	s.cut("a", true)
	if err := newLease("a/1").Take(t.Context(), s.as("a")); err == nil || !strings.Contains(err.Error(), "cannot take the Lease dewd in namespace dew") {
		t.Errorf("error = %v", err)
	}
}

// The guard refuses changes without the Lease, and lets everything else pass.
func TestGuard(t *testing.T) {
	l := newLease("a/1")
	sent := 0
	g := l.Guard(roundTripper(func(*http.Request) (*http.Response, error) {
		sent++
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	}))
	for _, tt := range []struct {
		method, path  string
		without, with bool
	}{
		{http.MethodGet, "/api/v1/namespaces/dew/pods", true, true},
		{http.MethodPost, "/apis/coordination.k8s.io/v1/namespaces/dew/leases", true, true},
		{http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", true, true},
		{http.MethodPost, "/api/v1/namespaces/dew/pods", false, true},
		{http.MethodPut, "/api/v1/namespaces/dew/secrets/dew-agent", false, true},
		{http.MethodPatch, "/api/v1/namespaces/dew/pods/x", false, true},
		{http.MethodDelete, "/api/v1/namespaces/dew/pods/x", false, true},
	} {
		for held, want := range map[bool]bool{false: tt.without, true: tt.with} {
			l.renewed = time.Time{}
			if held {
				l.renewed = time.Now()
			}
			before := sent
			r, err := http.NewRequestWithContext(t.Context(), tt.method, "https://cluster"+tt.path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := g.RoundTrip(r)
			if err == nil {
				resp.Body.Close()
			}
			if got := err == nil && sent == before+1; got != want {
				t.Errorf("%s %s with the Lease %t: sent %t, want %t (%v)", tt.method, tt.path, held, got, want, err)
			}
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
