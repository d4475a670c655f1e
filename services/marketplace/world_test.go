package marketplace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/services/dashboard"
	"github.com/dewrun/dew/services/osb"
	"github.com/dewrun/dew/services/servicestest"
	"github.com/dewrun/dew/store"
)

// testCatalog has one offering that supports all features, with a free and a paid plan,
// and one offering that supports few.
const testCatalog = `{"services": [
 {"id": "o1", "name": "cache", "description": "A cache", "bindable": true, "plan_updateable": true, "tags": ["kv"],
  "instances_retrievable": true, "bindings_retrievable": true, "allow_context_updates": true,
  "requires": ["syslog_drain", "volume_mount"],
  "metadata": {"shareable": true, "documentationUrl": "http://docs.example"},
  "plans": [
   {"id": "p1", "name": "small", "description": "A small one", "maintenance_info": {"version": "1.0.0"},
    "schemas": {"service_instance": {"create": {"parameters": {"type": "object", "properties": {"size": {"type": "integer", "maximum": 10}}}}}}},
   {"id": "p2", "name": "large", "description": "A large one", "free": false, "maximum_polling_duration": 600,
    "metadata": {"costs": [{"amount": {"usd": 9.5, "eur": 9}, "unit": "MONTHLY"}]}}]},
 {"id": "o2", "name": "plain", "description": "Plain", "bindable": false, "plans": [{"id": "p3", "name": "only", "description": "The only one"}]}
]}`

var testActor = app.Actor{GUID: "user-1", Type: "user", Name: "somebody"}

// world is a Marketplace with a broker, an org, a space and an app.
type world struct {
	*Marketplace
	t      *testing.T
	db     *store.DB
	broker *servicestest.Broker
	client *http.Client // sends requests to the broker
	org    app.Org
	space  app.Space
	app    app.App
	sb     services.ServiceBroker
	stop   func()

	accounts *auth.Accounts // with the clients of dashboards
}

// inWorld runs fn in virtual time, with a registered broker and public plans.
func inWorld(t *testing.T, fn func(w *world)) {
	t.Helper()
	base := baseOf(t)
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "dew.db")
		if err := os.WriteFile(path, base, 0o600); err != nil {
			t.Fatal(err)
		}
		w := open(t, path, servicestest.New(testCatalog), nil)
		w.saveState()
		w.run()
		fn(w)
	})
}

// baseFile is the database of a daemon with a broker and an app. It is created once.
var baseFile struct {
	once sync.Once
	file []byte
}

func baseOf(t *testing.T) []byte {
	t.Helper()
	baseFile.once.Do(func() {
		path := filepath.Join(t.TempDir(), "base.db")
		synctest.Test(t, func(t *testing.T) {
			w := open(t, path, servicestest.New(testCatalog), nil)
			w.populate()
			w.run()
			w.register("broker")
			w.stop()
		})
		baseFile.file = must(os.ReadFile(path))
	})
	return baseFile.file
}

// open opens the store at path as a daemon does. It calls committed after every commit.
func open(t *testing.T, path string, broker *servicestest.Broker, committed func(time.Duration)) *world {
	t.Helper()
	db, err := store.Open(path, store.Options{NoSync: true, Committed: committed})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, db: db, broker: broker, client: broker.Client(), stop: func() {}, accounts: auth.NewAccounts(db, bcrypt.MinCost)}
	w.Marketplace = New(Config{
		DB: db, Registry: registry.New(db), Events: registry.NewEvents(db), Logger: slog.New(slog.DiscardHandler),
		Client: func(sb services.ServiceBroker) services.Broker {
			return &osb.Broker{URL: sb.URL, Username: sb.Username, Password: sb.Password, Client: w.client}
		},
		Dashboards: dashboard.New(db, w.accounts),
	})
	t.Cleanup(func() {
		w.stop()
		_ = db.Close()
	})
	return w
}

// run starts Run; stop stops it.
func (w *world) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
		w.stop = func() {}
	}
}

func (w *world) populate() {
	w.t.Helper()
	w.org = must(w.registry.PutOrg(app.Org{Name: "org"}))
	w.space = must(w.registry.PutSpace(app.Space{Name: "dev", Org: w.org.GUID}))
	w.app = must(w.registry.PutApp(app.App{Name: "shop", Space: w.space.GUID}))
}

// saveState loads the records that populate created.
func (w *world) saveState() {
	w.org, w.space, w.app = must(w.registry.Orgs())[0], must(w.registry.Spaces())[0], must(w.registry.Apps())[0]
	w.sb = must(w.Brokers(services.BrokerFilter{}))[0]
}

// register registers the broker and makes its plans public.
func (w *world) register(name string) {
	w.t.Helper()
	sb, o, err := w.CreateBroker(services.NewBroker{Name: name, URL: "http://" + name + ".example", Username: "user", Password: "pass", By: testActor})
	if err != nil {
		w.t.Fatal(err)
	}
	w.sb = sb
	if o = w.waitFor(o); o.State != services.Succeeded {
		w.t.Fatalf("operation = %+v", o)
	}
	for _, p := range must(w.Plans(services.PlanFilter{Brokers: []string{sb.GUID}})) {
		must(w.SetVisibility(p.GUID, services.Visibility{Type: services.Public}, testActor))
	}
}

// waitFor waits for an operation, longer than any operation can take.
func (w *world) waitFor(o services.Operation) services.Operation {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*24*time.Hour)
	defer cancel()
	return must(w.Wait(ctx, o.GUID, services.Operation.Ended))
}

func (w *world) planNamed(name string) services.Plan {
	w.t.Helper()
	ps := must(w.Plans(services.PlanFilter{Names: []string{name}}))
	if len(ps) == 0 {
		w.t.Fatalf("no plan %q", name)
	}
	return ps[0]
}

// create creates an instance of a plan and waits for it.
func (w *world) create(plan, name string) (services.Instance, services.Operation) {
	w.t.Helper()
	i, o, err := w.CreateInstance(services.NewInstance{Type: services.Managed, Name: name, Space: w.space.GUID, Plan: w.planNamed(plan).GUID, By: testActor})
	if err != nil {
		w.t.Fatal(err)
	}
	o = w.waitFor(o)
	return must(w.Instance(i.GUID)), o
}

// bind binds the app to an instance and waits for it.
func (w *world) bind(i services.Instance) (services.Binding, services.Operation) {
	w.t.Helper()
	bi, o, err := w.CreateBinding(services.NewBinding{Type: services.AppBinding, Instance: i.GUID, App: w.app.GUID, By: testActor})
	if err != nil {
		w.t.Fatal(err)
	}
	o = w.waitFor(o)
	return must(w.Binding(bi.GUID)), o
}

// provided creates a user-provided instance.
func (w *world) provided(n services.NewInstance) services.Instance {
	w.t.Helper()
	n.Type, n.Space, n.By = services.UserProvided, w.space.GUID, testActor
	i, o, err := w.CreateInstance(n)
	if err != nil || o.GUID != "" {
		w.t.Fatalf("operation %q, error %v", o.GUID, err)
	}
	return i
}

// settled waits until all background work is done.
func settled() {
	time.Sleep(30 * time.Minute)
	synctest.Wait()
}

// last formats the last operation as users read it.
func last(l services.LastOperation) string {
	return fmt.Sprintf("%s %s: %s", l.Type, l.State, l.Description)
}

// must returns the value. It panics on an error, so it works in any goroutine.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// detail returns the message of a refusal, or "" if there is no error.
func detail(t *testing.T, err error) string {
	t.Helper()
	switch {
	case err == nil:
		return ""
	case errors.Is(err, services.ErrNotFound):
		return "not found"
	case !services.IsRefusal(err):
		t.Errorf("error %v is neither Invalid nor Refused", err)
	}
	return err.Error()
}
