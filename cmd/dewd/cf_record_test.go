//go:build integration

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/api/cftest"
)

// recordings are what the replay of package api reads. DEW_RECORD=1 writes them
// anew; else they are compared with.
const recordings = "../../api/testdata/cf"

// stock is the unmodified cf client before a dewd of its own, and a proxy between
// them that notes what they say to each other.
type stock struct {
	*cell
	t       *testing.T
	bin     string
	home    string // CF_HOME
	dir     string // of the apps that are pushed
	url     string // of the proxy, which is the API's public one
	front   string // where app routes are served
	tape    *cftest.Tape
	count   int
	before  []string
	written map[string]bool

	mu  sync.Mutex // guards raw
	raw []cftest.Raw
}

// result is how a command ended.
type result struct {
	out  string // what it wrote, both streams
	code int
}

// newStock starts a dewd whose public address is the proxy's.
func newStock(t *testing.T) *stock {
	t.Helper()
	bin := os.Getenv("CF_BIN")
	if bin == "" {
		t.Skip("CF_BIN is not set: give the path of a stock cf client, version 8")
	}
	s := &stock{
		t: t, bin: bin, home: t.TempDir(), dir: t.TempDir(), written: map[string]bool{},
		tape: cftest.NewTape(`\bwanderer-[a-z0-9-]*[a-z0-9]\b`),
	}
	to := freeAddress(t)
	proxy := httptest.NewServer(s.proxy(t, to))
	t.Cleanup(proxy.Close)
	s.url = proxy.URL
	s.tape.Hide(s.url, "$url")
	s.tape.Hide(strings.TrimPrefix(s.url, "http://"), "$host")
	s.tape.Hide(s.dir, "$dir")
	s.cell = newCell(t, "--listen", to, "--public-url", proxy.URL)
	s.start()
	s.hideAdmin()
	return s
}

// freeAddress is an address that nobody listens on now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (s *stock) adminPassword() string {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.root, "admin-password"))
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func (s *stock) hideAdmin() { s.tape.Hide(s.adminPassword(), "$password-admin") }

// proxy passes everything on and keeps a copy.
func (s *stock) proxy(t *testing.T, to string) http.Handler {
	pass := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: to}); r.Out.Host = r.In.Host },
		FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if !errors.Is(err, context.Canceled) { // the client has left
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
		r.Header.Del("Accept-Encoding") // the copy shall be readable
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

// command is a command of the client.
func (s *stock) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.bin, args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "CF_HOME="+s.home, "CF_COLOR=false", "LANG=C", "CF_TRACE=", "CF_STARTUP_TIMEOUT=1", "CF_STAGING_TIMEOUT=2")
	return cmd
}

// cf runs a command that must end with a status, and keeps what it said to dewd.
func (s *stock) cf(code int, args ...string) result {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	s.takeRaw()
	cmd := s.command(ctx, args...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		s.t.Fatal(err)
	}
	r := result{out: string(out), code: cmd.ProcessState.ExitCode()}
	s.t.Log(s.tape.Normal(fmt.Sprintf("cf %s\n%s", strings.Join(args, " "), out)))
	s.keep(args, r.code)
	if r.code != code {
		s.t.Errorf("cf %s: status %d, want %d\n%s", strings.Join(args, " "), r.code, code, out)
	}
	return r
}

// follow runs a command until it has written a text, then interrupts it.
func (s *stock) follow(until string, args ...string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	s.takeRaw()
	cmd := s.command(ctx, args...)
	out := &watched{text: until, seen: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	select {
	case <-out.seen:
	case <-ctx.Done():
		s.t.Errorf("cf %s did not write %q:\n%s", strings.Join(args, " "), until, out)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		s.t.Error(err)
	}
	_ = cmd.Wait() // it was interrupted
	s.t.Log(s.tape.Normal(fmt.Sprintf("cf %s\n%s", strings.Join(args, " "), out)))
	s.keep(args, 0)
}

// watched waits for a text among what is written.
type watched struct {
	mu   sync.Mutex // guards buf
	buf  bytes.Buffer
	text string
	seen chan struct{}
	once sync.Once
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.Write(p)
	if strings.Contains(w.buf.String(), w.text) {
		w.once.Do(func() { close(w.seen) })
	}
	return len(p), nil
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// keep writes the recording of a command, or compares it with the one that is
// there.
func (s *stock) keep(args []string, code int) {
	s.t.Helper()
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
	r.Exchanges = cftest.Settle(all)
	s.written[r.Name] = true
	if os.Getenv("DEW_RECORD") == "1" {
		if err := cftest.Save(recordings, r); err != nil {
			s.t.Fatal(err)
		}
		return
	}
	old, err := cftest.LoadFile(filepath.Join(recordings, r.Name+".json"))
	if err == nil {
		err = cftest.Compare(old, r)
	}
	if err != nil {
		s.t.Errorf("recording %s: %v (DEW_RECORD=1 writes it anew)", r.Name, err)
	}
}

// finish looks after the whole run: recordings of commands that are not run any
// more are removed or complained of, and none may hold what is this machine's own.
func (s *stock) finish() {
	s.t.Helper()
	all, err := cftest.Load(recordings)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range all {
		file := filepath.Join(recordings, r.Name+".json")
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

// leaked is what no recording may hold: paths, addresses, tokens.
var leaked = regexp.MustCompile(`/tmp/|/root/|/home/[^v]|127\.0\.0\.1:\d+|eyJ[A-Za-z0-9_-]{10,}|not-a-real`)

// says wants texts among what a command wrote; one that begins with ^ is a
// regular expression over lines, one that begins with ! must not be there.
func (s *stock) says(r result, want ...string) {
	s.t.Helper()
	for _, w := range want {
		not := strings.HasPrefix(w, "!")
		text := strings.TrimPrefix(w, "!")
		var found bool
		if strings.HasPrefix(text, "^") {
			found = regexp.MustCompile("(?m)" + text).MatchString(r.out)
		} else {
			found = slices.ContainsFunc(lines(r.out), func(l string) bool { return l == text || len(text) > 8 && strings.Contains(l, text) })
		}
		if found == not {
			s.t.Errorf("output has %q: %v, want %v\n%s", text, found, !not, r.out)
		}
	}
}

// lines are the lines of an output with their columns one blank apart.
func lines(out string) []string {
	var ls []string
	for l := range strings.Lines(out) {
		ls = append(ls, strings.Join(strings.Fields(l), " "))
	}
	return ls
}

// eventuallySays runs a command that is not recorded until it writes a text.
func (s *stock) eventuallySays(text string, args ...string) string {
	s.t.Helper()
	var got []byte
	s.eventually("cf "+strings.Join(args, " ")+" writes "+text, func() error {
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
		defer cancel()
		var err error
		if got, err = s.command(ctx, args...).CombinedOutput(); err == nil && !strings.Contains(string(got), text) {
			err = errors.New(string(got))
		}
		return err
	})
	s.takeRaw()
	return string(got)
}
