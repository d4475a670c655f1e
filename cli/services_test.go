package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/services"
)

// wantBody fails the test if the last body of a request differs.
func (d *fakeDaemon) wantBody(key, want string) {
	d.t.Helper()
	if got := strings.TrimSpace(d.body(key)); got != want {
		d.t.Errorf("%s was sent\n%s\nwant\n%s", key, got, want)
	}
}

// refuses makes the daemon respond to a request with 422 and a detail.
func (d *fakeDaemon) refuses(key, detail string) {
	d.refuse[key] = v3.Error{Code: 10008, Title: v3.TitleUnprocessable, Detail: detail}
}

const (
	postInstance = "POST /v3/service_instances"
	postBinding  = "POST /v3/service_credential_bindings"
	inSpace      = `"space":{"data":{"guid":"space-1"}}`
)

func TestMarketplace(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.dew("marketplace").must(t, 0, "offering   plans", "redis      small, large*", "A redis", "dew", "* Paid plan. To show the costs: dew marketplace -e OFFERING")
	d.dew("m", "-e", "redis").must(t, 0, "large   It is large   paid", "USD 2.00/monthly", "small   It is small   free")
	d.dew("m", "--no-plans").must(t, 0, "offering   description")
	if r := d.dew("m", "--no-plans"); strings.Contains(r.out, "small") {
		t.Errorf("plans are told:\n%s", r.out)
	}
	var offers []services.Offer
	r := d.dew("m", "-e", "redis", "--json")
	if err := json.Unmarshal([]byte(r.out), &offers); err != nil || len(offers) != 2 || offers[1].Plan != "large" || offers[1].Free || offers[1].Broker != "dew" {
		t.Errorf("got %s, %v", r.out, err)
	}
	d.dew("m", "-e", "reddis").must(t, 1, `service offering "reddis" does not exist`, "The service offerings are: postgres, redis")
	d.dew("m", "-b", "nobody").must(t, 1, `of service broker "nobody"`)
	d.services.plans[2].Available = false
	if r := d.dew("m"); strings.Contains(r.out, "postgres") {
		t.Errorf("what cannot be had is offered:\n%s", r.out)
	}
	d.dew("m", "--show-unavailable").must(t, 0, "postgres")
	d.services.plans = nil
	d.dew("m").must(t, 0, "No service offerings are available in this space")
	if r := d.dew("m", "--json"); r.out != "[]\n" {
		t.Errorf("got %s", r.out)
	}
}

func TestCreateService(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.dew("create-service", "redis", "small", "kv").must(t, 0, "Created service instance kv")
	d.wantBody(postInstance, `{"type":"managed","name":"kv","relationships":{"service_plan":{"data":{"guid":"p-b-1-redis-small"}},`+inSpace+`}}`)
	d.dew("cs", "redis", "large", "kv2", "-t", "a, b,", "-c", ` {"ram": 4}`).must(t, 0, "Created")
	d.wantBody(postInstance, `{"type":"managed","name":"kv2","tags":["a","b"],"parameters":{"ram":4},"relationships":{"service_plan":{"data":{"guid":"p-b-1-redis-large"}},`+inSpace+`}}`)
	file := filepath.Join(t.TempDir(), "p.json")
	if err := os.WriteFile(file, []byte("{\"ram\":\n8}"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.dew("cs", "redis", "small", "kv3", "-c", file).must(t, 0, "Created")
	if got := d.body(postInstance); !strings.Contains(got, `"parameters":{"ram":8}`) {
		t.Errorf("sent %s", got)
	}
	d.dew("cs", "redis", "small", "kv").must(t, 0, "Service instance kv already exists")
	d.dew("cs", "redis", "tiny", "x").must(t, 1, `service offering redis has no plan "tiny"`, "Its plans are: small, large")
	d.dew("cs", "reddis", "small", "x").must(t, 1, `service offering "reddis" does not exist`)
	d.dew("cs", "redis", "small", "x", "-b", "nobody").must(t, 1, `of service broker "nobody"`)
	d.dew("cs", "redis", "small").must(t, 2, "needs OFFERING PLAN SERVICE_INSTANCE")
	d.services.brokers = append(d.services.brokers, v3.ServiceBroker{GUID: "b-2", Name: "other"})
	d.services.offer("b-2", "redis", "small")
	before := d.count(postInstance)
	d.dew("cs", "redis", "small", "x").must(t, 2, "several service brokers offer redis: choose one with -b (dew, other)")
	if d.count(postInstance) != before {
		t.Error("one of the two was taken")
	}
	d.dew("cs", "redis", "small", "x", "-b", "other").must(t, 0, "Created")
	if got := d.body(postInstance); !strings.Contains(got, "p-b-2-redis-small") {
		t.Errorf("sent %s", got)
	}
}

// An error in parameters is reported before any request, and without the typed text,
// because it can be a secret.
func TestBadParameters(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	folder := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(folder, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for _, c := range []struct{ text, want string }{
		{"{", "-c must be a JSON object"},
		{`{"a":s3cret}`, "-c must be a JSON object"},
		{`{"a":1} x`, "-c must be a JSON object"},
		{"s3cret", "or the name of a file with one: no such file"},
		{"[1]", "or the name of a file with one"},
		{folder, "is a directory"},
		{write("list.json", `[{"s3cret":1}]`), "-c must be a JSON object"},
		{write("null.json", `null`), "it is null"},
		{write("empty.json", ``), "-c must be a JSON object"},
		{write("large.json", strings.Repeat(" ", 1<<20+1)), "larger than 1.0M"},
	} {
		r := d.dew("create-service", "redis", "small", "kv", "-c", c.text)
		r.must(t, 2, c.want)
		if strings.Contains(command.Explain(r.err), "s3cret") {
			t.Errorf("%s is told: %v", c.text, r.err)
		}
	}
	d.dew("update-service", "kv", "-c", "{").must(t, 2, "-c must be")
	d.dew("bind-service", "shop", "kv", "-c", "{").must(t, 2, "-c must be")
	d.dew("create-service-key", "kv", "k", "-c", "{").must(t, 2, "-c must be")
	d.dew("bind-route-service", "dew.localhost", "kv", "-c", "{").must(t, 2, "-c must be")
	d.dew("create-user-provided-service", "x", "-p", "{").must(t, 2, "-p must be")
	if len(d.requests) > 0 {
		t.Errorf("the daemon was asked: %v", d.requests)
	}
}

// With --wait, dew prints each message of the broker once, in order, and nothing more.
func TestWaitTellsProgress(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.services.late, d.services.messages = true, []string{"creating", "creating", "building \x1b[2Jstack", "starting", "starting"}
	r := d.dew("create-service", "redis", "small", "kv", "--wait")
	r.must(t, 0)
	if want := "Creating service instance kv ...\n   creating\n   building ^[[2Jstack\n   starting\nCreated service instance kv\n"; r.talk != want {
		t.Errorf("said\n%s\nwant\n%s", r.talk, want)
	}
	d.services.messages = []string{"no", "look"}
	d.dew("update-service", "kv", "-p", "large").must(t, 0, "Update in progress. To check its status: dew service kv")
	d.dew("services").must(t, 0, "update in progress", "no")
}

func TestCreateServiceFails(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.services.fails = "The service broker has no paper"
	d.dew("create-service", "redis", "small", "kv").must(t, 1, "cannot create service instance kv: The service broker has no paper", "The failed service instance keeps its name")
	d.services.instances[0].LastOperation = v3.LastOperation{Type: "create", State: "failed", Description: "no paper"}
	d.dew("create-service", "redis", "small", "kv").must(t, 1, "kv already exists, and its creation failed: no paper", "Delete the failed service instance")
	d.refuses(postInstance, "You have exceeded your space's services limit.")
	d.dew("create-service", "redis", "small", "x").must(t, 1, "cannot create service instance x: You have exceeded")
}

// A second creation of an instance that is being created can wait for the first one.
func TestCreateServiceTwiceWaits(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.services.instance("kv", v3.ServiceManaged).LastOperation = v3.LastOperation{Type: "create", State: "failed", Description: "broken"}
	i := d.services.find("s-kv")
	i.LastOperation.State, d.services.messages = "in progress", []string{"one", "two"}
	d.dew("create-service", "redis", "small", "kv").must(t, 0, "kv already exists")
	d.services.messages = []string{"one", "two", "three"}
	d.services.ends = "failed"
	d.dew("create-service", "redis", "small", "kv", "--wait").must(t, 1, "kv already exists (create in progress)", "   two\n   three\n", "its creation failed: three")
}

func TestUpdateService(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.services.instance("kv", v3.ServiceManaged)
	d.services.instance("mail", v3.ServiceUserProvided)
	const patch = "PATCH /v3/service_instances/s-kv"
	d.dew("update-service", "kv").must(t, 2, "needs -p, -c or -t")
	d.dew("update-service", "kv", "-p", "huge").must(t, 1, `no plan "huge"`, "Its plans are: small, large")
	d.dew("update-service", "mail", "-p", "large").must(t, 2, "user-provided", "update-user-provided-service")
	d.dew("update-service", "kw", "-t", "x").must(t, 1, `service instance "kw" does not exist`, `did you mean "kv"?`)
	d.dew("update-service", "kv", "-p", "large", "-t", "", "-c", `{"a":1}`).must(t, 0, "Updated service instance kv")
	d.wantBody(patch, `{"tags":[],"parameters":{"a":1},"relationships":{"service_plan":{"data":{"guid":"p-b-1-redis-large"}}}}`)
	d.dew("rename-service", "kv", "kv9").must(t, 0, "Renamed service instance kv to kv9")
	d.wantBody(patch, `{"name":"kv9"}`)
	d.refuses(patch, "The service instance name is taken: mail.")
	d.dew("rename-service", "kv", "mail").must(t, 1, "cannot rename service instance kv: The service instance name is taken")
	delete(d.refuse, patch)
	d.dew("upgrade-service", "kv").must(t, 0, "No upgrade is available")
	d.services.find("s-kv").UpgradeAvailable = ptr(true)
	d.services.plans[0].MaintenanceInfo.Version = "2.0.0"
	d.dew("services").must(t, 0, "yes")
	d.dew("service", "kv").must(t, 0, "dew upgrade-service kv")
	d.dew("upgrade-service", "kv").must(t, 2, "it can be unavailable during the upgrade")
	d.dew("upgrade-service", "kv", "--force").must(t, 0, "Upgraded service instance kv")
	d.wantBody(patch, `{"maintenance_info":{"version":"2.0.0"}}`)
}

func TestDeleteService(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.services.instance("kv", v3.ServiceManaged)
	d.services.instance("mail", v3.ServiceUserProvided)
	d.dew("delete-service", "kv").must(t, 2, "pass -f to delete service instance kv and its data")
	d.dew("delete-service", "nothing", "-f").must(t, 0, "Service instance nothing does not exist")
	d.services.fails = "it is bound"
	d.dew("delete-service", "kv", "-f").must(t, 1, "cannot delete service instance kv: it is bound")
	d.dew("ds", "kv", "--force", "-w").must(t, 0, "Deleted service instance kv")
	d.dew("ds", "mail", "-f").must(t, 0, "Deleted service instance mail")
	d.services.instance("old", v3.ServiceManaged)
	d.dew("purge-service-instance", "old").must(t, 2, "without contacting its broker")
	d.dew("purge-service-instance", "old", "-f").must(t, 0, "Purged service instance old")
	d.dew("purge-service-instance", "old", "-f").must(t, 1, `service instance "old" does not exist`, "To list the service instances: dew services")
	if r := runDewWithInput(t.Context(), "n\n", "--run", d.run, "delete-service", "x"); r.status != 0 || !strings.Contains(r.talk, "[yN]") {
		t.Errorf("got %d, %s", r.status, r.talk)
	}
}

func TestServices(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	d.dew("services").must(t, 0, "There are no service instances. To list the available services: dew marketplace")
	if r := d.dew("s", "--json"); r.out != "[]\n" {
		t.Errorf("got %s", r.out)
	}
	d.services.instance("kv", v3.ServiceManaged).LastOperation = v3.LastOperation{Type: "create", State: "failed", Description: "no room \x1b[2J"}
	d.services.instance("mail", v3.ServiceUserProvided)
	d.services.bind("s-mail", "app-1", "letter").LastOperation = v3.LastOperation{Type: "delete", State: "failed", Description: "stuck"}
	d.services.bind("s-mail", "app-9", "")
	r := d.dew("services")
	r.must(t, 0, "kv     redis           small", "create failed      dew      no        no room ^[[2J", "mail   user-provided           an app in another space, shop   create succeeded")
	if r := d.dew("services", "--no-apps"); strings.Contains(r.out, "shop") {
		t.Errorf("apps are told:\n%s", r.out)
	}
	var rows []services.Row
	r = d.dew("services", "--json")
	if err := json.Unmarshal([]byte(r.out), &rows); err != nil || len(rows) != 2 || rows[0].Last != "create failed" || rows[0].Broker != "dew" || len(rows[1].Apps) != 2 {
		t.Errorf("got %s, %v", r.out, err)
	}
	d.dew("service", "mail").must(t, 0, "type:             user-provided", "shop (as letter, delete failed: stuck), an app in another space", "started:")
	d.services.shared = []v3.NamedGUID{{GUID: "space-2", Name: "guests"}}
	d.services.bind("s-kv", "", "k1")
	d.dew("service", "kv").must(t, 0, "offering:         redis", "broker:           dew", "https://docs.example.com", "keys:             k1", "shared with:      guests", "message:          no room ^[[2J")
	d.services.find("s-kv").Relationships.Space = v3.To("space-9")
	r = d.dew("service", "kv")
	r.must(t, 0, "shared from:      a space that you cannot see")
	if strings.Contains(r.out, "guests") {
		t.Errorf("a guest is told of the others:\n%s", r.out)
	}
	d.accounts.spaces = append(d.accounts.spaces, v3.Space{GUID: "space-9", Name: "home", Relationships: v3.SpaceRelationships{Organization: v3.To("org-1")}})
	d.dew("service", "kv").must(t, 0, "shared from:      home")
	d.dew("service", "kv", "--guid").must(t, 0, "s-kv\n")
	d.dew("service", "kv", "--params").must(t, 0, `"ram": 4`)
	d.dew("service", "maill").must(t, 1, `did you mean "mail"?`)
	var v services.View
	r = d.dew("service", "mail", "--json")
	if err := json.Unmarshal([]byte(r.out), &v); err != nil || v.Name != "mail" || v.Bindings[0].Name != "letter" || v.Bindings[0].Last != "delete failed" {
		t.Errorf("got %s, %v", r.out, err)
	}
}

func TestUserProvided(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.dew("create-user-provided-service", "mail", "-p", `{"host":"h","port":25}`, "-t", "a", "-l", "syslog://x", "-r", "https://y").must(t, 0, "Created service instance mail")
	d.wantBody(postInstance, `{"type":"user-provided","name":"mail","tags":["a"],"credentials":{"host":"h","port":25},"syslog_drain_url":"syslog://x","route_service_url":"https://y","relationships":{`+inSpace+`}}`)
	d.dew("cups", "mail").must(t, 0, "mail already exists")
	r := runDewWithInput(t.Context(), "me\ns3cret\n", "--run", d.run, "cups", "db", "-p", "user, password")
	r.must(t, 0, "user: ", "password: ", "Created service instance db")
	if got := d.body(postInstance); !strings.Contains(got, `"credentials":{"password":"s3cret","user":"me"}`) {
		t.Errorf("sent %s", got)
	}
	for _, text := range []string{"creds.json", "./no/where", "[1]", "password=s3cret"} { // not valid names of credentials
		r := runDewWithInput(t.Context(), "answer\n", "--run", d.run, "cups", "x", "-p", text)
		r.must(t, 2, "-p must be a JSON object", "no such file")
	}
	d.dew("cups", "x", "-p", "user,password").must(t, 2, "-p must be a JSON object")
	d.refuses(postInstance, "Route service url must be https")
	d.dew("cups", "x", "-r", "http://y").must(t, 1, "cannot create service instance x: Route service url must be https")

	d.services.instance("kv", v3.ServiceManaged)
	d.dew("update-user-provided-service", "mail").must(t, 2, "needs -p, -l, -r or -t")
	d.dew("uups", "kv", "-t", "x").must(t, 2, "kv is not user-provided: use dew update-service")
	d.dew("uups", "nothing", "-t", "x").must(t, 1, `service instance "nothing" does not exist`)
	d.dew("uups", "mail", "-l", "", "-p", "{}").must(t, 0, "Updated service instance mail", "dew restage")
	d.wantBody("PATCH /v3/service_instances/s-mail", `{"credentials":{},"syslog_drain_url":""}`)
}

func TestServiceLogs(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	d.services.instance("kv", v3.ServiceManaged)
	d.services.instance("mail", v3.ServiceUserProvided)
	d.dew("logs", "--service", "kv", "--recent").must(t, 0, "[SERVICE/REDIS/0] OUT ready for s-kv")
	d.dew("logs", "--service", "mail", "--recent").must(t, 1, "service instance mail has no logs: it is user-provided")
	d.dew("logs", "--service", "kw", "--recent").must(t, 1, `did you mean "kv"?`)
	d.dew("logs", "shop", "--service", "kv").must(t, 2, "cannot be used with APP or --all")
	d.dew("logs").must(t, 2, "logs needs APP, --all, or --service")
	d.dew("logs", "--service", "kv", "--sidecar", "x").must(t, 2, "--service cannot be used with")
}

func TestAppBoundSinceStaging(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	d.services.appBindings = []v3.AppBinding{{Name: "kv"}, {Name: "db", SinceStaging: true}}
	d.dew("app", "shop").must(t, 0, "services:    kv, db", "bound since staging: db. To pass the credentials to the app: dew restage shop")
	d.dew("app", "shop", "--json").must(t, 0, "\"bound_since_staging\": [\n    \"db\"\n  ]")
	d.services.appBindings = d.services.appBindings[:1]
	if r := d.dew("app", "shop"); strings.Contains(r.out, "since staging") {
		t.Errorf("got %s", r.out)
	}
}

func TestServiceCompletion(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	d.services.instance("kv", v3.ServiceManaged)
	d.services.bind("s-kv", "", "k1")
	d.services.copies = []v3.ServiceSnapshot{{GUID: "20261115-1"}}
	complete := func(args ...string) result { return d.dew(append(args, "--generate-bash-completion")...) }
	complete("create-service").must(t, 0, "postgres\nredis\n")
	complete("create-service", "redis").must(t, 0, "large\nsmall\n")
	complete("service").must(t, 0, "kv\n")
	complete("bind-service").must(t, 0, "shop\n")
	complete("bind-service", "shop").must(t, 0, "kv\n")
	complete("service-key", "kv").must(t, 0, "k1\n")
	complete("service-key", "nothing").must(t, 0)
	complete("service-restore", "kv").must(t, 0, "20261115-1\n")
	complete("marketplace", "-e").must(t, 0, "redis\n")
	complete("marketplace", "-b").must(t, 0, "dew\n")
	complete("logs", "--service").must(t, 0, "kv\n")
	complete("delete-service-broker").must(t, 0, "dew\n")
	complete("share-service", "kv", "-s").must(t, 0, "dev\n")
}
