//go:build k8stest

package cluster_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dewrun/dew/runtime/kubernetes/kubetest"
	"github.com/dewrun/dew/testkit"
)

// databases is a dewd with built-in databases, and an app that has their client programs.
type databases struct{ *world }

// databaseServices are the services, with shell commands that write and read a value.
var databaseServices = []struct {
	name, write, read string
}{
	{
		"postgres",
		`psql "$URI" -qAtc "create table if not exists t (v text); delete from t; insert into t values ('$VALUE')"`,
		`psql "$URI" -qAtc 'select v from t'`,
	},
	{
		"mariadb",
		`mariadb -h $HOST -P $PORT -u $USER -p$PASSWORD $DATABASE -e "create or replace table t (v text); insert into t values ('$VALUE')"`,
		`mariadb -h $HOST -P $PORT -u $USER -p$PASSWORD $DATABASE -Ne 'select v from t'`,
	},
	{"redis", `redis-cli --no-auth-warning -u "$URI" set v "$VALUE"`, `redis-cli --no-auth-warning -u "$URI" get v`},
}

// databaseArchive returns the image with the programs of the databases.
func databaseArchive(t testing.TB) string {
	t.Helper()
	file := os.Getenv("DEW_K8STEST_DATABASES")
	if file == "" {
		t.Fatal("DEW_K8STEST_DATABASES is not set: run the test with make k8stest")
	}
	return file
}

// newDatabases returns a dewd with volumes for databases.
func newDatabases(t *testing.T, volumes int) *databases {
	t.Helper()
	archive, class := databaseArchive(t), "databases-"+strings.ToLower(rand.Text()[:8])
	c := kubetest.Open(t)
	c.Create(t, "/apis/storage.k8s.io/v1/storageclasses", kubetest.Object{
		"metadata": kubetest.Object{"name": class}, "provisioner": "kubernetes.io/no-provisioner", "allowVolumeExpansion": true,
	})
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := c.Do(ctx, http.MethodDelete, "/apis/storage.k8s.io/v1/storageclasses/"+class, nil, nil); err != nil {
			t.Error(err)
		}
	})
	for n := range volumes {
		createVolume(t, c, fmt.Sprintf("%s-%d", class, n), class)
	}
	d := &databases{newWorldAt(t, func(kubeconfig string) string { return kubeconfig }, "--storage-class", class)}
	for _, s := range databaseServices {
		d.must("stack", "add", s.name, archive)
	}
	dir := t.TempDir()
	testkit.WriteFile(t, filepath.Join(dir, "Procfile"), "web: sleep 1000000\n")
	d.must("push", "client", "-p", dir, "-s", "postgres", "-b", "binary_buildpack", "-u", "process", "-m", "64M", "--no-route")
	return d
}

// login is a part of the credentials of a service key.
type login struct {
	Host, Username, Password, Database, URI string
	Port                                    int
}

// create creates a service instance with a key, and returns the key.
func (d *databases) create(service, name string) login {
	d.Helper()
	d.must("create-service", service, "small", name, "--wait")
	d.must("create-service-key", name, "key", "--wait")
	var details struct{ Credentials login }
	out := d.must("service-key", name, "key", "--json")
	if err := json.Unmarshal([]byte(out), &details); err != nil || details.Credentials.Password == "" {
		d.Fatalf("the key is %s: %v", out, err)
	}
	return details.Credentials
}

// run runs a client program in the app.
func (d *databases) run(key login, value, command string) (string, error) {
	script := fmt.Sprintf("export LC_ALL=C.UTF-8; URI='%s' HOST=%s PORT=%d USER=%s PASSWORD=%s DATABASE=%s VALUE=%s; %s",
		key.URI, key.Host, key.Port, key.Username, key.Password, key.Database, value, command)
	out, err := d.dew("ssh", "client", "-c", script)
	return strings.TrimSpace(out), err
}

func (d *databases) write(key login, value, command string) {
	d.Helper()
	if out, err := d.run(key, value, command); err != nil {
		d.Fatalf("cannot write %s: %v\n%s", value, err, out)
	}
}

// want waits until a client reads a value.
func (d *databases) want(key login, value, command string) {
	d.Helper()
	testkit.Eventually(d, "a client reads "+value, func() error {
		out, err := d.run(key, value, command)
		if err == nil && out != value {
			err = fmt.Errorf("it reads %q", out)
		}
		return err
	})
}

// serverPod is a part of the Pod of a database.
type serverPod struct {
	Metadata struct {
		Name, UID string
		Labels    map[string]string
	}
	Spec struct{ NodeName string }
}

// server returns the Pod of a database that is not the given one.
func (d *databases) server(service, not string) (found serverPod) {
	d.Helper()
	guid := strings.TrimSpace(d.must("service", service, "--guid"))
	testkit.Eventually(d, service+" has a Pod", func() error {
		var list struct{ Items []serverPod }
		if err := d.cluster.Do(d.Context(), http.MethodGet, "/api/v1/namespaces/"+d.namespace+"/pods?labelSelector=run.dew/kind=service,run.dew/process="+guid, nil, &list); err != nil {
			return err
		}
		for _, p := range list.Items {
			if p.Metadata.UID != not && p.Spec.NodeName != "" {
				found = p
				return nil
			}
		}
		return errors.New("there is none")
	})
	return found
}

// objects returns the names of the objects of all databases.
func (d *databases) objects() (names []string, all string) {
	d.Helper()
	for _, kind := range []string{"pods", "services", "persistentvolumeclaims", "secrets", "configmaps"} {
		var list struct {
			Items []json.RawMessage
		}
		d.cluster.Get(d, "/api/v1/namespaces/"+d.namespace+"/"+kind, &list)
		for _, o := range list.Items {
			var p serverPod
			if err := json.Unmarshal(o, &p); err != nil {
				d.Fatal(err)
			}
			if p.Metadata.Labels["run.dew/kind"] == "service" {
				names = append(names, kind+"/"+p.Metadata.Name)
			}
			all += string(o)
		}
	}
	return names, all
}

// A user creates databases in a cluster with the same commands as on one machine. Their
// data outlives their Pods.
func TestDatabases(t *testing.T) {
	d := newDatabases(t, len(databaseServices))
	keys := map[string]login{}
	for _, s := range databaseServices {
		name := "my-" + s.name
		key := d.create(s.name, name)
		keys[s.name] = key
		d.write(key, "first", s.write)
		d.want(key, "first", s.read)
		pod := d.server(name, "")
		// Someone deletes the Pod.
		if err := d.cluster.Do(t.Context(), http.MethodDelete, "/api/v1/namespaces/"+d.namespace+"/pods/"+pod.Metadata.Name, nil, nil); err != nil {
			t.Fatal(err)
		}
		d.server(name, pod.Metadata.UID)
		d.want(key, "first", s.read)
		// A snapshot, and back to it. The key stays valid.
		d.must("service-snapshot", name)
		d.write(key, "second", s.write)
		d.want(key, "second", s.read)
		d.must("service-restore", name, "-f")
		d.want(key, "first", s.read)
		d.must("update-service", name, "-p", "large", "--wait")
		d.want(key, "first", s.read)
	}
	names, all := d.objects()
	if len(names) != 3*len(databaseServices) {
		t.Errorf("the databases have the objects %v, want a Pod, a Service and a volume for each", names)
	}
	for name, key := range keys {
		if strings.Contains(all, key.Password) {
			t.Errorf("an object of Kubernetes has the password of %s", name)
		}
	}
	// The next dewd manages the same Pods.
	before := d.server("my-postgres", "")
	d.kill()
	d.start()
	for _, s := range databaseServices {
		d.want(keys[s.name], "first", s.read)
	}
	if after := d.server("my-postgres", ""); after.Metadata.UID != before.Metadata.UID {
		t.Errorf("the next dewd replaced Pod %s by %s", before.Metadata.Name, after.Metadata.Name)
	}
	d.bound(keys["postgres"])
	for _, s := range databaseServices {
		d.must("delete-service-key", "my-"+s.name, "key", "-f", "--wait")
		d.must("delete-service", "my-"+s.name, "-f", "--wait")
	}
	testkit.Eventually(t, "nothing of the databases is left", func() error {
		if names, _ := d.objects(); len(names) > 0 {
			return fmt.Errorf("left: %v", names)
		}
		return nil
	})
}

// bound binds the app to a database, and reads the credentials in the app.
func (d *databases) bound(key login) {
	d.Helper()
	d.must("bind-service", "client", "my-postgres", "--wait")
	d.must("restage", "client")
	out := d.must("ssh", "client", "-c", `LC_ALL=C.UTF-8 psql "$(echo "$VCAP_SERVICES" | sed 's/.*"uri": *"\([^"]*\)".*/\1/')" -qAtc 'select v from t'`)
	if strings.TrimSpace(out) != "first" {
		d.Errorf("the bound app reads %q", out)
	}
	if out := d.must("ssh", "client", "-c", `echo "$VCAP_SERVICES"`); strings.Contains(out, key.Password) {
		d.Error("the app has the password of the key")
	}
	d.must("unbind-service", "client", "my-postgres", "--wait")
}

// The stock cf creates, binds and deletes a database.
func TestCFDatabase(t *testing.T) {
	path := stockClient(t)
	d := newDatabases(t, 1)
	run := d.cf(path)
	dir := t.TempDir()
	testkit.WriteFile(t, filepath.Join(dir, "Procfile"), "web: sleep 1000000\n")
	run("create-service", "redis", "small", "db", "--wait")
	run("push", "shop", "--no-manifest", "-p", dir, "-s", "redis", "-b", "binary_buildpack", "-u", "process", "-m", "64M", "--no-route")
	run("bind-service", "shop", "db", "--wait")
	run("restage", "shop")
	out := run("ssh", "shop", "-c", `redis-cli --no-auth-warning -u "$(echo "$VCAP_SERVICES" | sed 's/.*"uri": *"\([^"]*\)".*/\1/')" incr n`)
	if strings.TrimSpace(out) != "1" {
		t.Errorf("the bound app got %q", out)
	}
	run("create-service-key", "db", "key", "--wait")
	if out := run("service-key", "db", "key"); !strings.Contains(out, `"uri": "redis://`) {
		t.Errorf("cf service-key:\n%s", out)
	}
	run("delete-service-key", "db", "key", "-f", "--wait")
	run("update-service", "db", "-p", "large", "--wait")
	run("unbind-service", "shop", "db", "--wait")
	run("delete-service", "db", "-f", "--wait")
	if names, _ := d.objects(); slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "services/") }) {
		t.Errorf("left: %v", names)
	}
}

// The node of a database is lost: the database starts on another one with its data.
func TestDatabaseNodeLost(t *testing.T) {
	d := newDatabases(t, 1)
	s := databaseServices[0]
	key := d.create(s.name, "db")
	d.write(key, "kept", s.write)
	pod := d.server("db", "")
	d.cluster.PowerOff(t, pod.Spec.NodeName)
	next := d.server("db", pod.Metadata.UID)
	if next.Spec.NodeName == pod.Spec.NodeName {
		t.Errorf("the next Pod is on %s, which is off", next.Spec.NodeName)
	}
	d.want(key, "kept", s.read)
	d.cluster.PowerOn(t, pod.Spec.NodeName)
	d.want(key, "kept", s.read)
	d.must("delete-service-key", "db", "key", "-f", "--wait")
	d.must("delete-service", "db", "-f", "--wait")
}

// Without the programs of a database, the error says what to do.
func TestDatabaseImageMissing(t *testing.T) {
	w := newWorld(t)
	out, err := w.dew("create-service", "redis", "small", "db", "--wait") // the cluster has no internet access
	for _, want := range []string{"cannot get Redis", "docker.io/library/redis", "dew stack add redis --image IMAGE"} {
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("create-service: %v, want an error with %q:\n%s", err, want, out)
		}
	}
	if out := w.must("stacks"); strings.Contains(out, "redis") {
		t.Errorf("a stack is left:\n%s", out)
	}
}
