// Package dashboard keeps the OAuth clients with which the dashboards of service brokers
// log users in. A client belongs to the broker whose catalog names it.
package dashboard

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/store"
)

// scopes are the scopes of a dashboard. They identify the user, and let the dashboard
// ask for the permissions of the user.
var scopes = []string{"openid", "cloud_controller_service_permissions.read"}

// claim says that a client belongs to a broker. A client with the same id that was
// created at another time does not.
type claim struct {
	Client    string
	Broker    string // guid
	CreatedAt time.Time
}

// Clients are the clients of all dashboards.
type Clients struct {
	claims   *store.Bucket[claim]
	accounts *auth.Accounts
	db       *store.DB
	mu       sync.Mutex // held by Set, so that brokers cannot take clients from each other
}

// New returns the clients that are stored in a database.
func New(db *store.DB, accounts *auth.Accounts) *Clients {
	return &Clients{claims: store.In[claim](db, "dashboard clients"), accounts: accounts, db: db}
}

// Set makes the clients of a broker those of its catalog. It refuses a catalog with a
// client that exists and is not the broker's.
func (c *Clients) Set(broker string, catalog []services.CatalogOffering) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	own, err := c.of(broker)
	if err != nil {
		return err
	}
	var taken []string
	wanted := map[string]bool{}
	for _, o := range catalog {
		if o.Dashboard == nil {
			continue
		}
		wanted[o.Dashboard.ID] = true
		_, err := c.accounts.Client(o.Dashboard.ID)
		if err != nil && !errors.Is(err, auth.ErrNotFound) {
			return err
		}
		if err == nil && !slices.Contains(own, o.Dashboard.ID) {
			taken = append(taken, "Service "+o.Name+": Service dashboard client id must be unique")
		}
	}
	if len(taken) > 0 {
		return services.CatalogInvalid(taken...)
	}
	for _, o := range catalog {
		if o.Dashboard == nil {
			continue
		}
		if err := c.put(broker, o); err != nil {
			return err
		}
	}
	for _, id := range own {
		if wanted[id] {
			continue
		}
		if err := c.remove(id); err != nil {
			return err
		}
	}
	return nil
}

// of returns the ids of the existing clients of a broker.
func (c *Clients) of(broker string) (ids []string, err error) {
	all, err := c.claims.All()
	if err != nil {
		return nil, fmt.Errorf("cannot list the clients of dashboards: %w", err)
	}
	for _, one := range all {
		if one.Broker != broker {
			continue
		}
		switch exists, err := one.exists(c.accounts); {
		case err != nil:
			return nil, err
		case exists:
			ids = append(ids, one.Client)
		}
	}
	return ids, nil
}

// exists reports whether the client of a claim exists.
func (one claim) exists(accounts *auth.Accounts) (bool, error) {
	client, err := accounts.Client(one.Client)
	if errors.Is(err, auth.ErrNotFound) {
		return false, nil
	}
	return client.CreatedAt.Equal(one.CreatedAt), err
}

// put creates or changes a client. It changes the secret only if it is a new one, because
// a new one revokes tokens.
func (c *Clients) put(broker string, o services.CatalogOffering) error {
	d := *o.Dashboard
	found, err := c.accounts.Client(d.ID)
	if errors.Is(err, auth.ErrNotFound) {
		return refused(o, c.create(broker, o))
	}
	if err == nil {
		_, err = c.accounts.CheckSecret(d.ID, d.Secret)
	}
	if errors.Is(err, auth.ErrBadPassword) {
		err = c.accounts.SetSecret(d.ID, d.Secret)
	}
	if err == nil {
		_, err = c.accounts.UpdateClient(d.ID, func(a *auth.Client) error {
			if !a.CreatedAt.Equal(found.CreatedAt) {
				return auth.ErrTaken
			}
			a.Name, a.RedirectURIs = o.Name, []string{d.RedirectURI}
			return nil
		})
	}
	return refused(o, err)
}

// create stores a client with its claim.
func (c *Clients) create(broker string, o services.CatalogOffering) error {
	d := *o.Dashboard
	return c.db.Update(func(tx *store.Tx) error {
		client, err := c.accounts.With(tx).CreateClient(auth.NewClient{
			ID: d.ID, Name: o.Name, Secret: d.Secret, GrantTypes: []string{auth.GrantCode}, Scopes: scopes, Authorities: []string{"uaa.none"},
			RedirectURIs: []string{d.RedirectURI},
		})
		if err != nil {
			return err
		}
		if err := c.claims.With(tx).Put(d.ID, claim{Client: d.ID, Broker: broker, CreatedAt: client.CreatedAt}); err != nil {
			return fmt.Errorf("cannot store the client of a dashboard: %w", err)
		}
		return nil
	})
}

// refused turns the refusal of a client into one of the catalog.
func refused(o services.CatalogOffering, err error) error {
	if invalid, ok := errors.AsType[*auth.Invalid](err); ok {
		return services.CatalogInvalid("Service " + o.Name + ": Service dashboard client " + invalid.Error())
	}
	if errors.Is(err, auth.ErrTaken) {
		return services.CatalogInvalid("Service " + o.Name + ": Service dashboard client id must be unique")
	}
	return err
}

// remove deletes a claim, with its client if that exists.
func (c *Clients) remove(id string) error {
	return c.db.Update(func(tx *store.Tx) error {
		accounts, claims := c.accounts.With(tx), c.claims.With(tx)
		one, err := claims.Get(id)
		if err != nil {
			return fmt.Errorf("cannot read the client of a dashboard: %w", err)
		}
		exists, err := one.exists(accounts)
		if exists {
			err = accounts.DeleteClient(id)
		}
		if err != nil {
			return err
		}
		if err := claims.Delete(id); err != nil {
			return fmt.Errorf("cannot delete the client of a dashboard: %w", err)
		}
		return nil
	})
}

// Sweep deletes the clients of brokers that do not exist. A daemon that was killed can
// have left them.
func (c *Clients) Sweep(brokers []services.ServiceBroker) error {
	all, err := c.claims.All()
	if err != nil {
		return fmt.Errorf("cannot list the clients of dashboards: %w", err)
	}
	for _, one := range all {
		if slices.ContainsFunc(brokers, func(b services.ServiceBroker) bool { return b.GUID == one.Broker }) {
			continue
		}
		if err := c.remove(one.Client); err != nil {
			return err
		}
	}
	return nil
}
