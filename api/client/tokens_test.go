package client

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/v3"
)

// countedTokens returns the tokens t1, t2, …; each renewal returns the next one.
type countedTokens struct {
	mu      sync.Mutex
	n       int
	last    int // last token, 0 for no limit
	refused []string
	err     error // error of a renewal
}

func (c *countedTokens) Token(context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("t%d", c.n), nil
}

func (c *countedTokens) Renew(_ context.Context, refused string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = append(c.refused, refused)
	if c.last == 0 || c.n < c.last {
		c.n++
	}
	return fmt.Sprintf("t%d", c.n), c.err
}

// askWith returns a client whose requests need the token want.
func askWith(t *testing.T, tokens Tokens, want string) (*Client, *[]string) {
	t.Helper()
	var mu sync.Mutex
	bodies := &[]string{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body) // the client can close the connection
		mu.Lock()
		*bodies = append(*bodies, r.Header.Get("Authorization")+" "+string(b))
		mu.Unlock()
		if r.Header.Get("Authorization") != "bearer "+want {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"errors":[{"code":1000,"title":"CF-InvalidAuthToken","detail":"Invalid Auth Token"}]}`)
			return
		}
		fmt.Fprint(w, "{}")
	}))
	t.Cleanup(s.Close)
	c, err := New(Options{URL: s.URL, Tokens: tokens})
	if err != nil {
		t.Fatal(err)
	}
	return c, bodies
}

// A refused token is renewed once, and the same body is sent again.
func TestRenew(t *testing.T) {
	tokens := &countedTokens{}
	c, bodies := askWith(t, tokens, "t1")
	if err := c.Apps().UpdateEnv(t.Context(), "a", map[string]*string{"x": nil}); err != nil {
		t.Fatal(err)
	}
	want := []string{`bearer t0 {"var":{"x":null}}`, `bearer t1 {"var":{"x":null}}`}
	if diff := cmp.Diff(*bodies, want); diff != "" {
		t.Error(diff)
	}
	c, bodies = askWith(t, tokens, "t9")
	_, err := c.Daemon().Root(t.Context())
	if e := (*Error)(nil); !errors.As(err, &e) || e.Title != "CF-InvalidAuthToken" || len(*bodies) != 2 {
		t.Errorf("got %v after %v", err, *bodies)
	}
}

func TestRenewRefused(t *testing.T) {
	c, bodies := askWith(t, &countedTokens{last: -1}, "x") // never returns another one
	_, err := c.Daemon().Root(t.Context())
	if e := (*Error)(nil); !errors.As(err, &e) || e.Status != 401 || len(*bodies) != 1 {
		t.Errorf("got %v after %v", err, *bodies)
	}
	broken := errors.New("log in again")
	c, _ = askWith(t, &countedTokens{err: broken}, "x")
	if _, err := c.Daemon().Root(t.Context()); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	// A body that can be read only once is not sent again, because a part of it is
	// already consumed.
	tokens := &countedTokens{}
	c, bodies = askWith(t, tokens, "t1")
	resp, err := c.Send(t.Context(), Request{Method: http.MethodPost, Path: "/x", Body: io.LimitReader(strings.NewReader("body"), 4)})
	if err != nil || resp.StatusCode != http.StatusUnauthorized || len(*bodies) != 1 || len(tokens.refused) != 0 {
		t.Errorf("got %v, %v after %v", resp, err, *bodies)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
}

// Many concurrent requests all succeed with one new token.
func TestRenewTogether(t *testing.T) {
	c, _ := askWith(t, &countedTokens{last: 1}, "t1")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := c.Daemon().Root(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// A log stream whose token is refused continues with another.
func TestStreamRenews(t *testing.T) {
	tokens := &countedTokens{}
	var mu sync.Mutex
	served := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if want := fmt.Sprintf("bearer t%d", served+1); r.Header.Get("Authorization") != want {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		served++ // and this token is no longer valid
		b, err := json.Marshal(v3.Line{Seq: uint64(served), Text: []byte("x"), Stream: "OUT"})
		if err != nil {
			t.Error(err)
		}
		fmt.Fprintf(w, "id: %d\ndata: %s\n\n", served, b)
	}))
	defer s.Close()
	c, err := New(Options{URL: s.URL, Tokens: tokens})
	if err != nil {
		t.Fatal(err)
	}
	var seen []uint64
	enough := errors.New("enough")
	err = c.Logs().Stream(t.Context(), "app", LogQuery{Newest: 1, Follow: true}, Lines{Line: func(l *v3.Line) error {
		if seen = append(seen, l.Seq); len(seen) == 3 {
			return enough
		}
		return nil
	}})
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
	if !slices.Equal(seen, []uint64{1, 2, 3}) || !slices.Equal(tokens.refused, []string{"t0", "t1", "t2"}) {
		t.Errorf("lines %v, refused %v", seen, tokens.refused)
	}
}

func TestLogin(t *testing.T) {
	for _, c := range []struct {
		grant Grant
		auth  string
		form  url.Values
	}{
		{Grant{User: "ada", Password: "p&w"}, "Basic Y2Y6", url.Values{"grant_type": {"password"}, "username": {"ada"}, "password": {"p&w"}}},
		{Grant{Refresh: "r"}, "Basic Y2Y6", url.Values{"grant_type": {"refresh_token"}, "refresh_token": {"r"}}},
		{Grant{Client: "ci", Secret: "s"}, "", url.Values{"grant_type": {"client_credentials"}, "client_id": {"ci"}, "client_secret": {"s"}}},
	} {
		api, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
			if err := r.ParseForm(); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(r.PostForm, c.form); diff != "" || r.Header.Get("Authorization") != c.auth || r.URL.Path != "/uaa/oauth/token" {
				t.Errorf("%s %s %s", r.URL, r.Header.Get("Authorization"), diff)
			}
			fmt.Fprint(w, `{"access_token":"a","refresh_token":"b","token_type":"bearer","expires_in":600}`)
		})
		if got, err := api.Users().Login(t.Context(), c.grant); err != nil || got != (Token{"a", "b", "bearer"}) {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	api, _ := newTestClient(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"error":"unauthorized","error_description":"Bad credentials"}`)
	})
	_, err := api.Users().Login(t.Context(), Grant{User: "x"})
	if e := (*Error)(nil); !errors.As(err, &e) || *e != (Error{Status: 401, Title: "unauthorized", Detail: "Bad credentials"}) {
		t.Errorf("got %+v", err)
	}
}

// Resources of a space are requested for the client's own space.
func TestSpace(t *testing.T) {
	broken := errors.New("no space")
	var failing error
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.Query().Get("space_guids"); got != "s-1" {
			t.Errorf("%s asks for %q", r.URL, got)
		}
		fmt.Fprint(w, `{"resources":[{}]}`)
	}))
	defer s.Close()
	c, err := New(Options{URL: s.URL, Space: func(context.Context) (string, error) { return "s-1", failing }})
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"apps":      func() error { _, err := c.Apps().List(t.Context()); return err },
		"app":       func() error { _, err := c.Apps().ByName(t.Context(), "a"); return err },
		"processes": func() error { _, err := c.Processes().All(t.Context()); return err },
		"routes":    func() error { _, err := c.Routes().List(t.Context()); return err },
	} {
		failing = nil
		if err := call(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		failing = broken
		if err := call(); !errors.Is(err, broken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUsersInBatches(t *testing.T) {
	var batchSizes []int
	c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		batchSizes = append(batchSizes, len(strings.Split(r.URL.Query().Get("guids"), ",")))
		fmt.Fprint(w, `{"resources":[{"guid":"u"}]}`)
	})
	guids := make([]string, 450)
	for i := range guids {
		guids[i] = fmt.Sprint(i)
	}
	users, err := c.Users().ByGUID(t.Context(), guids...)
	if err != nil || len(users) != 3 || !slices.Equal(batchSizes, []int{200, 200, 50}) {
		t.Errorf("got %d users, %v, asked %v", len(users), err, batchSizes)
	}
}

func TestTrust(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }))
	defer s.Close()
	s.Config.ErrorLog = nil
	for _, c := range []struct {
		trust *tls.Config
		ok    bool
	}{{nil, false}, {&tls.Config{InsecureSkipVerify: true}, true}, {s.Client().Transport.(*http.Transport).TLSClientConfig, true}} {
		api, err := New(Options{URL: s.URL, TLS: c.trust})
		if err != nil {
			t.Fatal(err)
		}
		_, err = api.Daemon().Root(t.Context())
		if u := (*Unreachable)(nil); (err == nil) != c.ok || err != nil && !errors.As(err, &u) {
			t.Errorf("%v: %v", c.trust, err)
		}
	}
}
