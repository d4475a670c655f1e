//go:build integration

package examples_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// credentials are those of the databases, as apps and people read them. A port that is
// not a number is an error.
type credentials struct {
	Host     string `json:"host"`
	Port     int    `json:"port"`
	Database string `json:"database"`
	Username string `json:"username"`
	Password string `json:"password"`
	URI      string `json:"uri"`
	JDBCURL  string `json:"jdbcUrl"`
}

// client runs the engine's own client on the machine, as a user does.
func (c credentials) client(engine, statement string) (string, error) {
	var args []string
	port := strconv.Itoa(c.Port)
	switch engine {
	case "postgres":
		args = []string{"psql", "-X", "-A", "-t", "-d", c.URI, "-c", statement}
	case "mariadb":
		args = []string{"mariadb", "--no-defaults", "-N", "-B", "-h", c.Host, "-P", port, "-u", c.Username, c.Database, "-e", statement}
	case "redis":
		args = append([]string{"redis-cli", "-e", "-h", c.Host, "-p", port, "--user", c.Username, "--no-auth-warning"}, strings.Fields(statement)...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "MYSQL_PWD="+c.Password, "REDISCLI_AUTH="+c.Password, "PGCONNECT_TIMEOUT=10")
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	err := cmd.Run()
	if err != nil || talk.Len() > 0 {
		err = errors.Join(err, fmt.Errorf("%s: %s", args[0], talk.String())) // redis-cli exits with 0 even without a login
	}
	return strings.TrimSpace(out.String()), err
}

// reads checks the output of the engine's own client.
func (c credentials) reads(t *testing.T, engine, statement, want string) {
	t.Helper()
	if got, err := c.client(engine, statement); err != nil || got != want {
		t.Errorf("%s answers %q with %q, %v; want %q", engine, statement, got, err, want)
	}
}

// serviceView holds the parts of the output of `dew service --json` that the tests
// check.
type serviceView struct {
	GUID, Name, Offering, Plan string
	Last                       string   `json:"last_operation"`
	About                      string   `json:"description"`
	Apps                       []string `json:"bound_apps"`
}

func service(t *testing.T, name string) serviceView {
	t.Helper()
	return read[serviceView](t, "service", name, "--json")
}

// created waits until a creation is finished.
func created(t *testing.T, name string) {
	t.Helper()
	eventually(t, "service "+name+" is created", func() error {
		switch v := service(t, name); v.Last {
		case "create succeeded":
			return nil
		case "create in progress", "create initial":
			return fmt.Errorf("%s: %s", v.Last, v.About)
		default:
			return final{fmt.Errorf("%s: %s", v.Last, v.About)}
		}
	})
}

// key creates a service key and reads it.
func key(t *testing.T, service, name string) credentials {
	t.Helper()
	dew(t, "", "create-service-key", service, name, "--wait")
	return read[struct{ Credentials credentials }](t, "service-key", service, name).Credentials
}

// dropService deletes a service instance and searches for leftovers: its data, its log,
// its container and a listener at its address.
func dropService(t *testing.T, name string, at credentials) {
	t.Helper()
	guid, before := service(t, name).GUID, tasks(t)
	home := filepath.Join(dewd.dir, "root", "services", guid)
	if _, err := os.Stat(home); err != nil {
		t.Errorf("the data of %s: %v", name, err)
	}
	dew(t, "", "delete-service", name, "-f", "--wait")
	if r := dewd.dew("", "service", name); r.code == 0 {
		t.Errorf("service %s is still there:\n%s", name, r.out)
	}
	for _, folder := range []string{home, filepath.Join(dewd.dir, "root", "logs", guid)} {
		eventually(t, "the deletion of "+name, func() error {
			_, err := os.Stat(folder)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return errors.Join(err, fmt.Errorf("%s is still there", folder))
		})
	}
	if now := tasks(t); len(now) >= len(before) {
		t.Errorf("containers %q, before there were %q", now, before)
	}
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(at.Host, strconv.Itoa(at.Port)), 200*time.Millisecond)
	if err == nil {
		_ = conn.Close()
		t.Errorf("somebody still listens at %s", at.Host)
	}
}

// tasks returns the containers of the cell.
func tasks(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dewd.run, "containerd", "state", "io.containerd.runtime.v2.task", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// program returns a folder with an example's program and its manifest plus additional
// lines.
func program(t *testing.T, example, more string) string {
	t.Helper()
	dir := t.TempDir()
	command(t, ".", "go", "build", "-trimpath", "-o", filepath.Join(dir, "build")+"/", "./"+example)
	b, err := os.ReadFile(filepath.Join(example, "manifest.yml"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "manifest.yml"), string(b)+more, 0o644)
	return dir
}

// vcapServices returns VCAP_SERVICES in the app's container.
func vcapServices(t *testing.T, app string) string {
	t.Helper()
	return strings.TrimSpace(dew(t, "", "ssh", app, "-c", `printf %s "$VCAP_SERVICES"`).out)
}

// vcapEntry is a service in VCAP_SERVICES.
type vcapEntry struct {
	Label, Name, Plan string
	Tags              []string
	InstanceGUID      string  `json:"instance_guid"`
	InstanceName      string  `json:"instance_name"`
	BindingName       *string `json:"binding_name"`
	Credentials       credentials
}

// entry checks that an app's VCAP_SERVICES has exactly one complete service, and
// returns it.
func entry(t *testing.T, app, offering, instance string) vcapEntry {
	t.Helper()
	text := vcapServices(t, app)
	var all map[string][]vcapEntry
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all) != 1 || len(all[offering]) != 1 {
		t.Fatalf("VCAP_SERVICES = %s, %v; want one %s", text, err, offering)
	}
	e := all[offering][0]
	if e.Label != offering || e.Plan != "small" || e.Name != instance || e.InstanceName != instance || e.BindingName != nil || !slices.Contains(e.Tags, offering) {
		t.Errorf("entry %+v, want %s small %s", e, offering, instance)
	}
	if e.InstanceGUID != service(t, instance).GUID {
		t.Errorf("instance guid %q", e.InstanceGUID)
	}
	c := e.Credentials
	if net.ParseIP(c.Host) == nil || c.Port == 0 || c.Username == "" || len(c.Password) < 16 || !strings.Contains(c.URI, c.Password) {
		t.Errorf("credentials %+v are not whole", c)
	}
	if offering != "redis" && (c.Database == "" || !strings.HasPrefix(c.JDBCURL, "jdbc:")) {
		t.Errorf("credentials %+v have no database, or no JDBC address", c)
	}
	return e
}

// The marketplace lists the services with their plans, and marks the paid ones.
func TestMarketplace(t *testing.T) {
	for _, offering := range []string{"mariadb", "postgres", "redis"} {
		eventually(t, offering, func() error { // a new daemon has not read its broker's catalog yet
			out := dew(t, "", "marketplace").out
			if !slices.ContainsFunc(strings.Split(out, "\n"), func(l string) bool {
				return strings.HasPrefix(l, offering+" ") && strings.Contains(l, " large*, small ")
			}) {
				return fmt.Errorf("the marketplace has no %s with its plans:\n%s", offering, out)
			}
			return nil
		})
	}
	plans := map[string]bool{}
	for _, o := range read[[]struct {
		Offering, Plan string
		Free           bool
	}](t, "marketplace", "-e", "postgres", "--json") {
		plans[o.Offering+" "+o.Plan] = o.Free
	}
	if len(plans) != 2 || !plans["postgres small"] || plans["postgres large"] {
		t.Errorf("plans that are free: %v", plans)
	}
}

// A database is created and an app is bound to it. The app sees the database only after
// a restage, uses it, and everything is deleted.
func TestUsersDatabase(t *testing.T) {
	for _, offering := range []string{"postgres", "mariadb"} {
		t.Run(offering, func(t *testing.T) { usersDatabase(t, offering) })
	}
}

func usersDatabase(t *testing.T, offering string) {
	const name, db = "users-database", "db"
	// With local settings the app starts before a service is bound.
	dir := program(t, name, "  env: {DB_CONNECTION: "+offering+", DB_PORT: 9}\n")
	if r := dew(t, "", "create-service", offering, "small", db); !strings.Contains(r.err, "Create in progress") {
		t.Errorf("create-service says %q, want that it goes on", r.err)
	}
	deleteLater(t, name)
	dew(t, dir, "push")
	created(t, db)
	wantErrorPage(t, name, "/users")

	bindThenRestage(t, name, offering, db)
	e := entry(t, name, offering, db)
	wantErrorPage(t, name, "/users") // no tables yet
	if p := usersPage(t, name, "/migrate"); p["migrated"] != true {
		t.Fatalf("/migrate answers %v", p)
	}
	usersAreListed(t, name)
	k := key(t, db, "mine")
	k.reads(t, offering, "SELECT count(*) FROM users", "3")
	if k.Username == e.Credentials.Username || k.Database != e.Credentials.Database {
		t.Errorf("key %s of %s and binding %s of %s, want two users of one database", k.Username, k.Database, e.Credentials.Username, e.Credentials.Database)
	}
	if p := usersPage(t, name, "/users/delete"); fmt.Sprint(p) != "map[users:[]]" {
		t.Errorf("/users/delete answers %v", p)
	}
	k.reads(t, offering, "SELECT count(*) FROM users", "0")

	dew(t, "", "unbind-service", name, db, "--wait")
	if out, err := e.Credentials.client(offering, "SELECT 1"); err == nil {
		t.Errorf("the user of the binding is still there: %s", out)
	}
	k.reads(t, offering, "SELECT count(*) FROM users", "0")
	dew(t, "", "delete-service-key", db, "mine", "-f", "--wait")
	if out, err := k.client(offering, "SELECT 1"); err == nil {
		t.Errorf("the user of the key is still there: %s", out)
	}
	dropService(t, db, e.Credentials)
}

// bindThenRestage binds a running app, which sees the service with the next droplet.
func bindThenRestage(t *testing.T, app, offering, instance string) {
	t.Helper()
	if r := dew(t, "", "bind-service", app, instance); !strings.Contains(r.err, "dew restage "+app) {
		t.Errorf("bind-service says %q, want that a restage is needed", r.err)
	}
	dew(t, "", "restart", app)
	if text := vcapServices(t, app); strings.Contains(text, offering) {
		t.Errorf("VCAP_SERVICES before a restage is %s", text)
	}
	if out := dew(t, "", "app", app).out; !strings.Contains(out, "bound since staging: "+instance) {
		t.Errorf("dew app does not tell what waits for a restage:\n%s", out)
	}
	if apps := service(t, instance).Apps; !slices.Equal(apps, []string{app}) {
		t.Errorf("bound apps %q", apps)
	}
	dew(t, "", "restage", app)
	if out := dew(t, "", "app", app).out; strings.Contains(out, "bound since staging") {
		t.Errorf("dew app after a restage:\n%s", out)
	}
}

// usersPage returns a response of the app, decoded from JSON.
func usersPage(t *testing.T, app, path string) (body map[string]any) {
	t.Helper()
	eventually(t, app+path, func() error {
		p := get(t, app, path)
		if p.status != 200 {
			return fmt.Errorf("answer %d %s", p.status, p.body)
		}
		return json.Unmarshal([]byte(p.body), &body)
	})
	return body
}

// wantErrorPage checks for an error with its trace.
func wantErrorPage(t *testing.T, app, path string) {
	t.Helper()
	eventually(t, app+path, func() error {
		p := get(t, app, path)
		var body struct {
			Error string
			Trace []string
		}
		if err := json.Unmarshal([]byte(p.body), &body); err != nil || p.status != 500 || body.Error == "" || len(body.Trace) == 0 {
			return fmt.Errorf("answer %d %s, want an error with a trace", p.status, p.body)
		}
		return nil
	})
}

// usersAreListed adds three users and checks that all are in the list.
func usersAreListed(t *testing.T, app string) {
	t.Helper()
	added := usersPage(t, app, "/users/add/3")
	users, _ := added["users added"].([]any)
	if added["amount"] != 3.0 || len(users) != 3 {
		t.Fatalf("/users/add/3 answers %v", added)
	}
	for _, field := range []string{"firstName", "lastName", "birthday", "email", "password"} {
		if u, _ := users[0].(map[string]any); u[field] == "" || u[field] == nil {
			t.Errorf("a user without %s: %v", field, u)
		}
	}
	listed := usersPage(t, app, "/users")
	if listed["count"] != 3.0 || fmt.Sprint(listed["users"]) != fmt.Sprint(users) {
		t.Errorf("/users answers %v, want the users that were added: %v", listed, users)
	}
}
