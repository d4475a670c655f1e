//go:build integration

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/api/v3"
)

const policiesPath = "/networking/v1/external/policies"

// policyTest is a cell with two apps, of which one connects to the other.
type policyTest struct{ *routeTest }

func newPolicyTest(t *testing.T) *policyTest {
	t.Helper()
	w := &policyTest{newRouteTest(t)}
	w.push("front", "")
	w.push("back", "")
	w.dew("map-route", "back", "apps.internal", "--hostname", "back")
	w.awaitResponse("front", "/", "web 0")
	w.awaitResponse("back", "/", "web 0")
	return w
}

// connect connects from front to back.
func (w *policyTest) connect() (int, string) {
	return w.get("front", "/fetch?url=http://back.apps.internal:8080/")
}

func (w *policyTest) refused(when string) {
	w.t.Helper()
	if status, body := w.connect(); status != http.StatusBadGateway || !strings.Contains(body, "connection refused") {
		w.t.Errorf("%s: %d %q, want connection refused", when, status, body)
	}
}

// opensWithin returns how long it takes until front reaches back after a change.
func (w *policyTest) opensWithin(change func()) time.Duration {
	w.t.Helper()
	change()
	began := time.Now()
	w.eventually("front reaches back", func() error {
		if status, body := w.connect(); status != http.StatusOK || !strings.HasPrefix(body, "web 0") {
			return fmt.Errorf("%d %q", status, body)
		}
		return nil
	})
	return time.Since(began)
}

func (w *policyTest) logged(app, line string) {
	w.t.Helper()
	w.eventually("the log of "+app+" explains it", func() error {
		if out := w.dewOutput("logs", app, "--recent"); !strings.Contains(out, line) {
			return fmt.Errorf("no %q in the log:\n%s", line, out)
		}
		return nil
	})
}

func (w *policyTest) body(protocol string, port int) string {
	return fmt.Sprintf(`{"policies":[{"source":{"id":%q},"destination":{"id":%q,"protocol":%q,"ports":{"start":%d,"end":%d}}}]}`, w.appGUID("front"), w.appGUID("back"), protocol, port, port)
}

// instance returns the id of the only instance of an app.
func (w *policyTest) instance(app string) string {
	w.t.Helper()
	_, body := w.get(app, "/env?name=CF_INSTANCE_GUID")
	return body
}

// An app cannot connect to another app without a network policy, and its log says why
// and what to do. A policy opens the connection within a second, without a restart. It
// outlives dewd, which adopts the instances with their rules.
func TestNetworkPolicy(t *testing.T) {
	runParallel(t)
	w := newPolicyTest(t)
	front := w.instance("front")
	w.refused("without a policy")
	_, address := w.get("back", "/address")
	w.logged("front", "Connection refused: app front to app back ("+address+", tcp port 8080). No network policy allows it. "+
		"To allow it: dew add-network-policy front back --protocol tcp --port 8080")

	var took time.Duration
	for range 3 { // a busy machine can be late once
		took = w.opensWithin(func() {
			if status, body := w.ask(http.MethodPost, policiesPath, w.body("tcp", 8080)); status != http.StatusOK {
				t.Fatalf("%d %s", status, body)
			}
		})
		t.Logf("open %v after the policy", took)
		if took <= time.Second {
			break
		}
		w.ask(http.MethodPost, policiesPath+"/delete", w.body("tcp", 8080))
	}
	if took > time.Second {
		t.Errorf("open %v after the policy, want at most 1s", took)
	}
	var list v3.NetworkPolicies
	if _, body := w.ask(http.MethodGet, policiesPath+"?id="+w.appGUID("front"), ""); json.Unmarshal([]byte(body), &list) != nil || list.Total != 1 || len(list.Policies) != 1 {
		t.Errorf("policies: %s", body)
	}
	if out := w.dewOutput("network-policies"); !strings.Contains(out, "front") || !strings.Contains(out, "8080") {
		t.Errorf("dew network-policies:\n%s", out)
	}

	w.kill(syscall.SIGKILL)
	w.startDewd()
	if status, body := w.connect(); status != http.StatusOK {
		t.Errorf("after a restart of dewd: %d %q", status, body)
	}
	w.dew("remove-network-policy", "front", "back", "--protocol", "tcp", "--port", "8080")
	w.eventually("the policy is removed", func() error {
		if status, body := w.connect(); status != http.StatusBadGateway {
			return fmt.Errorf("%d %q", status, body)
		}
		return nil
	})

	// Without enforcement everything is open, and adopted instances get rules again.
	w.kill(syscall.SIGTERM)
	w.flags = []string{"--network-policies", "off"}
	w.startDewd()
	w.opensWithin(func() {})
	w.kill(syscall.SIGTERM)
	w.flags = nil
	w.startDewd()
	w.refused("with the setting of the root again")
	if got := w.instance("front"); got != front {
		t.Errorf("instance %s, want %s: the app was restarted", got, front)
	}
	w.usesPoliciesWithStockCF()
	w.closesOutside()
}

// usesPoliciesWithStockCF adds, lists and removes a policy with the stock client.
func (w *policyTest) usesPoliciesWithStockCF() {
	bin := os.Getenv("CF_BIN")
	if bin == "" {
		return
	}
	w.t.Helper()
	cf := w.stockCF(bin)
	password, err := os.ReadFile(filepath.Join(w.root, "admin-password"))
	if err != nil {
		w.t.Fatal(err)
	}
	cf("api", w.status.API)
	cf("auth", "admin", strings.TrimSpace(string(password)))
	cf("target", "-o", "local", "-s", "dev")
	w.opensWithin(func() { cf("add-network-policy", "front", "back", "--protocol", "tcp", "--port", "8080") })
	if out := cf("network-policies"); !strings.Contains(out, "front") || !strings.Contains(out, "8080") {
		w.t.Errorf("cf network-policies:\n%s", out)
	}
	cf("remove-network-policy", "front", "back", "--protocol", "tcp", "--port", "8080")
	w.eventually("the policy is removed", func() error {
		if status, body := w.connect(); status != http.StatusBadGateway {
			return fmt.Errorf("%d %q", status, body)
		}
		return nil
	})
}

// closesOutside takes the default security group away from running apps. The log
// explains refused connections to other machines and to this one.
func (w *policyTest) closesOutside() {
	w.t.Helper()
	w.dew("unbind-running-security-group", "default")
	outside := w.silentHost()
	w.eventually("the outside is closed", func() error {
		if status, body := w.get("front", "/fetch?url=http://"+outside+"/"); status != http.StatusBadGateway || !strings.Contains(body, "connection refused") {
			return fmt.Errorf("%d %q", status, body)
		}
		return nil
	})
	w.logged("front", "Connection refused: app front to "+outside+", tcp port 80. No security group of space dev allows it. "+
		`Add the rule {"protocol":"tcp","destination":"`+outside+`","ports":"80"} to a security group`)
	if status, body := w.get("front", "/fetch?url=http://api.dew.internal:9/"); status != http.StatusBadGateway || !strings.Contains(body, "connection refused") {
		w.t.Errorf("a closed port of the machine: %d %q", status, body)
	}
	w.logged("front", "tcp port 9). Instances reach only the DNS server, the API and the routes of this machine.")
	_, port, _ := strings.Cut(strings.TrimPrefix(w.status.API, "http://"), ":")
	if status, body := w.get("front", "/fetch?url=http://api.dew.internal:"+port+"/"); status != http.StatusOK {
		w.t.Errorf("the API from inside: %d %q", status, body)
	}
}

// silentHost returns an address outside dew's network that never answers. The machine
// routes it to a device of its own, so only dew's rules can refuse a connection to it.
func (w *policyTest) silentHost() string {
	w.t.Helper()
	device := fmt.Sprintf("dewout%d", os.Getpid()%10_000_000)
	address := fmt.Sprintf("198.51.100.%d", os.Getpid()%250+1)
	w.t.Cleanup(func() { _ = exec.Command("ip", "link", "del", device).Run() })
	for _, args := range [][]string{
		{"link", "add", device, "type", "veth", "peer", "name", device + "p"},
		{"link", "set", device + "p", "up"},
		{"link", "set", device, "arp", "off", "up"},
		{"route", "add", address + "/32", "dev", device},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			w.t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	return address
}
