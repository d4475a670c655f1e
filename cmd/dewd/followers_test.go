//go:build integration

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dewrun/dew/api/v3"
)

// Limits of the resident memory of dewd, in MB.
const (
	fewMB  = 90  // with 40 slow followers of a log that is written in bursts
	manyMB = 150 // with 200 followers
	leftMB = 80  // after they have left
)

// Slow clients of every kind follow a log that is written in bursts. dewd's memory
// stays small, because a follower that cannot keep up reads from the segments later.
// dewd releases the memory when they leave.
func TestFollowersMemory(t *testing.T) {
	runParallel(t)
	followers, bursts := rounds(40, 200), rounds(4, 30)
	c := newCell(t, "--log-level", "info")
	c.launchAs(plainDewd(t))
	c.awaitSocket()
	line := strings.Repeat("x", 99)
	c.pushLogs("n=0; while :; do yes "+line+" | head -n 40000; n=$((n+1)); echo burst $n; sleep 0.5; done", idle)
	guid := filepath.Base(c.appLog())
	before := c.memory("VmRSS")
	followerGroup := c.followerGroup(guid)
	for i := range followers {
		followerGroup.join(i)
	}
	c.resetPeak()
	seen := c.burstsPrinted(0)
	c.eventually("every follower has its first bytes, and bursts are written", func() error {
		if n := followerGroup.readers(); n < followers {
			return fmt.Errorf("%d of %d followers have read", n, followers)
		}
		if n := c.burstsPrinted(seen); n < bursts {
			return fmt.Errorf("%d of %d bursts", n, bursts)
		}
		return nil
	})
	peak, with := c.memory("VmHWM"), c.memory("VmRSS")
	followerGroup.leave()
	c.dew("stop", "sample")
	left := c.memory("VmRSS")
	began := time.Now()
	c.eventually("dewd gives memory back", func() error {
		if left = c.memory("VmRSS"); left > leftMB {
			return fmt.Errorf("%.0f MB are resident, at most %d should be", left, leftMB)
		}
		return nil
	})
	t.Logf("%d followers, %d bursts: %.0f MB before, %.0f MB at the most, %.0f MB at their end, %.0f MB %.1f s after they left",
		followers, c.burstsPrinted(seen), before, peak, with, left, time.Since(began).Seconds())
	if most := rounds(fewMB, manyMB); peak > float64(most) {
		t.Errorf("dewd took %.0f MB with %d slow followers, want at most %d", peak, followers, most)
	}
	c.dew("logs", "sample", "--verify")
}

// plainDewd builds dewd as in a release, because the race detector needs several times
// the memory.
func plainDewd(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dewd")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return path
}

// memory returns a field of dewd's memory statistics from the kernel, in MB.
func (c *cell) memory(field string) float64 {
	c.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if err != nil {
		c.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), field+":")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		c.t.Fatal(err)
	}
	return float64(kb) / 1024
}

// resetPeak makes the kernel count VmHWM from now on.
func (c *cell) resetPeak() {
	c.t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", c.cmd.Process.Pid), []byte("5"), 0); err != nil {
		c.t.Fatal(err)
	}
}

// burstsPrinted returns how many bursts after the first ones are in the log.
func (c *cell) burstsPrinted(first int) int {
	c.t.Helper()
	var n int
	text := c.output("logs", "sample", "--recent", "-n", "1", "--grep", "burst ", "--raw")
	if _, err := fmt.Sscanf(text, "burst %d", &n); err != nil && text != "" {
		c.t.Fatalf("odd line %q", text)
	}
	return n - first
}

// followerGroup is a group of clients that follow one log more slowly than it is written.
type followerGroup struct {
	c     *cell
	guid  string
	ctx   context.Context //nolint:containedctx // the life of its members
	end   context.CancelFunc
	group sync.WaitGroup
	base  string // URL of the API
	token string

	mu   sync.Mutex // guards read
	read map[int]int
}

func (c *cell) followerGroup(guid string) *followerGroup {
	c.t.Helper()
	found := regexp.MustCompile(`api=(\S+)`).FindStringSubmatch(c.said.String())
	if found == nil {
		c.t.Fatalf("dewd does not say where its API is:\n%s", c.said)
	}
	w := &followerGroup{c: c, guid: guid, base: found[1], read: map[int]int{}}
	w.ctx, w.end = context.WithCancel(context.Background())
	c.t.Cleanup(w.leave)
	password, err := os.ReadFile(filepath.Join(c.root, "admin-password"))
	if err != nil {
		c.t.Fatal(err)
	}
	form := url.Values{"grant_type": {"password"}, "username": {"admin"}, "password": {strings.TrimSpace(string(password))}}
	req, err := http.NewRequestWithContext(w.ctx, http.MethodPost, w.base+"/uaa/oauth/token", strings.NewReader(form.Encode()))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth("cf", "")
	resp, err := w.overTLS().RoundTrip(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	var body struct {
		AccessToken string `json:"access_token"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil || body.AccessToken == "" {
		c.t.Fatalf("no token: %s, %v", resp.Status, err)
	}
	w.token = body.AccessToken
	return w
}

// overTLS returns a separate connection to the API, as browsers and cf create it.
func (w *followerGroup) overTLS() *http.Transport {
	return &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, //nolint:gosec // the certificate is not what is tested
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10},
	}
}

// overSocket returns a separate connection to the socket, as dew creates it.
func (w *followerGroup) overSocket() *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(w.c.run, socketName))
	}}
}

// join adds a client. Its number selects its kind.
func (w *followerGroup) join(i int) {
	stream := "/stream/v1/apps/" + w.guid
	w.group.Go(func() {
		var err error
		switch i % 4 {
		case 0: // reads nothing after the first bytes
			err = w.follow(i, w.overSocket(), "http://dew"+stream, "text/event-stream", 0)
		case 1:
			err = w.follow(i, w.overSocket(), "http://dew"+stream, v3.LinesType, 20*time.Millisecond)
		case 2:
			err = w.follow(i, w.overTLS(), w.base+stream, "text/event-stream", 20*time.Millisecond)
		case 3: // polls as cf logs does
			err = w.poll(i, w.overTLS())
		}
		if err != nil && w.ctx.Err() == nil {
			w.c.t.Errorf("follower %d: %v", i, err)
		}
	})
}

func (w *followerGroup) get(transport *http.Transport, url, accept string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(w.ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("Authorization", "Bearer "+w.token)
	resp, err := transport.RoundTrip(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		return nil, errors.Join(errors.New(resp.Status), resp.Body.Close())
	}
	return resp, err
}

// follow reads a little at a time, or nothing more if there is no pause.
func (w *followerGroup) follow(i int, transport *http.Transport, url, accept string, pause time.Duration) error {
	defer transport.CloseIdleConnections()
	resp, err := w.get(transport, url, accept)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b := make([]byte, 4<<10)
	for {
		n, err := resp.Body.Read(b)
		if err != nil {
			return err
		}
		w.note(i, n)
		if pause == 0 {
			<-w.ctx.Done()
			return nil
		}
		time.Sleep(pause) // a client that reads slowly
	}
}

// poll reads one page after the other, from the oldest line, at the pace of a polling
// client.
func (w *followerGroup) poll(i int, transport *http.Transport) error {
	defer transport.CloseIdleConnections()
	for start := int64(0); w.ctx.Err() == nil; time.Sleep(250 * time.Millisecond) {
		resp, err := w.get(transport, fmt.Sprintf("%s/api/v1/read/%s?envelope_types=LOG&limit=1000&start_time=%d", w.base, w.guid, start), "application/json")
		if err != nil {
			return err
		}
		body, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return err
		}
		w.note(i, len(body))
		const key = `{"timestamp":"` // without a decoder, which would dominate the measurement
		if at := bytes.LastIndex(body, []byte(key)); at >= 0 {
			stamp, _, _ := strings.Cut(string(body[at+len(key):]), `"`)
			if start, err = strconv.ParseInt(stamp, 10, 64); err != nil {
				return err
			}
			start++
		}
	}
	return nil
}

func (w *followerGroup) note(i, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.read[i] += n
}

// readers returns how many clients have read something.
func (w *followerGroup) readers() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.read)
}

func (w *followerGroup) leave() {
	w.end()
	w.group.Wait()
}
