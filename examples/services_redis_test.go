//go:build integration

package examples_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// An app counts in Redis. Its service is read, made larger, and deleted. The app's
// lines go to a syslog server.
func TestRedisCounter(t *testing.T) {
	const name, cache = "redis-counter", "cache"
	dir := program(t, name, "")
	dew(t, "", "create-service", "redis", "small", cache, "--wait")
	deleteLater(t, name)
	dew(t, dir, "push")
	bindThenRestage(t, name, "redis", cache)
	e := entry(t, name, "redis", cache)
	waitForPage(t, name, "/", "{\"count\":1}\n")
	waitForPage(t, name, "/", "{\"count\":2}\n")
	k := key(t, cache, "mine")
	k.reads(t, "redis", "GET visits", "2")
	if out, err := k.client("redis", "CONFIG GET dir"); err == nil && !strings.Contains(out, "NOPERM") {
		t.Errorf("a key may change the server: %s", out)
	}

	r := dew(t, "", "update-service", cache, "-p", "large", "--wait")
	if want := "The plan `large` of service offering `redis` is not free.  The instance `cache` will incur a cost."; !strings.Contains(r.err, want) {
		t.Errorf("update-service does not warn of the cost:\n%s", r.err)
	}
	waitForPage(t, name, "/", "{\"count\":3}\n") // the data is still there
	if lines := dew(t, "", "logs", "--service", cache, "--recent").out; !strings.Contains(lines, "Ready to accept connections") {
		t.Errorf("the log of the service lacks its server's lines:\n%s", lines)
	}
	checkSyslogDrain(t, name)

	dew(t, "", "unbind-service", name, cache, "--wait")
	if out, err := e.Credentials.client("redis", "GET visits"); err == nil {
		t.Errorf("the user of the binding is still there: %s", out)
	}
	// Existing bindings are deleted with the service.
	dropService(t, cache, e.Credentials)
}

// syslogServer is a syslog server that stores the messages it receives.
type syslogServer struct {
	net.Listener
	mu    sync.Mutex
	lines []string
	bad   error
}

func newSyslogServer(t *testing.T) *syslogServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &syslogServer{Listener: l}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go p.take(conn)
		}
	}()
	return p
}

// take reads frames that start with their length.
func (p *syslogServer) take(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		length, err := r.ReadString(' ')
		if err != nil {
			return // the connection is closed
		}
		n, err := strconv.Atoi(strings.TrimSpace(length))
		frame := make([]byte, max(n, 0))
		if err == nil {
			_, err = io.ReadFull(r, frame)
		}
		p.mu.Lock()
		p.lines, p.bad = append(p.lines, string(frame)), err
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// has returns an error unless a line matches.
func (p *syslogServer) has(pattern string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted := regexp.MustCompile(pattern)
	for _, l := range p.lines {
		if wanted.MatchString(l) {
			return p.bad
		}
	}
	return errors.Join(p.bad, fmt.Errorf("no line matches %s: %q", pattern, p.lines))
}

// checkSyslogDrain checks that the lines of an app arrive at a syslog server after the binding,
// and none after the unbinding.
func checkSyslogDrain(t *testing.T, app string) {
	t.Helper()
	p := newSyslogServer(t)
	dew(t, "", "create-user-provided-service", "papers", "-l", "syslog://"+p.Addr().String())
	t.Cleanup(func() { dewd.dew("", "delete-service", "papers", "-f") })
	dew(t, "", "bind-service", app, "papers")
	head := `^<14>1 \d{4}-\d\d-\d\dT[0-9:.]+Z \S+\.` + app + ` ` + guidOf(t, app)
	eventually(t, "the drain's lines", func() error {
		get(t, app, "/drained") // not found, as in the router's log line
		return p.has(head + ` \[RTR/\d+\] - - .*"GET /drained HTTP/1.1" 404 `)
	})
	dew(t, "", "restart", app)
	eventually(t, "the app's own lines", func() error { return p.has(head + ` \[APP/PROC/WEB/0\] - - app listens on `) })
	dew(t, "", "unbind-service", app, "papers")
	dew(t, "", "delete-service", "papers", "-f")
}

// Invalid requests for services are refused with a message, and leave nothing behind.
func TestServicesBadInput(t *testing.T) {
	const name, db = "bad-input-app", "taken"
	dew(t, "", "create-app", name)
	deleteLater(t, name)
	dew(t, "", "create-user-provided-service", db, "-p", `{"user":"me"}`)
	t.Cleanup(func() { dewd.dew("", "delete-service", db, "-f") })
	dew(t, "", "bind-service", name, db)
	dew(t, "", "create-service", "redis", "small", "real", "--wait")
	at := key(t, "real", "once")
	before, homes := dew(t, "", "services", "--json").out, serviceDataFolders(t)

	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"create-service", "nonesuch", "small", "x"}, `service offering "nonesuch" does not exist`},
		{[]string{"create-service", "redis", "nonesuch", "x"}, `no plan "nonesuch"`},
		{[]string{"create-service", "redis", "small", "x", "-c", "{"}, "-c must be a JSON object"},
		{[]string{"create-service", "redis", "small", "x", "-c", `{"nonesuch":1}`}, "nonesuch"},
		{[]string{"create-user-provided-service", "x", "-p", "[1]"}, "-p must be a JSON object"},
		{[]string{"create-user-provided-service", "x", "-p", `{"a":`}, "-p must be a JSON object"},
		{[]string{"create-user-provided-service", "x", "-l", "ftp://example.com"}, "syslog"},
		{[]string{"bind-service", name, "nonesuch"}, "nonesuch"},
		{[]string{"bind-service", "nonesuch", db}, "nonesuch"},
		{[]string{"bind-service", name, "real", "-c", `{"nonesuch":1}`}, "nonesuch"},
		{[]string{"unbind-service", name, "nonesuch"}, "nonesuch"},
		{[]string{"service", "nonesuch"}, "nonesuch"},
		{[]string{"service-key", "real", "nonesuch"}, `no service key "nonesuch"`},
		{[]string{"update-service", "real", "-p", "nonesuch"}, `no plan "nonesuch"`},
		{[]string{"rename-service", "real", db}, "The service instance name is taken: " + db},
		{[]string{"create-service-key", db, "k"}, "user-provided"},
	} {
		if r := dewd.dew("", c.args...); r.code == 0 || !strings.Contains(r.err, c.want) {
			t.Errorf("dew %s: status %d, %q; want one that says %q", strings.Join(c.args, " "), r.code, r.err, c.want)
		}
	}
	// If a resource already exists, the command line succeeds and the API returns an
	// error.
	dew(t, "", "bind-service", name, db)
	dew(t, "", "create-service", "redis", "small", db)
	dew(t, "", "create-service-key", "real", "once")
	dew(t, "", "delete-service", "nonesuch", "-f")
	refusedByAPI(t, name, db)
	if now := dew(t, "", "services", "--json").out; now != before {
		t.Errorf("services %s, before %s", now, before)
	}
	if now := serviceDataFolders(t); !slices.Equal(now, homes) {
		t.Errorf("folders of services %q, before %q", now, homes)
	}
	dropService(t, "real", at)
}

// serviceDataFolders returns the data folders of services.
func serviceDataFolders(t *testing.T) (names []string) {
	t.Helper()
	all, err := os.ReadDir(filepath.Join(dewd.dir, "root", "services"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// refusedByAPI sends requests that dew would not send.
func refusedByAPI(t *testing.T, app, instance string) {
	t.Helper()
	space := read[struct {
		Relationships struct {
			Space struct{ Data struct{ GUID string } }
		}
	}](t, "curl", "/v3/apps/"+guidOf(t, app)).Relationships.Space.Data.GUID
	provided := func(more string) string {
		return fmt.Sprintf(`{"type":"user-provided","relationships":{"space":{"data":{"guid":%q}}},%s}`, space, more)
	}
	bound := fmt.Sprintf(`{"type":"app","relationships":{"app":{"data":{"guid":%q}},"service_instance":{"data":{"guid":%q}}}}`, guidOf(t, app), service(t, instance).GUID)
	keyed := fmt.Sprintf(`{"type":"key","name":"once","relationships":{"service_instance":{"data":{"guid":%q}}}}`, service(t, "real").GUID)
	managed := fmt.Sprintf(`{"type":"managed","name":"x","relationships":{"space":{"data":{"guid":%q}},"service_plan":{"data":{"guid":"nonesuch"}}}}`, space)
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"service_instances", provided(`"name":"` + instance + `"`), 422, "The service instance name is taken: " + instance},
		{"service_instances", provided(`"name":"x","credentials":"text"`), 422, "credentials"},
		{"service_instances", provided(`"name":"x","credentials":[1]`), 422, "credentials"},
		{"service_instances", provided(`"name":""`), 422, "ame"},
		{"service_instances", managed, 422, "Invalid service plan"},
		{"service_instances", `{"type":`, 400, ""},
		{"service_credential_bindings", bound, 422, "The app is already bound to the service instance"},
		{"service_credential_bindings", keyed, 422, "Key binding names must be unique"},
		{"service_credential_bindings", strings.Replace(bound, service(t, instance).GUID, "nonesuch", 1), 422, "service instance"},
	} {
		if p := socketRequest(t, "POST", "/v3/"+c.path, "application/json", c.body); p.status != c.status || !strings.Contains(p.body, c.want) {
			t.Errorf("POST %s %s answers %d %s, want %d %q", c.path, c.body, p.status, p.body, c.status, c.want)
		}
	}
}
