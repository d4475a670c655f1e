//go:build integration

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dewrun/dew/store"
)

// The service instance of these tests, the permanent key, and the temporary key.
const (
	killTestDB = "db"
	keeperKey  = "keeper"
	passingKey = "passing"
)

// dewd is killed after the n-th commit of the creation and deletion of a database and
// of a key, for every n. After a restart, every operation finishes with a correct
// state, and the data of the database is there.
func TestServicesSurviveEveryKill(t *testing.T) {
	runParallel(t)
	engines := []string{"redis"}
	if os.Getenv("DEW_PROOF") != "" {
		engines = append(engines, "postgres", "mariadb")
	}
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			m := &serviceKillTest{cell: newCell(t), engine: engine}
			for _, a := range []killedCommand{
				{"create", m.noService, m.checkCreate, []string{"create-service", engine, "small", killTestDB, "--wait"}, 10},
				{"bind", m.service, m.checkBind, []string{"create-service-key", killTestDB, passingKey, "--wait"}, 4},
				{"unbind", m.bound, m.checkUnbind, []string{"delete-service-key", killTestDB, passingKey, "-f", "--wait"}, 4},
				{"delete", m.bound, m.checkDelete, []string{"delete-service", killTestDB, "-f", "--wait"}, 14},
			} {
				t.Run(a.name, func(t *testing.T) { m.at(t).killAtEveryStep(a) })
			}
		})
	}
}

// serviceKillTest is a cell whose dewd dies while it works on a database.
type serviceKillTest struct {
	*cell
	engine string
	kept   login               // login of the permanent key
	before map[string][]string // running processes, by instance
}

// at returns the cell for a subtest.
func (m *serviceKillTest) at(t *testing.T) *serviceKillTest {
	m.t = t
	return m
}

// login holds the credentials for a database.
type login struct {
	Host, Database, Username, Password string
	Port                               int
}

// killedCommand is a command, its precondition, and the allowed results.
type killedCommand struct {
	name  string
	ready func()
	check func(done bool)
	args  []string
	step  int // distance between two deaths, if not every one is tried
}

func (m *serviceKillTest) killAtEveryStep(a killedCommand) {
	m.t.Helper()
	step := rounds(a.step, 1)
	for n := 1 + rand.N(step); ; n += step { // every run tries different numbers
		m.live(n)
		a.ready()
		m.before = m.running()
		died := m.killedWhile(a.args...)
		m.live(0)
		a.check(!died)
		m.kill(syscall.SIGKILL)
		if m.t.Failed() {
			m.t.Fatalf("after commit %d\n%s", n, m.said)
		}
		if !died {
			m.t.Logf("%s has fewer than %d commits", a.name, n)
			return
		}
	}
}

func (m *serviceKillTest) armed() string { return filepath.Join(filepath.Dir(m.root), "armed") }

// live starts a dewd that dies n commits after it is armed. With 0 it does not die.
func (m *serviceKillTest) live(n int) {
	m.t.Helper()
	if err := os.RemoveAll(m.armed()); err != nil {
		m.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		m.t.Fatal(err)
	}
	m.launchAs(self, "DEW_TEST_DIE=commit "+strconv.Itoa(n), "DEW_TEST_ARMED="+m.armed())
	m.awaitSocket()
}

// killedWhile runs a command on the armed dewd and reports whether dewd died.
func (m *serviceKillTest) killedWhile(args ...string) bool {
	m.t.Helper()
	if err := os.Mkdir(m.armed(), 0o700); err != nil {
		m.t.Fatal(err)
	}
	return m.killedDuring(args...)
}

// row is a service instance or a key in a list.
type row struct {
	GUID, Name string
	Last       string `json:"last_operation"`
	About      string `json:"description"`
}

// rows waits until no operation in a list is in progress.
func (m *serviceKillTest) rows(args ...string) (all []row) {
	m.t.Helper()
	m.eventually("the end of what is under way", func() error {
		out, err := m.dewCommand(append(args, "--json")...).Output()
		if err == nil {
			all = nil
			err = json.Unmarshal(out, &all)
		}
		for _, r := range all {
			if strings.HasSuffix(r.Last, "in progress") || strings.HasSuffix(r.Last, "initial") {
				err = fmt.Errorf("%s: %s: %s", r.Name, r.Last, r.About)
			}
		}
		return err
	})
	return all
}

// find waits until no operation is in progress and returns the row of that name.
func (m *serviceKillTest) find(name string, args ...string) (row, bool) {
	m.t.Helper()
	all := m.rows(args...)
	i := slices.IndexFunc(all, func(r row) bool { return r.Name == name })
	if i < 0 {
		return row{}, false
	}
	return all[i], true
}

// noService deletes the database, if there is one.
func (m *serviceKillTest) noService() {
	m.t.Helper()
	m.kept = login{}
	m.eventually("the offering is there", func() error { // a new daemon has not queried its broker yet
		out, err := m.outcome("marketplace", "-e", m.engine)
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
	m.dew("delete-service", killTestDB, "-f", "--wait")
	m.nothing()
}

// service creates the database and the permanent key, with a value, if they do not
// exist.
func (m *serviceKillTest) service() {
	m.t.Helper()
	if r, there := m.find(killTestDB, "services"); there && r.Last == "create succeeded" && m.kept != (login{}) {
		m.dew("delete-service-key", killTestDB, passingKey, "-f", "--wait")
		return
	}
	m.noService()
	m.dew("create-service", m.engine, "small", killTestDB, "--wait")
	m.dew("create-service-key", killTestDB, keeperKey, "--wait")
	m.kept = m.key(keeperKey)
	for _, s := range map[string][]string{
		"redis":    {"SET kept yes"},
		"postgres": {"CREATE TABLE kept (v text)", "INSERT INTO kept VALUES ('yes')"},
		"mariadb":  {"CREATE TABLE kept (v text)", "INSERT INTO kept VALUES ('yes')"},
	}[m.engine] {
		if out, err := m.client(m.kept, s); err != nil {
			m.t.Fatalf("%s: %v\n%s", s, err, out)
		}
	}
}

// bound also creates the temporary key.
func (m *serviceKillTest) bound() {
	m.t.Helper()
	m.service()
	m.dew("create-service-key", killTestDB, passingKey, "--wait")
}

func (m *serviceKillTest) key(name string) login {
	m.t.Helper()
	var k struct{ Credentials login }
	out, err := m.dewCommand("service-key", killTestDB, name).Output()
	if err == nil {
		err = json.Unmarshal(out, &k)
	}
	if err != nil {
		m.t.Fatalf("key %s: %v\n%s", name, err, out)
	}
	return k.Credentials
}

// client runs a statement on the database, as a user does.
func (m *serviceKillTest) client(l login, statement string) (string, error) {
	port := strconv.Itoa(l.Port)
	args := map[string][]string{
		"redis":    append([]string{"redis-cli", "-e", "-h", l.Host, "-p", port, "--user", l.Username, "--no-auth-warning"}, strings.Fields(statement)...),
		"postgres": {"psql", "-X", "-A", "-t", "-h", l.Host, "-p", port, "-U", l.Username, "-d", l.Database, "-c", statement},
		"mariadb":  {"mariadb", "--no-defaults", "-N", "-B", "-h", l.Host, "-P", port, "-u", l.Username, l.Database, "-e", statement},
	}[m.engine]
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "PGPASSWORD="+l.Password, "MYSQL_PWD="+l.Password, "REDISCLI_AUTH="+l.Password, "PGCONNECT_TIMEOUT=10")
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err == nil && strings.Contains(text, "AUTH failed") {
		err = errors.New(text) // redis-cli continues without a login
	}
	return text, err
}

// works checks the value with some credentials.
func (m *serviceKillTest) works(who string, l login) {
	m.t.Helper()
	read := map[string]string{"redis": "GET kept", "postgres": "SELECT v FROM kept", "mariadb": "SELECT v FROM kept"}[m.engine]
	if out, err := m.client(l, read); err != nil || out != "yes" {
		m.t.Errorf("%s reads %q, %v; want the value that was kept", who, out, err)
	}
}

// running returns the processes of every instance.
func (m *serviceKillTest) running() map[string][]string {
	out := map[string][]string{}
	for id, leaves := range m.leaves() {
		for _, pid := range leaves["main"] {
			out[id] = append(out[id], strconv.Itoa(pid))
		}
	}
	return out
}

// untouched checks that the earlier server still runs, with its data.
func (m *serviceKillTest) untouched() {
	m.t.Helper()
	now := m.running()
	for id := range m.before {
		if len(now) != 1 || len(now[id]) == 0 || now[id][0] != m.before[id][0] {
			m.t.Errorf("processes %v, before the death of dewd %v", now, m.before)
		}
	}
	m.works(keeperKey, m.kept)
}

// nothing waits until nothing is left of a database.
func (m *serviceKillTest) nothing() {
	m.t.Helper()
	m.eventually("nothing is left", func() error {
		homes, err := os.ReadDir(filepath.Join(m.root, "services"))
		if left := m.leaves(); err != nil || len(homes) > 0 || len(left) > 0 {
			return errors.Join(err, fmt.Errorf("folders %v, processes %v", homes, left))
		}
		return nil
	})
}

func (m *serviceKillTest) checkCreate(done bool) {
	m.t.Helper()
	r, there := m.find(killTestDB, "services")
	switch {
	case !there && !done:
		m.nothing() // the request was not stored
	case r.Last != "create succeeded":
		m.t.Errorf("the database is %+v, want it created", r)
	default:
		m.dew("create-service-key", killTestDB, passingKey, "--wait")
		l := m.key(passingKey)
		if out, err := m.client(l, map[string]string{"redis": "PING", "postgres": "SELECT 1", "mariadb": "SELECT 1"}[m.engine]); err != nil {
			m.t.Errorf("the database does not answer: %v\n%s", err, out)
		}
	}
}

func (m *serviceKillTest) checkBind(done bool) {
	m.t.Helper()
	r, there := m.find(passingKey, "service-keys", killTestDB)
	switch {
	case !there && !done: // the request was not stored
	case r.Last == "create succeeded":
		m.works(passingKey, m.key(passingKey))
	default:
		m.t.Errorf("the key is %+v, want it created", r)
	}
	m.untouched()
	m.users(map[bool]int{true: 2, false: 1}[there])
}

func (m *serviceKillTest) checkUnbind(done bool) {
	m.t.Helper()
	r, there := m.find(passingKey, "service-keys", killTestDB)
	switch {
	case there && (done || r.Last != "create succeeded"):
		m.t.Errorf("the key is %+v, want it gone", r)
	case there: // the request to delete it was not stored
		m.works(passingKey, m.key(passingKey))
	}
	m.untouched()
	m.users(map[bool]int{true: 2, false: 1}[there])
}

func (m *serviceKillTest) checkDelete(done bool) {
	m.t.Helper()
	r, there := m.find(killTestDB, "services")
	switch {
	case there && (done || r.Last != "create succeeded"):
		m.t.Errorf("the database is %+v, want it gone", r)
	case there: // the request to delete it was not stored
		m.untouched()
		m.works(passingKey, m.key(passingKey))
	default:
		m.nothing()
		m.kill(syscall.SIGKILL)
		m.noAddress()
		m.live(0)
	}
}

// users waits until Redis has as many users as there are keys.
func (m *serviceKillTest) users(want int) {
	m.t.Helper()
	if m.engine != "redis" {
		return
	}
	m.eventually("the users of the keys", func() error {
		files, err := filepath.Glob(filepath.Join(m.root, "services", "*", "store", "data", "users.acl"))
		if err != nil || len(files) != 1 {
			return fmt.Errorf("files %v, %w", files, err)
		}
		b, err := os.ReadFile(files[0])
		if got := strings.Count(string(b), "user u"); err != nil || got != want {
			return errors.Join(err, fmt.Errorf("%d users, want %d", got, want))
		}
		return nil
	})
}

// noAddress checks that no address is reserved for a server. dewd must not be running.
func (m *serviceKillTest) noAddress() {
	m.t.Helper()
	db, err := store.Open(filepath.Join(m.root, "dew.db"), store.Options{Format: storeFormat})
	if err != nil {
		m.t.Fatal(err)
	}
	defer db.Close()
	all, err := store.In[map[string]any](db, "addresses").All()
	if err != nil || len(all) > 0 {
		m.t.Errorf("addresses %v, %v, want none", all, err)
	}
}
