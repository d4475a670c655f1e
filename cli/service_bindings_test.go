package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
	"github.com/dewrun/dew/cli/services"
	"github.com/dewrun/dew/testkit"
)

func TestBindService(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	d.services.instance("kv", v3.ServiceManaged)
	d.services.instance("mail", v3.ServiceUserProvided)
	const to = `"relationships":{"app":{"data":{"guid":"app-1"}},"service_instance":{"data":{"guid":"s-kv"}}}}`
	d.dew("bind-service", "shop", "kv").must(t, 0, "Bound shop to kv. To stage and start the app with the credentials: dew start shop")
	d.builds = []v3.Build{{GUID: "build-1", State: v3.BuildStaged}}
	d.dew("bind-service", "shop", "kv").must(t, 0, "Bound shop to kv. To pass the credentials to the app: dew restage shop")
	d.wantBody(postBinding, `{"type":"app",`+to)
	d.dew("bs", "shop", "kv", "--binding-name", "cache", "-c", `{"a":1}`, "--strategy", "multiple", "--wait").must(t, 0, "Bound shop to kv")
	d.wantBody(postBinding, `{"type":"app","name":"cache","strategy":"multiple","parameters":{"a":1},`+to)
	d.dew("bs", "shop", "mail").must(t, 0, "Bound shop to mail")
	d.dew("bs", "shop", "kw").must(t, 1, `did you mean "kv"?`)
	d.dew("bs", "shup", "kv").must(t, 1, `did you mean "shop"?`)
	d.dew("bs", "shop", "kv", "--strategy", "twice").must(t, 2, `--strategy must be single or multiple, not "twice"`)
	d.services.late = true
	d.dew("bs", "shop", "kv").must(t, 0, "is in progress. To check its status: dew service kv")
	d.dew("bs", "shop", "kv", "-w").must(t, 0, "Bound shop to kv")
	d.services.fails = "The service broker is asleep"
	d.dew("bs", "shop", "kv", "-w").must(t, 1, "cannot bind shop to kv: The service broker is asleep")
	d.refuses(postBinding, "The app is already bound to the service instance")
	d.dew("bs", "shop", "kv").must(t, 0, "App shop is already bound to kv")
	d.refuses(postBinding, "The binding name is invalid. The app already has a binding with name 'x'.")
	d.dew("bs", "shop", "kv").must(t, 1, "cannot bind shop to kv: The binding name is invalid")
}

func TestUnbindService(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	d.services.instance("kv", v3.ServiceManaged)
	d.dew("unbind-service", "shop", "kv").must(t, 0, "App shop is not bound to kv")
	one, two := d.services.bind("s-kv", "app-1", "").GUID, d.services.bind("s-kv", "app-1", "").GUID
	d.dew("us", "shop", "kv", "--guid", "c-99").must(t, 1, `no binding to kv with guid "c-99"`, "To show the guids of its bindings: dew service kv --json")
	d.dew("us", "shop", "kv", "--guid", two).must(t, 0, "Unbound shop from kv")
	if d.count("DELETE /v3/service_credential_bindings/"+one) != 0 || d.count("DELETE /v3/service_credential_bindings/"+two) != 1 {
		t.Errorf("asked %v", d.requests)
	}
	d.services.late = true
	d.dew("us", "shop", "kv").must(t, 0, "Unbinding shop from kv is in progress")
	d.dew("us", "shop", "kv", "-w").must(t, 0, "Unbound shop from kv")
	d.services.bind("s-kv", "app-1", "")
	d.services.fails = "The broker will not"
	d.dew("us", "shop", "kv", "-w").must(t, 1, "cannot unbind shop from kv: The broker will not")
}

func TestCleanupBindings(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	d.services.instance("kv", v3.ServiceManaged)
	d.services.instance("db", v3.ServiceManaged)
	const cleanup = "cleanup-outdated-service-bindings"
	d.services.bind("s-kv", "app-1", "")
	d.dew(cleanup, "shop").must(t, 0, "App shop has no outdated service bindings")
	d.services.bind("s-kv", "app-1", "")
	d.services.bind("s-db", "app-1", "")
	d.services.bind("s-db", "app-1", "")
	d.dew(cleanup, "shop").must(t, 2, "pass -f to delete 2 outdated service bindings of app shop")
	d.dew(cleanup, "shop", "--keep-last", "0").must(t, 2, "--keep-last must be at least 1, not 0")
	d.dew(cleanup, "shop", "-f", "--service-instance", "dbb").must(t, 1, `did you mean "db"?`)
	d.dew(cleanup, "shop", "-f", "--service-instance", "db").must(t, 0, "Deleted 1 outdated service binding of app shop")
	d.dew(cleanup, "shop", "-f", "--wait").must(t, 0, "Deleted 1 outdated service binding of app shop")
	if len(d.services.bindings) != 2 {
		t.Errorf("%v are left", d.services.bindings)
	}
}

func TestServiceKeys(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.services.instance("kv", v3.ServiceManaged)
	d.dew("service-keys", "kv").must(t, 0, "kv has no service keys. To create one: dew create-service-key kv KEY")
	if r := d.dew("service-keys", "kv", "--json"); r.out != "[]\n" {
		t.Errorf("got %s", r.out)
	}
	d.dew("create-service-key", "kv", "k1", "-c", `{"a":1}`).must(t, 0, "Created service key k1. To show it: dew service-key kv k1")
	d.wantBody(postBinding, `{"type":"key","name":"k1","parameters":{"a":1},"relationships":{"service_instance":{"data":{"guid":"s-kv"}}}}`)
	d.dew("sk", "kv").must(t, 0, "name   last operation\nk1     create succeeded")
	var keys []services.KeyRow
	r := d.dew("sk", "kv", "--json")
	if err := json.Unmarshal([]byte(r.out), &keys); err != nil || len(keys) != 1 || keys[0].Name != "k1" {
		t.Errorf("got %s, %v", r.out, err)
	}
	for _, args := range [][]string{{"service-key", "kv", "k1"}, {"service-key", "kv", "k1", "--json"}} {
		var v struct{ Credentials struct{ Password string } }
		r := d.dew(args...)
		if err := json.Unmarshal([]byte(r.out), &v); err != nil || v.Credentials.Password != "s3cret" {
			t.Errorf("got %s, %v", r.out, err)
		}
	}
	if r := d.dew("service-key", "kv", "k1", "--guid"); r.out != keys[0].GUID+"\n" {
		t.Errorf("got %s", r.out)
	}
	d.dew("service-key", "kv", "k2").must(t, 1, `kv has no service key "k2" (dew service-keys kv lists its keys)`)
	d.dew("service-key", "kw", "k1").must(t, 1, `did you mean "kv"?`)
	d.dew("delete-service-key", "kv", "k1").must(t, 2, "pass -f to delete service key k1")
	d.dew("dsk", "kv", "k2", "-f").must(t, 0, "Service key k2 does not exist")
	d.services.late = true
	d.dew("dsk", "kv", "k1", "-f").must(t, 0, "Deleting service key k1 is in progress")
	d.dew("dsk", "kv", "k1", "-f", "-w").must(t, 0, "Deleted service key k1")
	d.dew("csk", "kv", "k3").must(t, 0, "Creating service key k3 is in progress")
	d.dew("csk", "kv", "k4", "--wait").must(t, 0, "Created service key k4")
	const taken = "The binding name is invalid. Key binding names must be unique. The service instance already has a key binding with "
	d.refuses(postBinding, taken+"name 'k1'.")
	d.dew("csk", "kv", "k1").must(t, 0, "Service key k1 already exists")
	d.refuses(postBinding, taken+"the name 'k1' that is getting deleted or its deletion failed.")
	d.dew("csk", "kv", "k1").must(t, 1, "cannot create service key k1", "getting deleted")
}

func TestConnect(t *testing.T) {
	d := newDaemon(t)
	d.services.instance("kv", v3.ServiceManaged)
	d.services.instance("mail", v3.ServiceUserProvided)
	d.dew("connect", "mail").must(t, 1, "cannot connect to mail: it is user-provided")
	d.dew("connect", "kw").must(t, 1, `did you mean "kv"?`)
	folder := t.TempDir()
	program := "#!/bin/sh\necho \"args: $*\"\necho \"auth: $REDISCLI_AUTH\"\nread line; echo \"typed: $line\"\nexit 3\n"
	if err := os.WriteFile(filepath.Join(folder, "redis-cli"), []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder)
	r := runDewWithInput(t.Context(), "PING\n", "--run", d.run, "connect", "kv")
	if want := "args: -h 10.0.0.2 -p 6379 --user u\nauth: s3cret\ntyped: PING\n"; r.out != want || r.status != 3 || command.Explain(r.err) != "" {
		t.Errorf("status %d, %v\n%s\nwant\n%s", r.status, r.err, r.out, want)
	}
	t.Setenv("PATH", t.TempDir())
	d.dew("connect", "kv").must(t, console.StatusInfrastructure, "redis-cli", "cannot find the client program", "Install it")
	d.services.credentials = `{"uri":"https://x"}`
	d.dew("connect", "kv").must(t, 1, "no client program is known for this service")
	d.services.credentials = `{"port":"many"}`
	d.dew("connect", "kv").must(t, 1, "cannot read the credentials")
	if len(d.services.bindings) != 0 {
		t.Errorf("keys are left: %v", d.services.bindings)
	}
	d.services.fails = "The broker is asleep"
	d.dew("connect", "kv").must(t, 1, "cannot connect to kv: The broker is asleep")
	d.refuses(postBinding, "not bindable")
	d.dew("connect", "kv").must(t, 1, "cannot connect to kv: not bindable")
}

// SIGTERM stops dew connect and its client program, and the service key is deleted.
func TestConnectEnds(t *testing.T) {
	d := newDaemon(t)
	d.services.instance("kv", v3.ServiceManaged)
	folder := t.TempDir()
	file := filepath.Join(folder, "pid")
	if err := os.WriteFile(filepath.Join(folder, "redis-cli"), []byte("#!/bin/sh\necho $$ > "+file+".new && mv "+file+".new "+file+" && exec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	done := make(chan result, 1)
	go func() { done <- d.dew("connect", "kv") }()
	pid := 0
	testkit.Eventually(t, "the client runs", func() error {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err
	})
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.status != 128+int(syscall.SIGTERM) || command.Explain(r.err) != "" {
		t.Errorf("status %d, %v", r.status, r.err)
	}
	if stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil && !strings.Contains(string(stat), ") Z ") {
		t.Errorf("the client with pid %d still runs", pid)
	}
	if len(d.services.bindings) != 0 {
		t.Errorf("keys are left: %v", d.services.bindings)
	}
}

func TestSnapshots(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.services.instance("kv", v3.ServiceManaged)
	d.dew("service-snapshots", "kv").must(t, 0, "Service instance kv has no snapshots. To create one: dew service-snapshot kv")
	if r := d.dew("service-snapshots", "kv", "--json"); r.out != "[]\n" {
		t.Errorf("got %s", r.out)
	}
	d.dew("service-restore", "kv", "-f").must(t, 1, "service instance kv has no snapshots", "To create one: dew service-snapshot kv")
	d.dew("service-snapshot", "kv").must(t, 0, "Created snapshot 20261115-1 of kv (2.0K)")
	d.dew("service-snapshots", "kv").must(t, 0, "20261115-1", "2.0K")
	d.dew("service-snapshots", "kv", "--json").must(t, 0, `"guid": "20261115-1"`)
	d.dew("service-restore", "kv").must(t, 2, "pass -f to restore kv to snapshot 20261115-1 (newer data is lost)")
	d.dew("service-restore", "kv", "-f").must(t, 0, "Restored kv to snapshot 20261115-1")
	d.dew("service-restore", "kv", "nope", "-f").must(t, 1, "cannot restore kv to snapshot nope", "To list the snapshots: dew service-snapshots kv")
	d.dew("delete-service-snapshot", "kv", "20261115-1").must(t, 2, "pass -f to delete snapshot 20261115-1 of kv")
	d.dew("delete-service-snapshot", "kv", "nope", "-f").must(t, 1, "To list the snapshots: dew service-snapshots kv")
	d.dew("delete-service-snapshot", "kv", "20261115-1", "-f").must(t, 0, "Deleted snapshot 20261115-1 of kv")
	d.services.fails = "The disk is full"
	d.dew("service-snapshot", "kv").must(t, 1, "cannot create a snapshot of kv: The disk is full")
}

func TestShareService(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.services.instance("kv", v3.ServiceManaged)
	d.accounts.spaces = append(d.accounts.spaces, v3.Space{GUID: "space-2", Name: "guests", Relationships: v3.SpaceRelationships{Organization: v3.To("org-1")}})
	const shared = " /v3/service_instances/s-kv/relationships/shared_spaces"
	d.dew("share-service", "kv").must(t, 2, "share-service needs -s")
	d.dew("share-service", "kv", "-s", "guest").must(t, 1, "guest")
	d.dew("share-service", "kv", "-s", "guests", "-o", "nowhere").must(t, 1, `org "nowhere" does not exist`)
	d.dew("share-service", "kv", "-s", "guests").must(t, 0, "Shared kv with space guests")
	d.wantBody("POST"+shared, `{"data":[{"guid":"space-2"}]}`)
	d.dew("unshare-service", "kv", "-s", "guests").must(t, 2, "and delete its bindings there")
	d.dew("unshare-service", "kv", "-s", "guests", "-o", "local", "-f").must(t, 0, "Stopped sharing kv with space guests")
	if d.count("DELETE"+shared+"/space-2") != 1 {
		t.Errorf("asked %v", d.requests)
	}
	d.refuses("POST"+shared, "A service instance called kv already exists in guests.")
	d.dew("share-service", "kv", "-s", "guests").must(t, 1, "cannot share kv with space guests: A service instance called kv already exists")
}

func TestRouteServices(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.services.instance("limiter", v3.ServiceUserProvided)
	d.routes = []v3.Route{{GUID: "r-1", Host: "shop", URL: "shop.dew.localhost"}}
	bind := []string{"bind-route-service", "dew.localhost", "limiter", "--hostname", "shop"}
	d.dew(append(bind, "-c", `{"a":1}`)...).must(t, 0, "Bound route shop.dew.localhost to limiter")
	d.wantBody("POST /v3/service_route_bindings", `{"parameters":{"a":1},"relationships":{"route":{"data":{"guid":"r-1"}},"service_instance":{"data":{"guid":"s-limiter"}}}}`)
	d.dew(append([]string{"brs"}, bind[1:]...)...).must(t, 0, "is already bound to limiter")
	d.dew("brs", "dew.localhost", "limiter", "-n", "shap").must(t, 1, `route "shap.dew.localhost" does not exist`, "To list the routes: dew routes")
	d.dew("brs", "dew.localhost", "limitr", "-n", "shop").must(t, 1, `did you mean "limiter"?`)
	unbind := append([]string{"urs"}, bind[1:]...)
	d.dew(unbind...).must(t, 2, "pass -f to unbind route shop.dew.localhost from limiter")
	d.services.late = true
	d.dew(append(unbind, "-f")...).must(t, 0, "Unbinding route shop.dew.localhost from limiter is in progress")
	d.dew(append(unbind, "-f", "--wait")...).must(t, 0, "Unbound route shop.dew.localhost from limiter")
	d.dew(unbind...).must(t, 0, "is not bound to limiter")
	d.dew(bind...).must(t, 0, "Binding route shop.dew.localhost to limiter is in progress")
}

func TestBrokers(t *testing.T) {
	d := newDaemon(t)
	t.Setenv("CF_BROKER_PASSWORD", "")
	const post, patch = "POST /v3/service_brokers", "PATCH /v3/service_brokers/b-1"
	const basic = `"authentication":{"type":"basic","credentials":{"username":"clerk","password":"pw"}}`
	d.dew("create-service-broker", "paper", "clerk", "pw", "http://b").must(t, 0, "Created service broker paper")
	d.wantBody(post, `{"name":"paper","url":"http://b",`+basic+`}`)
	d.dew("csb", "paper", "clerk", "pw", "http://b").must(t, 1, "must be unique", "--update-if-exists")
	runDewWithInput(t.Context(), "pw\n", "--run", d.run, "csb", "here", "clerk", "http://b", "--space-scoped").must(t, 0, "Broker password: ", "Created service broker here")
	d.wantBody(post, `{"name":"here","url":"http://b",`+basic+`,"relationships":{"space":{"data":{"guid":"space-1"}}}}`)
	d.dew("csb", "x", "clerk", "http://b").must(t, 2, "cannot ask for the password", "--password-stdin, or set CF_BROKER_PASSWORD")
	d.dew("csb", "x", "clerk").must(t, 2, "no broker URL given")
	t.Setenv("CF_BROKER_PASSWORD", "pw")
	d.dew("csb", "dew", "clerk", "http://c", "--update-if-exists").must(t, 0, "Updated service broker dew")
	d.wantBody(patch, `{"url":"http://c",`+basic+`}`)
	d.dew("csb", "new", "clerk", "http://c", "--update-if-exists").must(t, 0, "Created service broker new")
	d.services.fails = "The service broker could not be reached"
	d.dew("csb", "dead", "clerk", "http://d").must(t, 1, "could not be reached", "created without its offerings", "dew update-service-broker dead")
	d.refuses(post, "must be a valid url")
	r := d.dew("csb", "odd", "clerk", "nourl")
	r.must(t, 1, "must be a valid url")
	if strings.Contains(command.Explain(r.err), "created without") {
		t.Errorf("a broker that does not exist is called created: %v", r.err)
	}
	d.dew("update-service-broker", "dwe", "clerk", "http://c").must(t, 1, `did you mean "dew"?`)
	d.dew("rename-service-broker", "dew", "dew2").must(t, 0, "Renamed service broker dew to dew2")
	d.wantBody(patch, `{"name":"dew2"}`)
	d.dew("service-brokers").must(t, 0, "name    url", "dew     builtin://dew")
	d.dew("service-brokers", "--json").must(t, 0, `"url": "http://b"`)
	d.dew("delete-service-broker", "dew").must(t, 2, "pass -f to delete service broker dew")
	d.dew("delete-service-broker", "nobody", "-f").must(t, 0, "Service broker nobody does not exist")
	d.services.fails = "Can not remove brokers that have associated service instances: dew"
	d.dew("delete-service-broker", "dew", "-f").must(t, 1, "cannot delete service broker dew: Can not remove")
	d.dew("delete-service-broker", "dew", "-f").must(t, 0, "Deleted service broker dew")
	d.services.brokers = nil
	if r := d.dew("service-brokers", "--json"); r.out != "[]\n" {
		t.Errorf("got %s", r.out)
	}
	d.dew("service-brokers").must(t, 0, "No service brokers are visible to you")
}

func TestServiceAccess(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	const small, large = "/v3/service_plans/p-b-1-redis-small/visibility", "/v3/service_plans/p-b-1-redis-large/visibility"
	d.services.plans[0].VisibilityType = v3.VisibilityOrganization
	d.services.plans[1].VisibilityType = v3.VisibilityAdmin
	d.services.visible["p-b-1-redis-small"] = v3.PlanVisibility{Type: v3.VisibilityOrganization, Organizations: []v3.NamedGUID{{GUID: "org-1", Name: "local"}}}
	d.dew("service-access").must(t, 0, "dew      postgres   small   public", "dew      redis      small   organization   local", "dew      redis      large   admin")
	if r := d.dew("service-access", "-o", "local"); strings.Contains(r.out, "admin") || !strings.Contains(r.out, "local") || !strings.Contains(r.out, "postgres") {
		t.Errorf("got %s", r.out)
	}
	var rows []services.AccessRow
	r := d.dew("service-access", "-e", "redis", "-b", "dew", "--json")
	if err := json.Unmarshal([]byte(r.out), &rows); err != nil || len(rows) != 2 || rows[0].Orgs[0] != "local" {
		t.Errorf("got %s, %v", r.out, err)
	}
	d.dew("service-access", "-e", "nothing").must(t, 1, "no matching service offering found")
	d.dew("service-access", "-o", "nowhere").must(t, 1, `org "nowhere" does not exist`)

	d.dew("enable-service-access", "redis", "-p", "large", "-o", "local").must(t, 0, "Enabled access to redis")
	d.wantBody("POST "+large, `{"type":"organization","organizations":[{"guid":"org-1"}]}`)
	d.dew("enable-service-access", "redis").must(t, 0, "Enabled access to redis")
	d.wantBody("POST "+small, `{"type":"public"}`)
	before := len(d.requests)
	d.dew("enable-service-access", "postgres", "-o", "local").must(t, 0, "Enabled")
	if slices.ContainsFunc(d.requests[before:], func(a string) bool { return strings.HasPrefix(a, "POST") }) {
		t.Errorf("what everybody has was given to an org: %v", d.requests[before:])
	}
	d.dew("enable-service-access", "reddis").must(t, 1, `service offering "reddis" does not exist`, "To list the service offerings: dew service-access")
	d.dew("enable-service-access", "redis", "-p", "tiny").must(t, 1, `no plan "tiny"`, "Its plans are: small, large")

	d.dew("disable-service-access", "redis", "-o", "local", "-p", "small").must(t, 0, "Disabled access to redis")
	if d.count("DELETE "+small+"/org-1") != 1 {
		t.Errorf("asked %v", d.requests)
	}
	d.dew("disable-service-access", "redis").must(t, 0, "Disabled")
	d.wantBody("PATCH "+large, `{"type":"admin"}`)
	d.dew("disable-service-access", "postgres", "-o", "local").must(t, 2, "service plan small: it is enabled for all orgs")

	d.dew("purge-service-offering", "redis").must(t, 2, "pass -f to remove service offering redis")
	d.dew("purge-service-offering", "redis", "-f").must(t, 0, "Purged service offering redis")
	d.services.brokers = append(d.services.brokers, v3.ServiceBroker{GUID: "b-2", Name: "other"})
	d.services.offer("b-2", "redis", "small")
	d.dew("enable-service-access", "redis").must(t, 2, "several service brokers offer redis: choose one with -b")
	d.dew("purge-service-offering", "redis", "-b", "other", "-f").must(t, 0, "Purged")
	if d.count("DELETE /v3/service_offerings/o-b-2-redis") != 1 {
		t.Errorf("asked %v", d.requests)
	}
}

// The advice for a missing resource names a command that exists.
func TestMissingNamesACommand(t *testing.T) {
	t.Parallel()
	commands := newApp("dev", quiet()).app
	for _, kind := range []string{"service instance", "service broker", "org", "space", "domain", "route", "user"} {
		todo := command.Explain(&client.Missing{Kind: kind, Name: "x"})
		_, name, _ := strings.Cut(todo, ": dew ")
		if commands.Command(name) == nil {
			t.Errorf("of a missing %s: dew has no command %q", kind, name)
		}
	}
}
