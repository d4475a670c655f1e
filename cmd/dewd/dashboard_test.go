//go:build integration

package main

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/oauth2"

	"github.com/dewrun/dew/services/servicestest"
)

// dashboards is a broker whose services have a dashboard, and the dashboard itself. It
// is a program that knows only the public API.
type dashboards struct {
	t   *testing.T
	api string
	web *httptest.Server
}

const dashboardCatalog = `{"services":[{"id":"o1","name":"ledger","description":"d","bindable":true,%s"plans":[{"id":"p1","name":"small","description":"d"}]}]}`

func (d *dashboards) catalog(secret string) string {
	client := ""
	if secret != "" {
		client = fmt.Sprintf(`"dashboard_client":{"id":"ledger-dashboard","secret":%q,"redirect_uri":%q},`, secret, d.web.URL+"/cb")
	}
	return fmt.Sprintf(dashboardCatalog, client)
}

func (d *dashboards) oauth(secret string) *oauth2.Config {
	return &oauth2.Config{
		ClientID: "ledger-dashboard", ClientSecret: secret, RedirectURL: d.web.URL + "/cb",
		Scopes:   []string{"openid", "cloud_controller_service_permissions.read"},
		Endpoint: oauth2.Endpoint{AuthURL: d.api + "/uaa/oauth/authorize", TokenURL: d.api + "/uaa/oauth/token"},
	}
}

// ServeHTTP sends a browser to the login, and shows what the user can do.
func (d *dashboards) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const verifier = "a-verifier-of-the-dashboard-that-is-long-enough"
	if guid, ok := strings.CutPrefix(r.URL.Path, "/manage/"); ok {
		http.Redirect(w, r, d.oauth("hush").AuthCodeURL(guid, oauth2.S256ChallengeOption(verifier)), http.StatusFound)
		return
	}
	token, err := d.oauth("hush").Exchange(r.Context(), r.FormValue("code"), oauth2.VerifierOption(verifier))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	client := oauth2.NewClient(r.Context(), oauth2.StaticTokenSource(token))
	for _, path := range []string{"/uaa/userinfo", "/v3/service_instances/" + r.FormValue("state") + "/permissions", "/v2/service_instances/" + r.FormValue("state") + "/permissions", "/v3/apps"} {
		resp, err := client.Get(d.api + path)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		b, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		fmt.Fprintf(w, "%d %s\n", resp.StatusCode, b)
	}
}

// opensDashboards opens the dashboard of a service in a browser. The user logs in once,
// and the dashboard learns who it is and what the user can do.
func (c *cell) opensDashboards(t *testing.T) {
	var status struct{ API string }
	out, err := c.dewCommand("status", "--json").Output()
	if err == nil {
		err = json.Unmarshal(out, &status)
	}
	if err != nil {
		t.Fatal(err)
	}
	d := &dashboards{t: t, api: status.API}
	d.web = httptest.NewServer(d)
	t.Cleanup(d.web.Close)
	broker := servicestest.New(d.catalog("hush"))
	server := httptest.NewServer(broker)
	t.Cleanup(server.Close)
	c.dewWith(broker.Password, "create-service-broker", "books", broker.Username, server.URL, "--password-stdin")
	c.dew("enable-service-access", "ledger")
	c.dew("create-service", "ledger", "small", "mine")
	c.dewWith("s3cret", "create-user", "dora", "--password-stdin")
	c.dew("set-space-role", "dora", "local", "dev", "SpaceDeveloper")
	out, err = c.dewCommand("service", "mine", "--guid").Output()
	if err != nil {
		t.Fatal(err)
	}
	guid := strings.TrimSpace(string(out))
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, Timeout: patience}
	page := read(t)(browser.Get(d.web.URL + "/manage/" + guid))
	field := func(name string) string {
		found := regexp.MustCompile(`name="` + name + `" value="([^"]*)"`).FindStringSubmatch(page)
		if found == nil {
			t.Fatalf("no field %s in\n%s", name, page)
		}
		return html.UnescapeString(found[1])
	}
	shown := read(t)(browser.PostForm(d.api+"/uaa/login.do", url.Values{
		"X-Uaa-Csrf": {field("X-Uaa-Csrf")}, "request": {field("request")}, "username": {"dora"}, "password": {"s3cret"},
	}))
	for _, want := range []string{`"user_name":"dora"`, `200 {"read":true,"manage":true}`, "403 "} {
		if !strings.Contains(shown, want) {
			t.Errorf("the dashboard shows\n%s\nwant %s", shown, want)
		}
	}
	if strings.Count(shown, `{"read":true,"manage":true}`) != 2 {
		t.Errorf("the permissions at both addresses:\n%s", shown)
	}
	if again := read(t)(browser.Get(d.web.URL + "/manage/" + guid)); again != shown {
		t.Errorf("the second time the dashboard shows\n%s\nwant no form but\n%s", again, shown)
	}
	broker.SetCatalog(d.catalog(""))
	c.dewWith(broker.Password, "update-service-broker", "books", broker.Username, server.URL, "--password-stdin")
	if gone := read(t)(browser.Get(d.web.URL + "/manage/" + guid)); !strings.Contains(gone, "not that of a dashboard") {
		t.Errorf("a dashboard that left the catalog: %s", gone)
	}
	c.dew("delete-service", "mine", "-f", "--wait")
	c.dew("delete-service-broker", "books", "-f")
}

// dewWith runs a command that reads a password and must succeed.
func (c *cell) dewWith(password string, args ...string) {
	c.t.Helper()
	cmd := c.dewCommand(args...)
	cmd.Stdin = strings.NewReader(password + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("dew %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// read returns the body of a response.
func read(t testing.TB) func(resp *http.Response, err error) string {
	return func(resp *http.Response, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
}
