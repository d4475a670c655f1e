package cli

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/testkit"
)

// newConsoleDaemon answers requests about the web console on a socket. It returns the
// run folder.
func newConsoleDaemon(t *testing.T, sessions *[]v3.ConsoleSession) string {
	t.Helper()
	run := testkit.ShortDir(t)
	clearHome(t)
	l, err := net.Listen("unix", filepath.Join(run, client.Socket))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /dew/v1/console/link", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(v3.ConsoleLink{URL: "http://x/console/login#c0de", ExpiresAt: time.Unix(60, 0).UTC()})
	})
	mux.HandleFunc("GET /dew/v1/console/sessions", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(v3.ConsoleSessions{Resources: *sessions})
	})
	mux.HandleFunc("DELETE /dew/v1/console/sessions/{id}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") == "s-1" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(v3.Errors{Errors: []v3.Error{{Code: v3.CodeNotFound, Title: v3.TitleNotFound, Detail: "Console session not found"}}})
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return run
}

func TestConsoleCommand(t *testing.T) {
	sessions := []v3.ConsoleSession{{ID: "s-1", User: v3.ConsoleUser{Name: "ann"}, UserAgent: "Firefox\x1b[31m", CreatedAt: time.Unix(0, 0)}}
	run := newConsoleDaemon(t, &sessions)
	opened := filepath.Join(t.TempDir(), "opened")
	browser := filepath.Join(t.TempDir(), "browser")
	if err := os.WriteFile(browser, []byte("#!/bin/sh\necho \"$1\" > "+opened+".new && mv "+opened+".new "+opened+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BROWSER", browser)
	t.Setenv("WAYLAND_DISPLAY", "")
	t.Setenv("DISPLAY", "")
	dew := func(args ...string) result { return runDew(t.Context(), append([]string{"--run", run}, args...)...) }
	const link = "http://x/console/login#c0de"
	if got := dew("console"); got.out != link+"\n" || !strings.Contains(got.talk, "works once and for 60 s") {
		t.Errorf("console = %+v", got)
	}
	t.Setenv("DISPLAY", ":0")
	dew("console", "--print").must(t, 0, link)
	dew("console", "open", "--json").must(t, 0, `"url": "`+link+`"`, `"expires_at"`)
	dew("console", "sessions").must(t, 0, "s-1", "ann", "Firefox")
	dew("console", "sessions", "--json").must(t, 0, `"id": "s-1"`)
	dew("console", "revoke", "s-1").must(t, 0, "The console session s-1 has ended")
	dew("console", "revoke", "s-2").must(t, 1, "there is no console session s-2", "dew console sessions")
	dew("console", "revoke").must(t, 2, "needs the ID")
	dew("console", "sessions", "s-1").must(t, 2, "did you mean dew console revoke s-1?")
	dew("console", "sessions", "--print").must(t, 2, "--print cannot be used with sessions")
	dew("console", "close").must(t, 2, `"close" is not an action`)
	if _, err := os.Stat(opened); err == nil {
		t.Error("a browser was started without a display, or with --print or --json")
	}
	dew("console").must(t, 0, link)
	var text []byte
	testkit.Eventually(t, "the browser was started", func() (err error) {
		text, err = os.ReadFile(opened)
		return err
	})
	if string(text) != link+"\n" {
		t.Errorf("opened %q", text)
	}
	t.Setenv("BROWSER", filepath.Join(t.TempDir(), "none"))
	dew("console").must(t, 0, link, "warning: cannot open a browser")
	sessions = nil
	dew("console", "sessions").must(t, 0, "No browser is logged in")
	dew("console", "sessions", "--json").must(t, 0, "[]")
}
