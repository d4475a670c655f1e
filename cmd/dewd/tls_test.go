//go:build integration

package main

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v3 "github.com/dewrun/dew/api/v3"
)

// tlsTest is a dewd with a domain, and a machine whose certificate store and host names
// are its own: a mount namespace hides the real ones.
type tlsTest struct {
	*routeTest
	dir, api string // folder of the namespace's files; URL of the API through the router
	port     string
}

const tlsDomain = "platform.test"

func newTLSTest(t *testing.T) *tlsTest {
	t.Helper()
	w := &tlsTest{routeTest: newRouteTest(t, "--domain", tlsDomain)}
	if w.status.TLS == nil || w.status.TLS.Router == "" || w.status.TLS.API == "" || len(w.status.Warnings) > 0 {
		t.Fatalf("status = %+v, want TLS without warnings", w.status)
	}
	w.dir = filepath.Join(filepath.Dir(w.root), "machine")
	w.port = w.status.TLS.Router[strings.LastIndexByte(w.status.TLS.Router, ':')+1:]
	w.api = "https://api." + tlsDomain + ":" + w.port
	hosts := "127.0.0.1 localhost\n127.0.0.1"
	for _, label := range []string{"api", "login", "uaa", "log-cache", "site", "nothing", "a.b"} {
		hosts += " " + label + "." + tlsDomain
	}
	for _, err := range []error{
		os.MkdirAll(filepath.Join(w.dir, "ca"), 0o755),
		os.MkdirAll(filepath.Join(w.dir, "home"), 0o755),
		os.WriteFile(filepath.Join(w.dir, "hosts"), []byte(hosts+"\n"), 0o644),
		exec.Command("cp", "-a", "/etc/ssl/certs", filepath.Join(w.dir, "certs")).Run(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// on runs a program in the namespace and returns what it printed.
func (w *tlsTest) on(name string, args ...string) (string, error) {
	const enter = `mount --bind "$0/hosts" /etc/hosts && mount --bind "$0/ca" /usr/local/share/ca-certificates && mount --bind "$0/certs" /etc/ssl/certs && exec "$@"`
	cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-c", enter, w.dir, name}, args...)...)
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), "HOME="+filepath.Join(w.dir, "home"), "CF_HOME="+filepath.Join(w.dir, "home"), "CF_COLOR=false",
		"DEW_RUN="+w.run, "PATH="+w.bin+":"+filepath.Dir(os.Getenv("CF_BIN"))+":/usr/sbin:"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// does runs a program that must succeed, and whose output must contain the texts.
func (w *tlsTest) does(line []string, want ...string) string {
	w.t.Helper()
	out, err := w.on(line[0], line[1:]...)
	if err != nil {
		w.t.Fatalf("%s: %v\n%s\ndewd:\n%s", strings.Join(line, " "), err, out, w.said.String())
	}
	for _, text := range want {
		if !strings.Contains(out, text) {
			w.t.Errorf("%s printed\n%s, want %q", strings.Join(line, " "), out, text)
		}
	}
	return out
}

// refuses runs a program that must fail with a text.
func (w *tlsTest) refuses(line []string, want string) {
	w.t.Helper()
	if out, err := w.on(line[0], line[1:]...); err == nil || !strings.Contains(out, want) {
		w.t.Errorf("%s: %v\n%s, want a failure with %q", strings.Join(line, " "), err, out, want)
	}
}

func words(line string) []string { return strings.Fields(line) }

// Every name of the domain works over TLS once the machine trusts the CA, and not
// before. The names of the API lead to the API.
func TestTLS(t *testing.T) {
	runParallel(t)
	w := newTLSTest(t)
	const untrusted = "SSL certificate problem"
	curl := func(url string) []string { return words("curl -sS --max-time 60 " + url) }
	w.refuses(curl(w.api), untrusted)
	if out := w.does(words("dew credentials"), "cf api http://127.0.0.1:", "sudo dew trust"); strings.Contains(out, "https://") {
		t.Errorf("credentials before trust: %s", out)
	}
	w.does(words("dew trust"), "Added the CA of dew", "cf api "+w.api)
	w.does(words("dew trust"), "has the CA of dew already")
	w.does(words("dew credentials"), "cf api "+w.api+"\n")
	w.does(words("dew status"), w.api, "https://*."+tlsDomain+":"+w.port)
	w.does(curl(w.api+"/"), `"cloud_controller_v3":{"href":"`+w.api+`/v3"`, `"uaa":{"href":"`+w.api+`/uaa"`)
	w.does(curl(w.status.TLS.API+"/"), `"self":{"href":"`+w.status.TLS.API+`"`)
	_, plain, err := net.SplitHostPort(w.front)
	if err != nil {
		t.Fatal(err)
	}
	at := "http://api." + tlsDomain + ":" + plain
	w.does(curl(at+"/"), `"cloud_controller_v3":{"href":"`+at+`/v3"`)
	for _, name := range []string{"login", "uaa"} {
		at := "https://" + name + "." + tlsDomain + ":" + w.port
		w.does(curl(at+"/info"), `"uaa":"`+at+`/uaa"`)
	}
	for _, name := range []string{"nothing", "a.b"} {
		w.does(curl("https://"+name+"."+tlsDomain+":"+w.port+"/"), "404 Not Found: Requested route does not exist.")
	}
	w.refuses(words("dew create-route "+tlsDomain+" --hostname uaa"), "reserved for the API")
	w.refuses(curl("--resolve other.example:"+w.port+":127.0.0.1 https://other.example:"+w.port), "SSL")
	w.reachedFromInside(t)
	if os.Getenv("CF_BIN") != "" {
		w.stockClient()
	}
	w.does(words("dew untrust"), "Removed the CA of dew")
	w.does(words("dew untrust"), "does not have the CA of dew")
	w.refuses(curl(w.api), untrusted)
}

// reachedFromInside sends requests from an instance to its route and to the API over
// TLS. The instance trusts the CA of dew, whether the machine does or not.
func (w *tlsTest) reachedFromInside(t *testing.T) {
	w.push("site", "")
	for _, ca := range []string{"", "--cacert $CF_SYSTEM_CERT_PATH/trusted-ca-1.crt "} {
		for url, want := range map[string]string{
			"https://site." + tlsDomain + ":" + w.port + "/": "web 0 HTTP/1.1",
			w.api + "/": `"cloud_controller_v3"`,
		} {
			if out := w.dewOutput("ssh", "site", "-c", "curl -sS --max-time 60 "+ca+url); !strings.Contains(out, want) {
				t.Errorf("curl %s%s in an instance: %s, want %s", ca, url, out, want)
			}
		}
	}
	out := w.dewOutput("ssh", "site", "-c", "curl -sS --max-time 60 --cacert /etc/ssl/openssl.cnf "+w.api+"/ 2>&1 || true")
	if strings.Contains(out, "cloud_controller_v3") {
		t.Errorf("curl without the CA accepts the certificate: %s", out)
	}
	site := "https://site." + tlsDomain + ":" + w.port
	w.does(words("curl -sS --max-time 60 "+site+"/fetch?url="+site+"/"), "web 0 HTTP/1.1") // a Go program trusts it as well
}

// stockClient uses the cf CLI over TLS, with checked certificates, as a user does.
func (w *tlsTest) stockClient() {
	w.refuses(words("cf api https://localhost:1"), "refused")
	w.does([]string{"sh", "-c", `eval "$(dew credentials)"`}, "API endpoint:   "+w.api, "Authenticating...\nOK")
	if err := os.MkdirAll(filepath.Join(w.dir, "app"), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if out, err := exec.Command("cp", filepath.Join(programs, "testapp"), filepath.Join(w.dir, "app")).CombinedOutput(); err != nil {
		w.t.Fatalf("%v: %s", err, out)
	}
	w.does([]string{"cf", "push", "shop", "-p", "app", "-m", "128M", "-b", "binary_buildpack", "-c", serving}, "shop."+tlsDomain, "#0   running")
	w.does(words("cf logs shop --recent"), "listening on 0.0.0.0:8080")
	w.does([]string{"cf", "ssh", "shop", "-c", "echo inside $((6*7))"}, "inside 42")
	w.does(words("cf apps"), "shop")
	if out := w.does(words("cf curl /v3/apps"), w.api+"/v3/apps"); strings.Contains(out, "http://") {
		w.t.Errorf("a link without TLS: %s", out)
	}
	w.refuses(words("cf create-route "+tlsDomain+" --hostname api"), "reserved for the API")
	w.refuses([]string{"cf", "push", "login", "-p", "app", "-m", "128M", "-b", "binary_buildpack", "-c", serving}, "reserved for the API")
	w.does(words("cf delete shop -f -r"), "OK")
	config, err := os.ReadFile(filepath.Join(w.dir, "home", ".cf", "config.json"))
	if err != nil || !strings.Contains(string(config), `"SSLDisabled": false`) {
		w.t.Errorf("cf does not check certificates: %v %s", err, config)
	}
}

// A port that another program has, an address on a network, and a stored route with a
// name of the API are reported, and dewd starts all the same.
func TestListenerWarnings(t *testing.T) {
	runParallel(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	c := newCell(t)
	refused := c.command("--listen", "0.0.0.0:0")
	refused.Args = append(refused.Args, "--listen", "0.0.0.0:0") // the last flag of a name wins
	out, err := refused.CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != statusUsage || !strings.Contains(string(out), "--listen-insecure") || !strings.Contains(string(out), "--listen-tls 0.0.0.0:8485") {
		t.Fatalf("a new dewd on a network: %v\n%s", err, out)
	}
	c.start()
	c.dew("create-shared-domain", "old.test")
	c.dew("create-route", "old.test", "--hostname", "api")
	for _, tt := range []struct {
		flags []string
		want  []string
		not   string
	}{
		{[]string{"--router-tls", taken.Addr().String()}, []string{"App routes are not available over TLS", "--router-tls"}, "listens at"},
		{[]string{"--listen-tls", taken.Addr().String()}, []string{"The API is not available over TLS", "--listen-tls"}, "App routes"},
		{[]string{"--listen", "0.0.0.0:0"}, []string{"The API listens at 0.0.0.0:0", "--listen-insecure"}, "not available"},
		{[]string{"--listen", "0.0.0.0:0", "--listen-insecure"}, nil, "listens at"},
		{[]string{"--domain", "old.test"}, []string{"The route api.old.test of an app hides the API"}, "listens at"},
	} {
		c.kill(9)
		c.flags = tt.flags
		c.start()
		var s v3.Status
		raw, err := c.dewCommand("status", "--json").Output()
		if err == nil {
			err = json.Unmarshal(raw, &s)
		}
		if err != nil {
			t.Fatal(err)
		}
		shown, err := c.dewCommand("status").Output()
		if err != nil {
			t.Fatal(err)
		}
		examined, _ := exec.Command(filepath.Join(c.bin, "dewd"), "doctor", "--run", c.run).CombinedOutput() // it can find other problems
		for where, text := range map[string]string{"status --json": strings.Join(s.Warnings, "\n"), "status": string(shown), "doctor": string(examined), "log": c.said.String()} {
			for _, want := range tt.want {
				if !strings.Contains(text, want) {
					t.Errorf("%v: %s does not say %q:\n%s", tt.flags, where, want, text)
				}
			}
			if where != "log" && where != "doctor" && strings.Contains(text, tt.not) {
				t.Errorf("%v: %s says %q:\n%s", tt.flags, where, tt.not, text)
			}
		}
	}
}
