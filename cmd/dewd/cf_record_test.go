//go:build integration

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/dewrun/dew/api/cftest"
	"github.com/dewrun/dew/services/servicestest"
)

// recordings is the folder that the replay of package api reads. With DEW_RECORD=1 the
// tests write the recordings again; otherwise they compare with them. Every script has
// its own folder.
const recordings = "../../api/testdata/cf"

// stock is the unmodified cf CLI with its own dewd, and a proxy between them that
// records their requests and responses.
type stock struct {
	*cell
	t       *testing.T
	bin     string
	home    string // CF_HOME
	dir     string // folder of the apps that are pushed
	url     string // URL of the proxy, which is the API's public URL
	front   string // address of app routes
	script  string // folder of the recordings; empty: not recorded
	tape    *cftest.Tape
	hidden  map[string]string // texts by their placeholder in commands, such as addresses and passwords
	input   []string          // lines for the stdin of the next command
	ran     []string          // names of the commands so far
	count   int
	before  []string
	written map[string]bool
	passing bool                   // requests after the last change are not recorded
	brokers []*servicestest.Broker // $broker1 and so on

	mu  sync.Mutex // guards raw
	raw []cftest.Raw
}

// newStock starts a dewd whose public address is the proxy's, for the script of that
// name. A script without a name is not recorded.
func newStock(t *testing.T, script string) *stock {
	t.Helper()
	bin := os.Getenv("CF_BIN")
	if bin == "" {
		t.Skip("CF_BIN is not set: give the path of a stock cf client, version 8")
	}
	s := &stock{
		t: t, bin: bin, home: t.TempDir(), dir: t.TempDir(), script: script, written: map[string]bool{}, hidden: map[string]string{},
		tape: cftest.NewTape(`\b(?:wanderer-[a-z0-9-]*[a-z0-9]|[0-9a-f]{8})\b`), // a route's host or a task's name
	}
	to := freeAddress(t)
	proxy := httptest.NewServer(s.proxy(t, to))
	t.Cleanup(proxy.Close)
	s.url = proxy.URL
	s.hide(s.url, "$url")
	s.hide(strings.TrimPrefix(s.url, "http://"), "$host")
	s.hide(s.dir, "$dir")
	flags := []string{"--listen", to, "--public-url", proxy.URL, "--tcp-ports", "20010-20011"}
	if script == cftest.WithoutPolicies {
		flags = append(flags, "--network-policies", "off")
	}
	s.cell = newCell(t, flags...)
	s.start()
	s.hide(strings.TrimSpace(string(s.readFile(filepath.Join(s.root, "admin-password")))), "$password-admin")
	return s
}

// newStockClient returns a client that is logged in as the administrator.
func newStockClient(t *testing.T, script string) *stock {
	t.Helper()
	s := newStock(t, script)
	s.cf("api $url")
	s.cf("login -u admin -p $password-admin -o local -s dev", "Targeted space dev.")
	return s
}

// hide sets a placeholder for a text in commands and in recordings.
func (s *stock) hide(text, placeholder string) {
	s.tape.Hide(text, placeholder)
	s.hidden[placeholder] = text
}

// proxy forwards everything and stores a copy.
func (s *stock) proxy(t *testing.T, to string) http.Handler {
	pass := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: to}); r.Out.Host = r.In.Host },
		FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if !errors.Is(err, context.Canceled) { // the client has disconnected
				t.Errorf("the proxy cannot reach dewd: %s %s: %v", r.Method, r.URL, err)
			}
			w.WriteHeader(http.StatusBadGateway)
		},
		ModifyResponse: func(resp *http.Response) error {
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				return err
			}
			resp.Body = io.NopCloser(bytes.NewReader(b))
			body, _ := resp.Request.Context().Value(bodyKey{}).([]byte)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.raw = append(s.raw, cftest.Raw{Request: resp.Request, Body: body, Status: resp.StatusCode, Header: resp.Header.Clone(), Answered: b})
			return nil
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(b))
		r.Header.Del("Accept-Encoding") // the copy must be readable
		pass.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), bodyKey{}, b)))
	})
}

type bodyKey struct{}

func (s *stock) takeRaw() []cftest.Raw {
	s.mu.Lock()
	defer s.mu.Unlock()
	raw := s.raw
	s.raw = nil
	return raw
}

// keep writes the recording of a command, or compares it with the existing one.
func (s *stock) keep(args []string, code int) {
	s.t.Helper()
	if s.script == "" {
		s.takeRaw()
		return
	}
	s.count++
	r := cftest.Recording{Name: fmt.Sprintf("%03d-%s", s.count, args[0]), Before: s.before, Exit: code}
	s.before = nil
	for _, a := range args {
		r.Command = append(r.Command, s.tape.Normal(a))
	}
	var all []cftest.Exchange
	for _, raw := range s.takeRaw() {
		if raw.Status >= http.StatusInternalServerError {
			s.t.Errorf("%s %s: %d %s", raw.Request.Method, raw.Request.URL.RequestURI(), raw.Status, raw.Answered)
		}
		e, err := s.tape.Record(raw)
		if err != nil {
			s.t.Error(err)
			continue
		}
		all = append(all, e)
	}
	if s.passing {
		last := len(all)
		for ; last > 0 && all[last-1].Reads(); last-- {
		}
		all = all[:last]
	}
	r.Exchanges = cftest.Settle(all)
	s.written[r.Name] = true
	if os.Getenv("DEW_RECORD") == "1" {
		if err := cftest.Save(s.folder(), r); err != nil {
			s.t.Fatal(err)
		}
		return
	}
	old, err := cftest.LoadFile(filepath.Join(s.folder(), r.Name+".json"))
	if err == nil {
		err = cftest.Compare(old, r)
	}
	if err != nil {
		s.t.Errorf("recording %s: %v (DEW_RECORD=1 writes it anew)", r.Name, err)
	}
}

// folder returns the folder of the script's recordings.
func (s *stock) folder() string { return filepath.Join(recordings, s.script) }

// finish checks the whole run. It removes or reports recordings of commands that are no
// longer run. No recording must contain data of this machine.
func (s *stock) finish() {
	s.t.Helper()
	all, err := cftest.Load(s.folder())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range all {
		file := filepath.Join(s.folder(), r.Name+".json")
		if !s.written[r.Name] {
			if os.Getenv("DEW_RECORD") != "1" {
				s.t.Errorf("recording %s is of no command", r.Name)
			} else if err := os.Remove(file); err != nil {
				s.t.Error(err)
			}
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			s.t.Fatal(err)
		}
		if leak := leaked.Find(b); leak != nil {
			s.t.Errorf("recording %s holds %q", r.Name, leak)
		}
	}
}

// leaked matches data that no recording must contain: paths, addresses, tokens.
var leaked = regexp.MustCompile(`/tmp/|/root/|/home/[^v]|127\.0\.0\.1:\d+|eyJ[A-Za-z0-9_-]{10,}|not-a-real`)
