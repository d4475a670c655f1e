//go:build integration

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/dewrun/dew/services/servicestest"
	"github.com/dewrun/dew/testkit"
)

const queueCatalog = `{"services":[{"id":"queue-id","name":"queue","description":"A queue","bindable":true,
	"plans":[{"id":"tiny-id","name":"tiny","description":"A tiny one"}]}]}`

// An org is deleted with everything in it, even if dewd is killed at any time. The next
// dewd continues without a request, and nothing is left.
func TestOrgDeletionSurvivesKills(t *testing.T) {
	runParallel(t)
	w := newDeletionTest(t)
	for _, death := range []struct {
		name string
		kill func(o *deletionOrg)
	}{
		{"at once, and while the broker is asked", func(*deletionOrg) { w.killWhilePolling() }},
		{"while containers stop", w.killWhileStopping},
		{"again and again", func(*deletionOrg) {
			for range rounds(3, 20) {
				testkit.RandomPause(1500 * time.Millisecond)
				w.killAndRestart()
			}
		}},
	} {
		t.Run(death.name, func(t *testing.T) {
			w.t = t
			o := w.build()
			job := w.startDeletion(o)
			death.kill(o)
			w.awaitJob(job, "COMPLETE")
			w.nothingLeft(o)
			w.kill(syscall.SIGKILL)
			w.noRecord(o)
			w.startDewd()
		})
	}
}

// If a broker refuses to delete an instance, only its space and the org stay. When the
// broker no longer refuses, a second deletion deletes the rest.
func TestOrgDeletionThatABrokerRefuses(t *testing.T) {
	runParallel(t)
	w := newDeletionTest(t)
	o := w.build()
	w.broker.On(servicestest.Deprovision, servicestest.Behaviour{Status: 500, NoEffect: true, Body: `{"description":"the disk is on fire"}`})
	job := w.startDeletion(o)
	failed := w.awaitJob(job, "FAILED")
	for _, want := range []string{`"CF-OrganizationDeletionFailed"`, "Deletion of organization " + o.name + " failed", "Deletion of space one failed", "Service instance jobs: ", "the disk is on fire"} {
		if !strings.Contains(failed, want) {
			t.Errorf("the job says %s\nwant %s in it", failed, want)
		}
	}
	for path, want := range map[string]int{
		"/v3/organizations/" + o.guid: 200, "/v3/spaces/" + o.spaces["one"]: 200, "/v3/spaces/" + o.spaces["two"]: 404,
		"/v3/apps/" + o.apps["first"]: 200, "/v3/apps/" + o.apps["second"]: 404,
		"/v3/service_instances/" + o.queue: 200, "/v3/service_instances/" + o.database: 404,
	} {
		if got, body := w.ask("GET", path, ""); got != want {
			t.Errorf("%s: %d, want %d\n%s", path, got, want, body)
		}
	}
	w.broker.On(servicestest.Deprovision)
	w.awaitJob(w.startDeletion(o), "COMPLETE")
	w.nothingLeft(o)
	w.kill(syscall.SIGKILL)
	w.noRecord(o)
}

// deletionTest is a routeTest with a slow broker.
type deletionTest struct {
	*routeTest
	broker *servicestest.Broker
	orgs   int
}

// deletionOrg is an org with resources of every kind.
type deletionOrg struct {
	name, guid      string
	spaces, apps    map[string]string // guids by name
	queue, database string            // guids of service instances
	paths           []string          // paths of all resources in it
}

func newDeletionTest(t *testing.T) *deletionTest {
	t.Helper()
	w := &deletionTest{routeTest: newRouteTest(t, "--kill-delay", "5s"), broker: servicestest.New(queueCatalog)}
	server := httptest.NewServer(w.broker)
	t.Cleanup(server.Close)
	w.dew("create-service-broker", "slow", "user", "pass", server.URL)
	w.dew("enable-service-access", "queue")
	return w
}

// build creates an org with two spaces. They have apps with sidecars that are slow to
// stop, a task, a database, an instance of the slow broker, routes, a domain and roles.
func (w *deletionTest) build() *deletionOrg {
	w.t.Helper()
	w.orgs++
	o := &deletionOrg{name: fmt.Sprintf("acme-%d", w.orgs), spaces: map[string]string{}, apps: map[string]string{}}
	slow := servicestest.Behaviour{Async: 1}
	w.broker.On(servicestest.Provision, slow)
	w.broker.On(servicestest.Deprovision, servicestest.Behaviour{Async: 3})
	w.dew("create-org", o.name)
	o.guid = w.guid("/v3/organizations?names=" + o.name)
	user := `{"user":{"data":{"guid":"` + w.guid("/v3/users?usernames=admin") + `"}},`
	w.mustRequest(201, "POST", "/v3/roles", `{"type":"organization_user","relationships":`+user+`"organization":{"data":{"guid":"`+o.guid+`"}}}}`)
	for space, name := range map[string]string{"one": "first", "two": "second"} {
		w.dew("create-space", space, "-o", o.name)
		w.dew("target", "-o", o.name, "-s", space)
		w.push(name, "  instances: 2\n  sidecars: [{name: stubborn, command: \"trap '' TERM; while :; do sleep 1; done\", process_types: [web], memory: 16M}]\n")
		o.spaces[space] = w.guid("/v3/spaces?names=" + space + "&organization_guids=" + o.guid)
		o.apps[name] = w.appGUID(name)
		w.dew("run-task", name, "--command", "sleep 1000")
		w.mustRequest(201, "POST", "/v3/roles", `{"type":"space_auditor","relationships":`+user+`"space":{"data":{"guid":"`+o.spaces[space]+`"}}}}`)
	}
	w.dew("target", "-o", o.name, "-s", "one")
	w.dew("create-service", "queue", "tiny", "jobs", "--wait")
	w.dew("bind-service", "first", "jobs", "--wait")
	w.dew("create-service-key", "jobs", "key", "--wait")
	w.dew("target", "-o", o.name, "-s", "two")
	w.dew("create-service", "redis", "small", "cache", "--wait")
	w.dew("bind-service", "second", "cache", "--wait")
	o.queue, o.database = w.guid("/v3/service_instances?names=jobs&organization_guids="+o.guid), w.guid("/v3/service_instances?names=cache&organization_guids="+o.guid)
	domain := o.name + ".example.com"
	w.mustRequest(201, "POST", "/v3/domains", `{"name":"`+domain+`","relationships":{"organization":{"data":{"guid":"`+o.guid+`"}}}}`)
	w.dew("map-route", "second", domain, "--hostname", "www")
	w.awaitResponse("first", "/", "web ")
	o.paths = w.resourcePaths(o)
	return o
}

// resourcePaths returns the paths of the org's resources.
func (w *deletionTest) resourcePaths(o *deletionOrg) []string {
	w.t.Helper()
	paths := []string{"/v3/organizations/" + o.guid}
	in := "organization_guids=" + o.guid
	apps := "app_guids=" + o.apps["first"] + "," + o.apps["second"]
	for kind, filter := range map[string]string{
		"spaces": in, "apps": in, "processes": in, "routes": in, "tasks": in, "roles": in, "service_instances": in,
		"packages": apps, "droplets": apps, "builds": apps, "service_credential_bindings": "service_instance_guids=" + o.queue + "," + o.database,
	} {
		guids := w.guids("/v3/" + kind + "?per_page=500&" + filter)
		if len(guids) == 0 {
			w.t.Fatalf("the org has no %s", kind)
		}
		for _, guid := range guids {
			paths = append(paths, "/v3/"+kind+"/"+guid)
		}
	}
	for _, guid := range w.guids("/v3/domains?names=" + o.name + ".example.com") {
		paths = append(paths, "/v3/domains/"+guid)
	}
	for _, app := range o.apps {
		paths = append(paths, "/v3/apps/"+app+"/sidecars", "/v3/apps/"+app+"/revisions", "/v3/apps/"+app+"/processes/web/stats")
	}
	return paths
}

func (w *deletionTest) guids(path string) (out []string) {
	w.t.Helper()
	var list struct{ Resources []struct{ GUID string } }
	if err := json.Unmarshal([]byte(w.mustRequest(200, "GET", path, "")), &list); err != nil {
		w.t.Fatal(err)
	}
	for _, r := range list.Resources {
		out = append(out, r.GUID)
	}
	return out
}

// startDeletion requests the deletion and returns the path of the job.
func (w *deletionTest) startDeletion(o *deletionOrg) string {
	w.t.Helper()
	res := w.socketRequest("DELETE", "/v3/organizations/"+o.guid, "")
	defer res.Body.Close()
	job := res.Header.Get("Location")
	if res.StatusCode != http.StatusAccepted || job == "" {
		w.t.Fatalf("DELETE of the org: %d, job %q", res.StatusCode, job)
	}
	return job[strings.Index(job, "/v3/"):]
}

// killAndRestart kills dewd and starts it again.
func (w *deletionTest) killAndRestart() {
	w.t.Helper()
	w.kill(syscall.SIGKILL)
	w.startDewd()
}

// killWhilePolling kills dewd, and kills the next one after it has polled the broker.
func (w *deletionTest) killWhilePolling() {
	w.t.Helper()
	asked := len(w.broker.Requests(servicestest.Last)) // count before the start, because the next dewd polls at once
	w.killAndRestart()
	w.eventually("the broker is asked how far it is", func() error {
		if len(w.broker.Requests(servicestest.Last)) == asked {
			return errors.New("it is not")
		}
		return nil
	})
	if len(w.broker.Instances()) == 0 {
		w.t.Fatal("the broker is done already")
	}
	w.killAndRestart()
}

// killWhileStopping kills dewd when the apps got the signal to stop and have not stopped
// yet.
func (w *deletionTest) killWhileStopping(o *deletionOrg) {
	w.t.Helper()
	w.eventually("an app is gone", func() error {
		for _, guid := range o.apps {
			if status, _ := w.ask("GET", "/v3/apps/"+guid, ""); status == 404 {
				return nil
			}
		}
		return errors.New("all are there")
	})
	if len(w.leaves()) == 0 {
		w.t.Fatal("nothing runs any more")
	}
	w.killAndRestart()
}

// awaitJob waits until a job is finished, and returns its text.
func (w *deletionTest) awaitJob(job, want string) (said string) {
	w.t.Helper()
	var j struct{ State string }
	w.eventually("the job is done", func() error {
		said = w.mustRequest(200, "GET", job, "")
		if err := json.Unmarshal([]byte(said), &j); err != nil {
			return err
		}
		if j.State == "PROCESSING" || j.State == "POLLING" {
			return errors.New(said)
		}
		return nil
	})
	if j.State != want {
		w.t.Fatalf("the job says %s, want %s", said, want)
	}
	return said
}

// nothingLeft waits until nothing is left of the org except records of the past.
func (w *deletionTest) nothingLeft(o *deletionOrg) {
	w.t.Helper()
	for _, path := range o.paths {
		if status, body := w.ask("GET", path, ""); status != 404 {
			w.t.Errorf("%s: %d, want 404\n%s", path, status, body)
		}
	}
	for _, host := range []string{"first", "second"} {
		if status, body := w.get(host, "/"); status != 404 {
			w.t.Errorf("route %s: %d %s, want 404", host, status, body)
		}
	}
	if left := append(w.broker.Instances(), w.broker.Bindings()...); len(left) > 0 {
		w.t.Errorf("the broker still has %v", left)
	}
	w.eventually("nothing is left on the machine", func() error {
		var errs []error
		for what, pattern := range map[string]string{
			"cgroups": "/sys/fs/cgroup/*/" + w.names.Cgroup + "/*-*", "unified cgroups": "/sys/fs/cgroup/" + w.names.Cgroup + "/*-*",
			"instances": w.run + "/instances/*", "namespaces": w.run + "/netns/*", "links": "/sys/class/net/" + w.names.Bridge + "/brif/*",
			"services": w.root + "/services/*", "logs": w.root + "/logs/*-*", "packages": w.root + "/packages/*-*", "droplets": w.root + "/droplets/*/*",
		} {
			if found, err := filepath.Glob(pattern); err != nil || len(found) > 0 {
				errs = append(errs, fmt.Errorf("%s %v, %w", what, found, err))
			}
		}
		for _, kind := range []string{"containers", "tasks", "snapshots"} {
			errs = append(errs, w.checkNone(kind))
		}
		return errors.Join(errs...)
	})
}

// checkNone checks that containerd has no such object, except those of the stack.
func (w *deletionTest) checkNone(kind string) error {
	cmd := exec.Command("ctr", "-a", filepath.Join(w.run, "containerd", "containerd.sock"), "-n", w.names.Namespace, kind, "ls")
	out, err := cmd.Output() // ctr of containerd 2 warns on stderr
	if err != nil {
		return fmt.Errorf("ctr: %w", err)
	}
	left := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(out)), "\n")[1:], func(line string) bool {
		return strings.HasPrefix(line, "dew-stack-")
	})
	if len(left) > 0 {
		return fmt.Errorf("%s %v", kind, left)
	}
	return nil
}

// noRecord checks that the store has no trace of the org, except events and finished
// jobs and operations. dewd must not be running.
func (w *deletionTest) noRecord(o *deletionOrg) {
	w.t.Helper()
	guids := []string{o.guid, o.queue, o.database}
	for _, path := range o.paths {
		guids = append(guids, path[strings.LastIndexByte(path, '/')+1:])
	}
	guids = slices.DeleteFunc(guids, func(g string) bool { return len(g) != 36 })
	db, err := bbolt.Open(filepath.Join(w.root, "dew.db"), 0o600, &bbolt.Options{Timeout: time.Minute, ReadOnly: true})
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			return checkNotStored(string(name), b, guids)
		})
	})
	if err != nil {
		w.t.Error(err)
	}
}

// historyBuckets are the buckets with records of the past, which outlive the resources.
var historyBuckets = []string{"events", "usage", "jobs", "service operations"}

func checkNotStored(name string, b *bbolt.Bucket, guids []string) error {
	if slices.ContainsFunc(historyBuckets, func(m string) bool { return strings.HasPrefix(name, m) }) {
		return nil
	}
	var errs []error
	err := b.ForEach(func(k, v []byte) error {
		if v == nil {
			return checkNotStored(name+"/"+string(k), b.Bucket(k), guids)
		}
		for _, g := range guids {
			if bytes.Contains(k, []byte(g)) || bytes.Contains(v, []byte(g)) {
				errs = append(errs, fmt.Errorf("bucket %s still has %q: %s", name, k, v))
			}
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}

// mustRequest sends a request and checks the status of the response.
func (w *deletionTest) mustRequest(want int, method, path, body string) string {
	w.t.Helper()
	status, answer := w.ask(method, path, body)
	if status != want {
		w.t.Fatalf("%s %s: %d %s, want %d", method, path, status, answer, want)
	}
	return answer
}
