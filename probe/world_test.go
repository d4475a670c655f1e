package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/fire/world"
	"github.com/dewrun/dew/services/servicestest"
	"github.com/dewrun/dew/testkit"
)

// attack is a probe that can be run. It returns what happened, and an error if that is not
// what must happen.
type attack struct {
	Probe
	run func(w *target) (seen string, err error)
}

// attacks returns all probes in the order of the page.
func attacks() []attack {
	return slices.Concat(containerAttacks(), networkAttacks(), fileAttacks(), spaceAttacks(), tokenAttacks(), requestAttacks(), archiveAttacks(), outputAttacks(), secretAttacks())
}

// canary is in every secret of the victim. No one else must ever see it.
const canary = "canary-5f3a9c"

// password is the password of all users. It is a secret as well.
const password = canary + "-password"

// target is the dewd under attack, with an app and services of a victim, and an app and
// users of the attackers.
type target struct {
	*world.World
	t      testing.TB
	broker *servicestest.Broker
	peer   string // URL of the broker

	victim, attacker appIDs
	victimHome       string // DEW_HOME of an administrator in the space of the victim
	attackerHome     string
	files            string // folder with the pushed app

	admin     string   // token
	outsiders []caller // users without a role in the space of the victim
	insiders  map[string]caller
}

// appIDs are the guids around an app.
type appIDs struct {
	org, space, app, process, pkg, droplet, route, task string
	service, binding, key, provided                     string
	address                                             string // of the instance
}

// caller is a user of the API.
type caller struct {
	name, token string
}

// The apps of the attacker and of the victim run the same program.
const appManifest = `applications:
- name: %s
  buildpacks: [binary_buildpack]
  path: %s
  command: ./attacker
  memory: 96M
  health-check-type: port
  env: {NAME: %s, GREETING: %s, SECRET: %s}
`

// newTarget starts dewd and creates everything that the probes attack.
func newTarget(t testing.TB, bin string) *target {
	t.Helper()
	dir := testkit.ShortDir(t)
	inner, err := world.Plain(dir, bin, "--crash-files", "64MiB", "--staging-memory", "256MiB")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("dewd:\n%s", inner.LogTail())
		}
		if err := inner.TearDown(); err != nil {
			t.Error(err)
		}
	})
	w := &target{World: inner, t: t, insiders: map[string]caller{}, victimHome: filepath.Join(dir, "v"), attackerHome: filepath.Join(dir, "a"), files: filepath.Join(dir, "app")}
	if err := inner.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.broker = servicestest.New(brokerCatalog)
	server := httptest.NewServer(w.broker)
	t.Cleanup(server.Close)
	w.peer = server.URL
	program := testkit.Must(os.ReadFile(filepath.Join(bin, "attacker")))(t)
	testkit.WriteFile(t, filepath.Join(w.files, "attacker"), string(program))
	w.must(os.Chmod(filepath.Join(w.files, "attacker"), 0o755))
	testkit.WriteFile(t, filepath.Join(w.files, "private.txt"), strings.Repeat(canary+" in a file\n", 100))
	w.services()
	w.victim = w.push(w.victimHome, "victim", "prod", canary+"-greeting", canary+"-env")
	w.attacker = w.push(w.attackerHome, "attacker", "lab", "hello", "nothing")
	w.furnish()
	w.users()
	return w
}

// brokerCatalog is a service with a dashboard. %s is replaced by the address of a peer.
const brokerCatalog = `{"services":[{"id":"o1","name":"vault","description":"d","bindable":true,` +
	`"dashboard_client":{"id":"vault-dashboard","secret":"hush","redirect_uri":"http://127.0.0.1:1/cb"},` +
	`"plans":[{"id":"p1","name":"small","description":"d"}]}]}`

func (w *target) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// services registers the broker.
func (w *target) services() {
	w.t.Helper()
	w.dewWith(w.broker.Password, w.victimHome, "create-service-broker", "vaults", w.broker.Username, w.peer, "--password-stdin")
	w.dew(w.victimHome, "enable-service-access", "vault")
}

// push creates an org with a space and an app.
func (w *target) push(home, name, space, greeting, secret string) (ids appIDs) {
	w.t.Helper()
	w.dew(home, "create-org", name)
	w.dew(home, "create-space", space, "-o", name)
	w.dew(home, "target", "-o", name, "-s", space)
	file := filepath.Join(home, "manifest.yml")
	testkit.WriteFile(w.t, file, fmt.Sprintf(appManifest, name, w.files, name, greeting, secret))
	w.dew(home, "push", "-f", file)
	ids.app = strings.TrimSpace(w.dew(home, "app", name, "--guid"))
	ids.space = w.guid("/v3/spaces?names=" + space)
	ids.org = w.guid("/v3/organizations?names=" + name)
	ids.process = w.guid("/v3/apps/" + ids.app + "/processes")
	ids.pkg = w.guid("/v3/apps/" + ids.app + "/packages")
	ids.droplet = w.guid("/v3/apps/" + ids.app + "/droplets")
	ids.route = w.guid("/v3/apps/" + ids.app + "/routes")
	var stats struct {
		Resources []struct {
			Address string `json:"instance_internal_ip"`
		}
	}
	w.read("/v3/processes/"+ids.process+"/stats", &stats)
	if len(stats.Resources) != 1 || stats.Resources[0].Address == "" {
		w.t.Fatalf("%s has no address: %v", name, stats)
	}
	ids.address = stats.Resources[0].Address
	return ids
}

// furnish gives the victim services, a task and a private route.
func (w *target) furnish() {
	w.t.Helper()
	v := &w.victim
	w.dew(w.victimHome, "create-service", "vault", "small", "vault", "--wait")
	w.dew(w.victimHome, "bind-service", "victim", "vault", "--wait")
	w.dew(w.victimHome, "create-service-key", "vault", "key", "--wait")
	w.dew(w.victimHome, "create-user-provided-service", "provided", "-p", `{"secret":"`+canary+`-provided"}`)
	v.service, v.provided = w.guid("/v3/service_instances?names=vault"), w.guid("/v3/service_instances?names=provided")
	v.binding = w.guid("/v3/service_credential_bindings?type=app&service_instance_guids=" + v.service)
	v.key = w.guid("/v3/service_credential_bindings?type=key&service_instance_guids=" + v.service)
	w.dew(w.victimHome, "run-task", "victim", "--command", "echo "+canary+"-task", "--name", "secret")
	v.task = w.guid("/v3/apps/" + v.app + "/tasks")
}

// The roles in an org and in a space.
var orgRoles, spaceRoles = []string{"OrgManager", "OrgAuditor", "BillingManager"}, []string{"SpaceDeveloper", "SpaceManager", "SpaceAuditor", "SpaceSupporter"}

// users creates a user for each role in another org, for each role in another space of the
// org of the victim, and for each role in the space of the victim.
func (w *target) users() {
	w.t.Helper()
	w.dew(w.victimHome, "create-space", "sibling", "-o", "victim")
	add := func(name string, args ...string) caller {
		w.dewWith(password, w.victimHome, "create-user", name, "--password-stdin")
		if len(args) > 0 {
			w.dew(w.victimHome, append([]string{args[0], name}, args[1:]...)...)
		}
		return caller{name: name, token: w.login(name)}
	}
	w.outsiders = append(w.outsiders, add("nobody"))
	for _, role := range orgRoles {
		w.outsiders = append(w.outsiders, add(role+"-there", "set-org-role", "attacker", role))
	}
	for _, role := range spaceRoles {
		w.outsiders = append(w.outsiders, add(role+"-there", "set-space-role", "attacker", "lab", role), add(role+"-beside", "set-space-role", "victim", "sibling", role))
		w.insiders[role] = add(role+"-here", "set-space-role", "victim", "prod", role)
	}
	for _, role := range orgRoles[1:] { // a manager sees all spaces of the org
		w.insiders[role] = add(role+"-here", "set-org-role", "victim", role)
	}
	var made struct {
		AccessToken string `json:"access_token"`
	}
	w.must(json.Unmarshal([]byte(w.dew(w.victimHome, "curl", "-X", "POST", "/dew/v1/token")), &made))
	w.admin = made.AccessToken
}

// outsider returns the user with a name.
func (w *target) outsider(name string) caller {
	w.t.Helper()
	i := slices.IndexFunc(w.outsiders, func(c caller) bool { return c.name == name })
	if i < 0 {
		w.t.Fatalf("there is no user %s", name)
	}
	return w.outsiders[i]
}

// developer is the developer of the attacker's space.
func (w *target) developer() caller { w.t.Helper(); return w.outsider("SpaceDeveloper-there") }

// login returns the access token of a user.
func (w *target) login(name string) string {
	w.t.Helper()
	token, _, err := w.tokens(url.Values{"grant_type": {"password"}, "username": {name}, "password": {password}})
	w.must(err)
	return token
}

// tokens asks for tokens as cf does.
func (w *target) tokens(form url.Values) (access, refresh string, err error) {
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "http://"+w.API+"/uaa/oauth/token", strings.NewReader(form.Encode()))
	if err != nil {
		return "", "", err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth("cf", "")
	a, err := send(r)
	if err != nil {
		return "", "", err
	}
	var got struct {
		Access  string `json:"access_token"`
		Refresh string `json:"refresh_token"`
	}
	if a.status != http.StatusOK {
		return "", "", fmt.Errorf("no token: %s", a)
	}
	err = json.Unmarshal([]byte(a.body), &got)
	return got.Access, got.Refresh, err
}

// dew runs a command that must succeed, as an administrator.
func (w *target) dew(home string, args ...string) string {
	w.t.Helper()
	return w.dewWith("", home, args...)
}

// dewWith is dew with an input.
func (w *target) dewWith(input, home string, args ...string) string {
	w.t.Helper()
	out, all, err := w.runDew(input, home, args...)
	if err != nil {
		w.t.Fatalf("dew %s: %v\n%s", strings.Join(args, " "), err, all)
	}
	return out
}

// runDew runs a command, and returns its output without and with error messages.
func (w *target) runDew(input, home string, args ...string) (out, all string, err error) {
	cmd := exec.CommandContext(w.t.Context(), filepath.Join(w.Bin, "dew"), args...)
	cmd.Env = append(os.Environ(), "DEW_RUN="+w.Run, "DEW_HOME="+home)
	cmd.Stdin = strings.NewReader(input)
	var good, bad bytes.Buffer
	cmd.Stdout, cmd.Stderr = &good, &bad
	err = cmd.Run()
	return good.String(), good.String() + bad.String(), err
}

// read reads a resource as an administrator.
func (w *target) read(path string, into any) {
	w.t.Helper()
	w.must(json.Unmarshal([]byte(w.dew(w.victimHome, "curl", path)), into))
}

// guid returns the guid of the first resource of a list.
func (w *target) guid(path string) string {
	w.t.Helper()
	var list struct{ Resources []struct{ GUID string } }
	w.read(path, &list)
	if len(list.Resources) == 0 {
		w.t.Fatalf("%s is empty", path)
	}
	return list.Resources[0].GUID
}

// answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) String() string { return fmt.Sprintf("%d %.300s", a.status, a.body) }

// client follows no redirects.
var client = &http.Client{
	Timeout:       testkit.Patience,
	Transport:     &http.Transport{Proxy: nil, MaxIdleConnsPerHost: 1},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func send(r *http.Request) (answer, error) {
	resp, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return answer{status: resp.StatusCode, header: resp.Header, body: string(b)}, err
}

// ask sends a request to the API with a token.
func (w *target) ask(token, method, path, body string) (answer, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), testkit.Patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+w.API+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if token != "" {
		r.Header.Set("Authorization", "bearer "+token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return send(r)
}

// try lets the app of the attacker try something in its container.
func (w *target) try(attempt string, args ...string) (string, error) {
	return w.tryIn("attacker", attempt, args...)
}

func (w *target) tryIn(app, attempt string, args ...string) (string, error) {
	q := url.Values{}
	for i := 0; i+1 < len(args); i += 2 {
		q.Add(args[i], args[i+1])
	}
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "http://"+w.Router+"/try/"+attempt+"?"+q.Encode(), http.NoBody)
	if err != nil {
		return "", err
	}
	r.Host = app + ".dew.localhost"
	a, err := send(r)
	if err == nil && a.status != http.StatusOK {
		err = fmt.Errorf("the attempt %s could not be made: %s", attempt, a)
	}
	return a.body, err
}

// rawTime limits the wait for a server that keeps a connection open. Only a failed probe
// waits.
const rawTime = 20 * time.Second

// raw sends bytes to an address and returns everything that comes back until the server
// closes the connection.
func raw(address, request string) (string, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(rawTime)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, request); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	if errors.Is(err, net.ErrClosed) || len(b) > 0 {
		err = nil // a reset after the answer
	}
	return string(b), err
}

// allowed returns an error if something was seen that must not happen.
func allowed(seen string, want ...string) (string, error) {
	if slices.Contains(want, seen) {
		return seen, nil
	}
	return seen, fmt.Errorf("seen %q, want one of %q", seen, want)
}

// gateway is the address of the machine in the network of the instances.
func (w *target) gateway() string {
	w.t.Helper()
	ip := net.ParseIP(w.attacker.address).To4()
	bridge, err := net.InterfaceByName(w.Names.Bridge)
	w.must(err)
	addrs, err := bridge.Addrs()
	w.must(err)
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.Contains(ip) {
			return n.IP.String()
		}
	}
	w.t.Fatalf("the bridge has no address for %s", ip)
	return ""
}

// until waits for a condition.
func (w *target) until(ok func() error) error { return testkit.Until(ok) }

// statuses returns the different status codes.
func statuses(codes []int) string {
	slices.Sort(codes)
	var out []string
	for _, c := range slices.Compact(codes) {
		out = append(out, fmt.Sprint(c))
	}
	return strings.Join(out, ", ")
}
