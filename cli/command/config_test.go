package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/cli/console"
)

func newTestMemory(t *testing.T) ConfigFile {
	t.Helper()
	return ConfigFile{Path: filepath.Join(t.TempDir(), ".dew", "config.json")}
}

// Concurrent changes are all stored, and a reader always sees a complete file.
func TestConfigRace(t *testing.T) {
	m := newTestMemory(t)
	const writers = 8
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			err := m.Update(t.Context(), func(c *Config) error {
				c.Local[fmt.Sprintf("/run/%d", i)] = Target{Org: strings.Repeat("x", 10000)}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			if _, err := m.Load(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	c, err := m.Load()
	if err != nil || len(c.Local) != writers {
		t.Errorf("%d of %d changes are there, %v", len(c.Local), writers, err)
	}
	entries, err := os.ReadDir(filepath.Dir(m.Path))
	if err != nil || len(entries) != 2 {
		t.Errorf("files left behind: %v, %v", entries, err)
	}
}

func TestConfigErrors(t *testing.T) {
	m := newTestMemory(t)
	if c, err := m.Load(); err != nil || !cmp.Equal(c, Config{Format: configFormat}) {
		t.Errorf("got %+v, %v", c, err)
	}
	err := m.Update(t.Context(), func(c *Config) error { c.API = "x"; return errBroken })
	if !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(m.Path); err == nil {
		t.Error("a change that failed was written")
	}
	for text, want := range map[string]string{"{": "Correct the file", `{"format":9}`: "a newer version of dew"} {
		if err := os.WriteFile(m.Path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Load(); err == nil || !strings.Contains(Explain(err), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	unlock, err := m.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := m.lock(ctx); err == nil {
		t.Error("two hold the lock")
	}
}

// If several dew processes share a session, only one renews its token: the refresh
// token is valid for one use.
func TestRenewRace(t *testing.T) {
	m := newTestMemory(t)
	old := Session{User: "ada", Access: "old", Refresh: "r1"}
	if err := m.Update(t.Context(), func(c *Config) error { c.Sessions["u"] = old; return nil }); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	calls := 0
	login := func(_ context.Context, g client.Grant) (client.Token, error) {
		mu.Lock()
		defer mu.Unlock()
		if calls++; g.Refresh != "r1" {
			return client.Token{}, &client.Error{Status: 401}
		}
		return client.Token{Access: "new", Refresh: "r2"}, nil
	}
	var all sync.WaitGroup
	for range 8 {
		tokens := &sessionTokens{url: "u", config: m, login: login, now: old} // one for each dew process
		for range 2 {
			all.Go(func() {
				if got, err := tokens.Renew(t.Context(), "old"); got != "new" || err != nil {
					t.Errorf("got %q, %v", got, err)
				}
			})
		}
	}
	all.Wait()
	if calls != 1 {
		t.Errorf("it was renewed %d times", calls)
	}
	c, err := m.Load()
	if err != nil || c.Sessions["u"].Refresh != "r2" {
		t.Errorf("got %+v, %v", c, err)
	}
}

// If the daemon cannot be reached, the session is not deleted.
func TestRenewUnreachable(t *testing.T) {
	m := newTestMemory(t)
	old := Session{User: "ada", Access: "old", Refresh: "r1"}
	if err := m.Update(t.Context(), func(c *Config) error { c.Sessions["u"] = old; return nil }); err != nil {
		t.Fatal(err)
	}
	login := func(context.Context, client.Grant) (client.Token, error) {
		return client.Token{}, &client.Unreachable{Err: errBroken}
	}
	tokens := &sessionTokens{url: "u", config: m, login: login, now: old}
	if _, err := tokens.Renew(t.Context(), "old"); StatusOf(err) != console.StatusUnreachable {
		t.Errorf("got %v", err)
	}
	if c, err := m.Load(); err != nil || !cmp.Equal(c.Sessions["u"], old) {
		t.Errorf("got %+v, %v", c, err)
	}
}
