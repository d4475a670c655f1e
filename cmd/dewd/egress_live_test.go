//go:build integration

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/dewrun/dew/services/servicestest"
	"github.com/dewrun/dew/testkit"
)

const smallCatalog = `{"services": [{"id": "s-%[1]s", "name": "s-%[1]s", "description": "d", "bindable": true, "plans": [{"id": "p-%[1]s", "name": "p", "description": "d"}]}]}`

// spy listens on a port of the machine that must get no connections.
func spy(t *testing.T) (address string, met *atomic.Int32) {
	t.Helper()
	l := testkit.Listen(t)
	met = new(atomic.Int32)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			met.Add(1)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret")
			c.Close()
		}
	}()
	return l.Addr().String(), met
}

// developer is a user who is a developer in the space dev, and not an administrator.
type developer struct {
	*routeTest
	token, space string
}

func (w *routeTest) developer() *developer {
	w.t.Helper()
	w.dewOutput("create-user", "dora", "secret word")
	w.dewOutput("set-space-role", "dora", "local", "dev", "SpaceDeveloper")
	d := &developer{routeTest: w, space: w.guid("/v3/spaces?names=dev")}
	d.login()
	return d
}

// login gets a token. Another daemon has another URL, and does not accept a token of
// this one.
func (d *developer) login() {
	d.t.Helper()
	form := url.Values{"grant_type": {"password"}, "username": {"dora"}, "password": {"secret word"}}
	req, err := http.NewRequest(http.MethodPost, d.status.API+"/uaa/oauth/token", strings.NewReader(form.Encode()))
	if err != nil {
		d.t.Fatal(err)
	}
	req.SetBasicAuth("cf", "")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	var got struct {
		Token string `json:"access_token"`
	}
	res, err := d.client.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&got); err != nil || got.Token == "" {
		d.t.Fatalf("no token: %d, %v", res.StatusCode, err)
	}
	d.token = got.Token
}

// call sends a request to the API as the developer.
func (d *developer) call(method, path, body string) (status int, header http.Header, text string) {
	d.t.Helper()
	req, err := http.NewRequest(method, d.status.API+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Authorization", "bearer "+d.token)
	req.Header.Set("Content-Type", "application/json")
	res, err := d.client.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(b)
}

// register creates a broker of the space and returns the error, or nothing.
func (d *developer) register(name, where string) (failure string) {
	d.t.Helper()
	body := fmt.Sprintf(`{"name":%q,"url":%q,"authentication":{"type":"basic","credentials":{"username":"user","password":"pass"}},"relationships":{"space":{"data":{"guid":%q}}}}`, name, where, d.space)
	status, header, text := d.call(http.MethodPost, "/v3/service_brokers", body)
	if status != http.StatusAccepted {
		d.t.Fatalf("register %s: %d %s", name, status, text)
	}
	job, err := url.Parse(header.Get("Location"))
	if err != nil {
		d.t.Fatal(err)
	}
	d.eventually("the job ends", func() error {
		var got struct {
			State  string
			Errors []struct{ Detail string }
		}
		_, _, text := d.call(http.MethodGet, job.Path, "")
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			return err
		}
		switch got.State {
		case "COMPLETE":
			return nil
		case "FAILED":
			failure = got.Errors[0].Detail
			return nil
		}
		return fmt.Errorf("%s", text)
	})
	return failure
}

// A developer's broker, drain and route service cannot make dewd connect to a port of
// the machine, and reveal nothing about it. They can use routes of dew. URLs of an
// older dewd, which did not store their owner, still work, and are reported.
func TestURLsOfDevelopers(t *testing.T) {
	runParallel(t)
	fake := httptest.NewServer(servicestest.New(fmt.Sprintf(smallCatalog, "old")))
	t.Cleanup(fake.Close)
	w := &routeTest{cell: newCell(t), client: &http.Client{Timeout: patience}}
	secret, met := spy(t)
	oldStore(t, w.root, strings.TrimPrefix(fake.URL, "http://"), secret, secret)
	w.startDewd()
	d := w.developer()
	w.oldURLsWork(met)
	w.push("shop", "")
	w.awaitResponse("shop", "/", "web 0")

	const refusal = "The service broker could not be reached: dew does not connect to a loopback address for users who are not administrators; an administrator can allow the host with dewd --allow-broker-hosts"
	_, port, _ := net.SplitHostPort(secret)
	for i, where := range []string{"http://" + secret, "http://127.0.0.1:1", "http://localhost:" + port, w.status.API, "https://[::ffff:127.0.0.1]:" + port} {
		if got := d.register(fmt.Sprintf("b%d", i), where); got != refusal {
			t.Errorf("broker at %s: %q", where, got)
		}
	}
	// The host of a route leads to its app, not to the port in the URL.
	if got := d.register("routed", "http://shop.dew.localhost:"+port); !strings.Contains(got, "The service broker returned an invalid response") {
		t.Errorf("broker that is an app: %q", got)
	}
	d.refusesDrain(secret)
	d.refusesRouteService(secret)
	if n := met.Load(); n > 0 {
		t.Errorf("%d connections to the port", n)
	}

	log := w.said
	w.kill(syscall.SIGTERM)
	for _, kind := range []string{"service broker", "log drain", "route service"} {
		if !strings.Contains(log.String(), `now only an administrator can set such a URL (set it again as an administrator, or allow its host with --allow-broker-hosts)" kind="`+kind+`" name=old-`) {
			t.Errorf("the log does not name the old %s\n%s", kind, log)
		}
	}
	w.flags = append(w.flags, "--allow-broker-hosts", "127.0.0.0/8")
	w.startDewd()
	d.login()
	again := httptest.NewServer(servicestest.New(fmt.Sprintf(smallCatalog, "new")))
	t.Cleanup(again.Close)
	if got := d.register("allowed", again.URL); got != "" {
		t.Errorf("broker at an allowed address: %q", got)
	}
}

// oldURLsWork checks that the old broker gets requests, and that the log and doctor
// report it.
func (w *routeTest) oldURLsWork(met *atomic.Int32) {
	w.t.Helper()
	w.eventually("the old broker has a catalog", func() error {
		if s := w.getBody("/v3/service_offerings?names=s-old"); !strings.Contains(s, `"s-old"`) {
			return fmt.Errorf("%s", s)
		}
		return nil
	})
	out, err := w.command("doctor").Output()
	if err != nil {
		w.t.Errorf("doctor: %v", err)
	}
	for _, name := range []string{"service broker old-broker (", "log drain old-door (", "route service old-door ("} {
		if !strings.Contains(string(out), name) {
			w.t.Errorf("doctor does not name %s\n%s", name, out)
		}
	}
	w.dewOutput("delete-service", "-f", "old-door")
	met.Store(0)
}

// refusesDrain binds a drain of the developer, and checks that the app's log has the
// reason why nothing is sent.
func (d *developer) refusesDrain(secret string) {
	d.t.Helper()
	d.provide("papers", `"syslog_drain_url":"syslog://`+secret+`"`)
	d.dewOutput("bind-service", "shop", "papers")
	d.eventually("the drain says why it sends nothing", func() error {
		if log := d.dewOutput("logs", "shop", "--recent"); !strings.Contains(log, "drain papers: cannot send to syslog://"+secret+": dew does not connect to a loopback address") {
			return fmt.Errorf("%s", log)
		}
		return nil
	})
}

// refusesRouteService binds a route service of the developer. The route then refuses all
// requests.
func (d *developer) refusesRouteService(secret string) {
	d.t.Helper()
	d.provide("door", `"route_service_url":"https://`+secret+`"`)
	d.dewOutput("bind-route-service", "dew.localhost", "--hostname", "shop", "door")
	d.becomes(http.StatusBadGateway)
	if _, body := d.get("shop", "/"); !strings.Contains(body, "The address of the Route Service is not allowed") {
		d.t.Errorf("the route answers %q", body)
	}
}

// provide creates a user-provided service instance.
func (d *developer) provide(name, more string) {
	d.t.Helper()
	body := fmt.Sprintf(`{"type":"user-provided","name":%q,"relationships":{"space":{"data":{"guid":%q}}},%s}`, name, d.space, more)
	if status, _, text := d.call(http.MethodPost, "/v3/service_instances", body); status != http.StatusCreated {
		d.t.Fatalf("provide %s: %d %s", name, status, text)
	}
}
