//go:build integration

package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/store"
)

// client runs statements on the machine with the credentials of a binding, as users do
// with a service key.
type client func(ctx context.Context, c credentials, statement string) *exec.Cmd

func psql(ctx context.Context, c credentials, statement string) *exec.Cmd {
	return exec.CommandContext(ctx, "psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", c.URI+"?connect_timeout=20", "-c", statement)
}

func mariadbClient(ctx context.Context, c credentials, statement string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "mariadb", "--no-defaults", "--batch", "--skip-column-names", "--connect-timeout=20",
		"-h", c.Host, "-P", strconv.Itoa(c.Port), "-u", c.Username, c.Database, "-e", statement)
	cmd.Env = append(os.Environ(), "MYSQL_PWD="+c.Password)
	return cmd
}

func redisClient(ctx context.Context, c credentials, statement string) *exec.Cmd {
	return exec.CommandContext(ctx, "redis-cli", append([]string{"-e", "--no-auth-warning", "-u", c.URI}, strings.Fields(statement)...)...)
}

// engineTest has the statements and expected results of the test of one engine.
type engineTest struct {
	engine                   string
	parameters               string
	run                      client
	fill, more, count        string // statements
	foreign                  string // a statement of another binding that changes data of the first one
	one, two                 string // the output of count
	forbidden                string // a statement that no binding is allowed to run
	updated, updatedWant     string // a query for a setting that a larger plan changes, and the new value
	changeParameters, refuse string
	idle, guests             string // a statement that keeps a client connected, and a query that counts such clients
}

var engineTests = []engineTest{
	{
		engine: "postgres", parameters: `{"database":"shop_1"}`, run: psql,
		fill: "CREATE TABLE things (name text); INSERT INTO things VALUES ('a')", more: "INSERT INTO things (name) VALUES ('b')",
		foreign: "ALTER TABLE things ADD COLUMN size int", count: "SELECT count(*) FROM things", one: "1", two: "2",
		forbidden: "CREATE DATABASE other", updated: "SHOW max_connections", updatedWant: "103",
		changeParameters: `{"max_connections":50}`, refuse: `{"database":"elsewhere"}`,
		idle: "SELECT pg_sleep(600)", guests: "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(6%' AND pid <> pg_backend_pid()",
	},
	{
		engine: "mariadb", parameters: `{"database":"shop_1"}`, run: mariadbClient,
		fill: "CREATE TABLE things (name text); INSERT INTO things VALUES ('a')", more: "INSERT INTO things (name) VALUES ('b')",
		foreign: "ALTER TABLE things ADD COLUMN size int", count: "SELECT count(*) FROM things", one: "1", two: "2",
		forbidden: "CREATE DATABASE other", updated: "SELECT @@max_connections", updatedWant: "100",
		changeParameters: `{"max_connections":50}`, refuse: `{"database":"elsewhere"}`,
	},
	{
		engine: "redis", parameters: `{"maxmemory_policy":"allkeys-lru"}`, run: redisClient,
		fill: "RPUSH things a", more: "RPUSH things b", foreign: "EXPIRE things 10000", count: "LLEN things", one: "1", two: "2",
		forbidden: "CONFIG SET maxmemory 1", changeParameters: `{"max_connections":50}`, refuse: `{"databases":3}`,
	},
}

// try runs a statement and returns its output.
func (w *world) try(c engineTest, to credentials, statement string) (string, error) {
	w.t.Helper()
	out, err := c.run(w.ctx(), to, statement).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return strings.TrimSpace(string(out)), err
}

func (w *world) want(c engineTest, to credentials, statement, want string) {
	w.t.Helper()
	got, err := w.try(c, to, statement)
	if err != nil || want != "" && got != want {
		w.t.Fatalf("%s: %q = %q, %v, want %q\n%s", c.engine, statement, got, err, want, w.log(guidOf(c)))
	}
}

func guidOf(c engineTest) string {
	return "11111111-2222-4333-8444-" + fmt.Sprintf("%012x", c.engine[:3])
}

func (w *world) bind(c engineTest, binding string) credentials {
	w.t.Helper()
	p, err := w.broker.Binding(w.ctx(), services.BindingRequest{Action: services.Create, Binding: binding, Instance: guidOf(c)})
	w.must(err)
	if p.State != services.Succeeded || p.Binding == nil {
		w.t.Fatalf("binding = %+v", p)
	}
	var got credentials
	w.must(json.Unmarshal(p.Binding.Credentials, &got))
	return got
}

func (w *world) running(guid string, not ...runtime.InstanceID) runtime.Status {
	w.t.Helper()
	var got runtime.Status
	w.eventually("the server runs", guid, func() error {
		for _, st := range w.sup.Instances(guid) {
			if st.State == runtime.Running && (len(not) == 0 || st.Instance != not[0]) {
				got = st
				return nil
			}
		}
		return fmt.Errorf("%+v", w.sup.Instances(guid))
	})
	return got
}

// TestDatabases creates a database, uses it with several bindings, kills it, restarts
// the daemon, updates it, restores a snapshot, and deletes it.
func TestDatabases(t *testing.T) {
	for _, c := range engineTests {
		t.Run(c.engine, func(t *testing.T) {
			w := newWorld(t)
			w.boot()
			guid := guidOf(c)
			w.succeed(request(services.Create, guid, c.engine, smallPlan, c.parameters))
			if steps := w.steps(); !slices.Contains(steps, "creating: initialising the data directory") {
				t.Errorf("users were told %q", steps)
			}
			a, b := w.bind(c, "binding-a"), w.bind(c, "binding-b")
			w.testUse(c, a, b)
			w.testRestarts(c, a)
			w.testUpdate(c, a)
			w.testSnapshots(c, a)
			w.testUnbind(c, a, b)
			w.testDelete(c)
		})
	}
}

// testUse checks that bindings share their data, and that neither is an administrator.
func (w *world) testUse(c engineTest, a, b credentials) {
	w.t.Helper()
	if a.Username == b.Username || a.Password == b.Password {
		w.t.Errorf("two bindings have one user: %s", a.Username)
	}
	if again := w.bind(c, "binding-a"); again != a {
		w.t.Errorf("the same binding gives %+v, then %+v", a, again)
	}
	w.want(c, a, c.fill, "")
	w.want(c, b, c.foreign, "")
	w.want(c, b, c.count, c.one)
	if out, err := w.try(c, a, c.forbidden); err == nil {
		w.t.Errorf("%s: a binding may %q: %s", c.engine, c.forbidden, out)
	}
	wrong := a
	wrong.Password = "wrong"
	wrong.URI = strings.Replace(a.URI, a.Password, "wrong", 1)
	if out, err := w.try(c, wrong, c.count); err == nil {
		w.t.Errorf("%s: a wrong password is taken: %s", c.engine, out)
	}
	files, err := os.ReadDir(filepath.Join(w.root, "services"))
	fi, serr := os.Stat(filepath.Join(w.root, "services"))
	if err != nil || serr != nil || fi.Mode().Perm() != 0o700 || len(files) != 1 {
		w.t.Errorf("services = %v %v, %v %v", files, err, fi.Mode(), serr)
	}
	if log := w.log(guidOf(c)); strings.Contains(log, a.Password) || strings.Contains(log, b.Password) {
		w.t.Errorf("a log knows a password:\n%s", log)
	}
}

// testRestarts checks that the data survives kill -9 of all processes in the container,
// and the exit of the daemon.
func (w *world) testRestarts(c engineTest, a credentials) {
	w.t.Helper()
	guid := guidOf(c)
	before := w.running(guid)
	w.must(w.sup.Signal(w.ctx(), guid, 0, "", runtime.SentSignal{Number: int(syscall.SIGKILL)}))
	after := w.running(guid, before.Instance)
	if after.Address != before.Address {
		w.t.Errorf("address = %s, then %s", before.Address, after.Address)
	}
	w.eventually("the data is back", guid, func() error {
		_, err := w.try(c, a, c.count)
		return err
	})
	w.want(c, a, c.count, c.one)
	rs, err := w.sup.Exits().Process(guid)
	if err != nil || len(rs) != 1 || !strings.HasPrefix(rs[0].Description, "SERVICE/"+strings.ToUpper(c.engine)+": Exited with status 137") {
		w.t.Errorf("exit records = %+v, %v", rs, err)
	}
	w.leave()
	w.want(c, a, c.count, c.one) // the server does not need the daemon
	w.boot()
	if st := w.running(guid); st.Instance != after.Instance {
		w.t.Errorf("instance = %s, then %s", after.Instance, st.Instance)
	}
	if !w.sup.Apps()[guid] {
		w.t.Error("the log of the server is nobody's")
	}
}

// testUpdate changes the plan and the parameters, and checks that the data is
// unchanged.
func (w *world) testUpdate(c engineTest, a credentials) {
	w.t.Helper()
	guid := guidOf(c)
	_, err := w.broker.Instance(w.ctx(), request(services.Update, guid, c.engine, largePlan, c.refuse))
	if e, ok := errors.AsType[*services.BrokerError](err); !ok || e.Status != 400 {
		w.t.Errorf("update with %s = %v", c.refuse, err)
	}
	ctx, hangUp := context.WithCancel(w.ctx())
	defer hangUp()
	if c.idle != "" { // a client that does not disconnect by itself
		guest := c.run(ctx, a, c.idle)
		w.must(guest.Start())
		defer func() { _ = guest.Wait() }() // it exits with the server
		w.eventually("the client is there", guid, func() error {
			if out, err := w.try(c, a, c.guests); err != nil || out == "0" {
				return fmt.Errorf("%s, %w", out, err)
			}
			return nil
		})
	}
	w.succeed(request(services.Update, guid, c.engine, largePlan, ""))
	// Only the earlier kill required a repair: the stop was clean.
	if n := strings.Count(w.whole(guid), "not properly shut down"); c.idle != "" && n != 1 {
		w.t.Errorf("%d repairs\n%s", n, w.log(guid))
	}
	if v, err := w.sup.Server(guid); err != nil || v.MemoryMB != mustEngine(c.engine).plans[largePlan].memoryMB {
		w.t.Errorf("server = %+v, %v", v, err)
	}
	w.want(c, a, c.count, c.one)
	if c.updated != "" {
		w.want(c, a, c.updated, c.updatedWant)
	}
	w.succeed(request(services.Update, guid, c.engine, smallPlan, c.changeParameters))
	w.want(c, a, c.count, c.one)
}

func mustEngine(name string) *engine {
	e, ok := engineOf(name)
	if !ok {
		panic(name)
	}
	return e
}

// testSnapshots creates a snapshot, adds data and a binding, and restores the snapshot.
func (w *world) testSnapshots(c engineTest, a credentials) {
	w.t.Helper()
	guid := guidOf(c)
	s, err := w.broker.Snapshot(w.ctx(), guid)
	if err != nil {
		w.t.Fatalf("snapshot: %v\n%s", err, w.log(guid))
	}
	w.want(c, a, c.more, "")
	w.want(c, a, c.count, c.two)
	late := w.bind(c, "binding-late")
	if err := w.broker.Restore(w.ctx(), guid, s.ID); err != nil {
		w.t.Fatalf("restore: %v\n%s", err, w.log(guid))
	}
	w.want(c, a, c.count, c.one)
	w.want(c, late, c.count, c.one)
	if err := w.broker.Restore(w.ctx(), guid, "never"); !errors.Is(err, services.ErrNotFound) {
		w.t.Errorf("restore of what is not there = %v", err)
	}
	if ss, err := w.broker.Snapshots(guid); err != nil || len(ss) != 1 || ss[0] != s {
		w.t.Errorf("snapshots = %v, %v", ss, err)
	}
	w.must(w.broker.DropSnapshot(w.ctx(), guid, s.ID))
	if left, err := os.ReadDir(w.broker.copiesDir(guid)); err != nil || len(left) != 0 {
		w.t.Errorf("left of the snapshots: %v, %v", left, err)
	}
	_, err = w.broker.Binding(w.ctx(), services.BindingRequest{Action: services.Delete, Binding: "binding-late", Instance: guid})
	w.must(err)
}

// testUnbind checks that the user and its connections are removed, but not its data.
func (w *world) testUnbind(c engineTest, a, b credentials) {
	w.t.Helper()
	for _, gone := range []bool{false, true} { // a repeated unbind succeeds
		p, err := w.broker.Binding(w.ctx(), services.BindingRequest{Action: services.Delete, Binding: "binding-a", Instance: guidOf(c)})
		if err != nil || p.State != services.Succeeded || p.Gone != gone {
			w.t.Fatalf("unbind = %+v, %v\n%s", p, err, w.log(guidOf(c)))
		}
	}
	if out, err := w.try(c, a, c.count); err == nil {
		w.t.Errorf("%s: an unbound user may log in: %s", c.engine, out)
	}
	w.want(c, b, c.count, c.one)
}

// leases returns the addresses that are in use.
func (w *world) leases() []string {
	w.t.Helper()
	type lease struct{ Address string }
	all, err := store.In(w.db, "addresses", store.Unique("address", func(l lease) string { return l.Address })).All()
	w.must(err)
	var out []string
	for _, l := range all {
		out = append(out, l.Address)
	}
	return out
}

// testDelete checks that a deletion leaves nothing.
func (w *world) testDelete(c engineTest) {
	w.t.Helper()
	guid := guidOf(c)
	w.succeed(request(services.Delete, guid, c.engine, smallPlan, ""))
	if left, err := os.ReadDir(filepath.Join(w.root, "services")); err != nil || len(left) != 0 {
		w.t.Errorf("left of the data: %v, %v", left, err)
	}
	if _, err := w.sup.Server(guid); !errors.Is(err, runtime.ErrNoServer) {
		w.t.Errorf("server = %v", err)
	}
	if sts := w.sup.Instances(guid); len(sts) != 0 {
		w.t.Errorf("instances = %+v", sts)
	}
	w.eventually("no task is left", guid, func() error {
		containers, err := w.engine.Adopt(w.ctx())
		if err != nil || len(containers) != 0 {
			return fmt.Errorf("%d tasks, %w", len(containers), err)
		}
		return nil
	})
	if _, err := w.broker.get(guid); !errors.Is(err, services.ErrNotFound) {
		w.t.Errorf("record = %v", err)
	}
	if left := w.leases(); len(left) != 0 {
		w.t.Errorf("addresses that are still taken: %v", left)
	}
	p, err := w.broker.Instance(w.ctx(), request(services.Delete, guid, c.engine, smallPlan, ""))
	if err != nil || !p.Gone {
		w.t.Errorf("delete once more = %+v, %v", p, err)
	}
}
