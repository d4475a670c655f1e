// Package dashboard keeps the OAuth clients with which the dashboards of service brokers
// log users in. A client belongs to the broker whose catalog names it.
package dashboard

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/store"
)

// scopes are the scopes of a dashboard. They identify the user, and let the dashboard
// ask for the permissions of the user.
var scopes = []string{"openid", "cloud_controller_service_permissions.read"}

// claim says that a client belongs to a broker.
type claim struct {
	Client string
	Broker string // guid
}

// Clients are the clients of all dashboards.
type Clients struct {
	claims   *store.Bucket[claim]
	accounts *auth.Accounts
	db       *store.DB
}

// New returns the clients that are stored in a database.
func New(db *store.DB, accounts *auth.Accounts) *Clients {
	return &Clients{claims: store.In[claim](db, "dashboard clients"), accounts: accounts, db: db}
}

// Set makes the clients of a broker those of its catalog. It refuses a catalog with a
// client that exists and is not the broker's. Then nothing changes.
func (c *Clients) Set(broker string, catalog []services.CatalogOffering) error {
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

// of returns the ids of the clients of a broker.
func (c *Clients) of(broker string) (ids []string, err error) {
	all, err := c.claims.All()
	if err != nil {
		return nil, fmt.Errorf("cannot list the clients of dashboards: %w", err)
	}
	for _, one := range all {
		if one.Broker == broker {
			ids = append(ids, one.Client)
		}
	}
	return ids, nil
}

// put creates or changes a client. It changes the secret only if it is a new one, because
// a new one revokes tokens.
func (c *Clients) put(broker string, o services.CatalogOffering) error {
	d := *o.Dashboard
	_, err := c.accounts.CheckSecret(d.ID, d.Secret)
	if errors.Is(err, auth.ErrBadPassword) {
		_, err = c.accounts.Client(d.ID)
		if errors.Is(err, auth.ErrNotFound) {
			return c.create(broker, o)
		}
		if err == nil {
			err = c.accounts.SetSecret(d.ID, d.Secret)
		}
	}
	if err == nil {
		_, err = c.accounts.UpdateClient(d.ID, func(a *auth.Client) error {
			a.Name, a.RedirectURIs = o.Name, []string{d.RedirectURI}
			return nil
		})
	}
	return refused(o, err)
}

// create stores the claim first: a claim without a client does not matter, but a client
// without a claim would belong to no broker.
func (c *Clients) create(broker string, o services.CatalogOffering) error {
	d := *o.Dashboard
	if err := c.claims.Put(d.ID, claim{Client: d.ID, Broker: broker}); err != nil {
		return fmt.Errorf("cannot store the client of a dashboard: %w", err)
	}
	_, err := c.accounts.CreateClient(auth.NewClient{
		ID: d.ID, Name: o.Name, Secret: d.Secret, GrantTypes: []string{auth.GrantCode}, Scopes: scopes, Authorities: []string{"uaa.none"},
		RedirectURIs: []string{d.RedirectURI},
	})
	return refused(o, err)
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

// remove deletes a client with its claim.
func (c *Clients) remove(id string) error {
	return c.db.Update(func(tx *store.Tx) error {
		if err := c.accounts.With(tx).DeleteClient(id); err != nil && !errors.Is(err, auth.ErrNotFound) {
			return err
		}
		if err := c.claims.With(tx).Delete(id); err != nil {
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
