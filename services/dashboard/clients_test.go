package dashboard

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/store"
)

func offering(name, client, secret, uri string) services.CatalogOffering {
	return services.CatalogOffering{Name: name, Dashboard: &services.DashboardClient{ID: client, Secret: secret, RedirectURI: uri}}
}

// The clients follow the catalog of their broker. No broker can take a client of another
// broker, or one that is no dashboard's.
func TestSet(t *testing.T) {
	t.Parallel()
	db, err := store.Open(filepath.Join(t.TempDir(), "dew.db"), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	accounts := auth.NewAccounts(db, bcrypt.MinCost)
	if _, err := accounts.CreateClient(auth.NewClient{ID: "robot", Secret: "x", GrantTypes: []string{auth.GrantClient}}); err != nil {
		t.Fatal(err)
	}
	c := New(db, accounts)
	change := func(broker string, catalog []services.CatalogOffering) error {
		all, err := c.Prepare(catalog)
		if err != nil {
			return err
		}
		return db.Update(func(tx *store.Tx) error { return c.With(tx).Set(broker, all) })
	}
	set := func(broker string, catalog ...services.CatalogOffering) {
		t.Helper()
		if err := change(broker, catalog); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(broker, want string, catalog ...services.CatalogOffering) {
		t.Helper()
		if err := change(broker, catalog); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	exists := func(id string) bool {
		_, err := accounts.Client(id)
		return err == nil
	}
	set("b1", offering("db", "dash", "s1", "https://a.example/"), services.CatalogOffering{Name: "plain"})
	one, err := accounts.CheckSecret("dash", "s1")
	if err != nil || one.Name != "db" || len(one.RedirectURIs) != 1 || len(one.Scopes) != 2 {
		t.Fatalf("client = %+v, %v", one, err)
	}
	set("b1", offering("db", "dash", "s1", "https://b.example/"))
	if again, _ := accounts.Client("dash"); string(again.Hash) != string(one.Hash) || again.RedirectURIs[0] != "https://b.example/" {
		t.Errorf("the same secret: %+v", again)
	}
	set("b1", offering("db", "dash", "s2", "https://b.example/"))
	if _, err := accounts.CheckSecret("dash", "s2"); err != nil {
		t.Errorf("the new secret: %v", err)
	}
	refused("b2", "Service other: Service dashboard client id must be unique", offering("fresh", "new", "s", "https://c.example/"), offering("other", "dash", "s", "https://c.example/"))
	refused("b2", "Service other: Service dashboard client id must be unique", offering("other", "robot", "s", "https://c.example/"))
	refused("b2", "Service other: Service dashboard client client_id", offering("other", "no good", "s", "https://c.example/"))
	if exists("new") {
		t.Error("a refused catalog created a client")
	}
	set("b1", offering("db", "dash2", "s", "https://b.example/"))
	if exists("dash") || !exists("dash2") {
		t.Error("the client that left the catalog exists, or the new one does not")
	}
	set("b2", offering("other", "dash", "s", "https://c.example/"))
	set("b2")
	if exists("dash") {
		t.Error("the client of a deleted broker exists")
	}
	set("b3", offering("x", "left", "s", "https://c.example/"))
	if err := c.Sweep([]services.ServiceBroker{{GUID: "b1"}}); err != nil {
		t.Fatal(err)
	}
	if exists("left") || !exists("dash2") || !exists("robot") {
		t.Error("the sweep deleted the wrong clients")
	}

	// A client that an administrator creates with the id of an earlier one is not the
	// broker's.
	set("b4", offering("y", "again", "s", "https://c.example/"))
	if err := accounts.DeleteClient("again"); err != nil {
		t.Fatal(err)
	}
	refused("b4", "redirect_uri", offering("y", "never", "s", "https://a b"))
	for _, id := range []string{"again", "never"} {
		if _, err := accounts.CreateClient(auth.NewClient{ID: id, Secret: "mine", GrantTypes: []string{auth.GrantClient}}); err != nil {
			t.Fatal(err)
		}
		refused("b4", "must be unique", offering("y", id, "s", "https://c.example/"))
		set("b4")
		if err := c.Sweep(nil); err != nil {
			t.Fatal(err)
		}
		if _, err := accounts.CheckSecret(id, "mine"); err != nil {
			t.Errorf("the client %s of an administrator: %v", id, err)
		}
	}
}

// A secret that changes between Prepare and Set is that of the catalog afterwards.
func TestSecretChanges(t *testing.T) {
	t.Parallel()
	db, err := store.Open(filepath.Join(t.TempDir(), "dew.db"), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	accounts := auth.NewAccounts(db, bcrypt.MinCost)
	c := New(db, accounts)
	catalog := []services.CatalogOffering{offering("db", "dash", "s1", "https://a.example/")}
	for name, meanwhile := range map[string]func() error{
		"new":     func() error { return nil },
		"same":    func() error { return nil },
		"changed": func() error { return accounts.SetSecret("dash", "other") },
		"deleted": func() error { return accounts.DeleteClient("dash") },
	} {
		all, err := c.Prepare(catalog)
		if name != "new" { // the other cases start with the client
			err = db.Update(func(tx *store.Tx) error { return c.With(tx).Set("b1", all) })
			if err == nil {
				all, err = c.Prepare(catalog)
			}
		}
		if err == nil {
			err = meanwhile()
		}
		if err == nil {
			err = db.Update(func(tx *store.Tx) error { return c.With(tx).Set("b1", all) })
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := accounts.CheckSecret("dash", "s1"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	var none *Clients
	if all, err := none.Prepare(catalog); err != nil || len(all) > 0 || none.With(nil).Set("b1", all) != nil {
		t.Errorf("no clients: %v, %v", all, err)
	}
}
