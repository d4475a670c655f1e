package marketplace

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/services/servicestest"
)

// withDashboard returns testCatalog with a dashboard client that has this secret.
func withDashboard(secret string) string {
	client := fmt.Sprintf(`"dashboard_client": {"id": "dash", "secret": %q, "redirect_uri": "https://dash.example/cb"}, "id": "o1"`, secret)
	return strings.Replace(testCatalog, `"id": "o1"`, client, 1)
}

// hasSecret reports whether the dashboard can log users in with a secret.
func (w *world) hasSecret(secret string) bool {
	_, err := w.accounts.CheckSecret("dash", secret)
	return err == nil
}

// The OAuth clients of dashboards are those of the broker that is stored: a failed
// update, a canceled one and a deleted broker leave nothing behind.
func TestDashboardClients(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		update := func(name, secret string, do func()) services.Operation {
			t.Helper()
			w.broker.SetCatalog(withDashboard(secret))
			w.client = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				resp, err := w.broker.Client().Do(r)
				do() // after the response, before dewd has it
				return resp, err
			})}
			_, o, err := w.UpdateBroker(w.sb.GUID, services.BrokerChange{Name: &name, By: testActor})
			if err != nil {
				t.Fatal(err)
			}
			return w.waitFor(o)
		}
		if o := update("broker", "first", func() {}); o.State != services.Succeeded || !w.hasSecret("first") {
			t.Fatalf("operation = %+v", o)
		}
		o := update("taken", "second", func() {
			if _, _, err := w.CreateBroker(services.NewBroker{Name: "taken", URL: "http://taken.example", Username: "user", Password: "pass", Space: w.space.GUID}); err != nil {
				t.Error(err)
			}
			w.client = w.broker.Client()
		})
		if o.State != services.Failed || !strings.Contains(o.Description, "Name must be unique") || !w.hasSecret("first") {
			t.Errorf("a failed update: %+v, the first secret is valid: %t", o, w.hasSecret("first"))
		}
		// A refused client of the second offering leaves the first one as it was.
		refused := strings.Replace(withDashboard("third"), `"id": "o2"`, `"dashboard_client": {"id": "bad", "secret": "s", "redirect_uri": "https://a b"}, "id": "o2"`, 1)
		w.broker.SetCatalog(refused)
		name := "broker"
		_, o, err := w.UpdateBroker(w.sb.GUID, services.BrokerChange{Name: &name, By: testActor})
		if err != nil {
			t.Fatal(err)
		}
		if o = w.waitFor(o); o.State != services.Failed || !strings.Contains(o.Description, "redirect_uri") || !w.hasSecret("first") {
			t.Errorf("a refused client: %+v, the first secret is valid: %t", o, w.hasSecret("first"))
		}
		o = update("broker", "fourth", func() {
			if _, err := w.DeleteBroker(w.sb.GUID, testActor); err != nil {
				t.Error(err)
			}
		})
		if _, err := w.accounts.Client("dash"); o.State != services.Failed || err == nil {
			t.Errorf("a broker that was deleted during its update: %+v, %v", o, err)
		}
	})
}

// A daemon that is killed after any commit of an update has the clients of the stored
// broker. The next daemon completes the update.
func TestDashboardClientsAfterKill(t *testing.T) {
	t.Parallel()
	path, name := filepath.Join(t.TempDir(), "dew.db"), "renamed"
	var files [][]byte // after each commit of the update
	synctest.Test(t, func(t *testing.T) {
		updating := false
		broker := servicestest.New(withDashboard("first"))
		w := open(t, path, broker, func(time.Duration) {
			if updating {
				files = append(files, must(os.ReadFile(path)))
			}
		})
		w.populate()
		w.run()
		w.register("broker")
		updating = true
		broker.SetCatalog(withDashboard("second"))
		_, o, err := w.UpdateBroker(w.sb.GUID, services.BrokerChange{Name: &name, By: testActor})
		if err != nil || w.waitFor(o).State != services.Succeeded {
			t.Fatal(err)
		}
		w.stop()
	})
	if len(files) < 2 {
		t.Fatalf("%d commits", len(files))
	}
	for i, file := range files {
		synctest.Test(t, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "dew.db")
			if err := os.WriteFile(path, file, 0o600); err != nil {
				t.Fatal(err)
			}
			w := open(t, path, servicestest.New(withDashboard("second")), nil)
			w.saveState()
			if want := map[string]string{"broker": "first", name: "second"}[w.sb.Name]; !w.hasSecret(want) {
				t.Errorf("commit %d: broker %s, and the secret is not the %s one", i, w.sb.Name, want)
			}
			w.run()
			synctest.Wait()
			if w.saveState(); w.sb.Name != name || !w.hasSecret("second") {
				t.Errorf("commit %d: broker %s after the restart; the new secret is valid: %t", i, w.sb.Name, w.hasSecret("second"))
			}
			w.stop()
		})
	}
}
