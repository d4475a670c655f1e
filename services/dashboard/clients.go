// Package dashboard keeps the OAuth clients with which the dashboards of service brokers
// log users in. A client belongs to the broker whose catalog names it.
package dashboard

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
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
	claims   store.Bucket[claim]
	accounts *auth.Accounts
	db       *store.DB
}

// New returns the clients that are stored in a database.
func New(db *store.DB, accounts *auth.Accounts) *Clients {
	return &Clients{claims: store.In[claim](db, "dashboard clients"), accounts: accounts, db: db}
}

// With returns the clients inside a transaction.
func (c *Clients) With(tx *store.Tx) *Clients {
	if c == nil {
		return nil
	}
	return &Clients{claims: c.claims.With(tx), accounts: c.accounts.With(tx), db: c.db}
}

// Client is a client of a catalog, which Set can store.
type Client struct {
	offering services.CatalogOffering
	current  []byte // hash of the stored secret, if the catalog has the same secret
	hash     []byte // of the secret of the catalog, if it has another one
}

// Prepare returns the clients of a catalog. It hashes their secrets, which takes a while:
// do not call it in a transaction.
func (c *Clients) Prepare(catalog []services.CatalogOffering) ([]Client, error) {
	if c == nil {
		return nil, nil
	}
	var all []Client
	for _, o := range catalog {
		if o.Dashboard == nil {
			continue
		}
		w, err := c.prepare(o)
		if err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	return all, nil
}

// prepare hashes the secret of a client, unless it is the stored one.
func (c *Clients) prepare(o services.CatalogOffering) (w Client, err error) {
	w.offering = o
	found, err := c.accounts.CheckSecret(o.Dashboard.ID, o.Dashboard.Secret)
	switch {
	case err == nil:
		w.current = found.Hash
	case errors.Is(err, auth.ErrBadPassword):
		w.hash, err = c.accounts.HashSecret(o.Dashboard.Secret)
	}
	return w, refused(o, err)
}

// Set makes the clients of a broker those of its catalog. It refuses a client that exists
// and is not the broker's. Call it in the transaction that stores the broker, so that the
// clients are always those of the stored broker. If it fails, the transaction must fail.
func (c *Clients) Set(broker string, all []Client) error {
	if c == nil {
		return nil
	}
	own, err := c.of(broker)
	if err != nil {
		return err
	}
	var taken []string
	for _, w := range all {
		_, err := c.accounts.Client(w.offering.Dashboard.ID)
		if err != nil && !errors.Is(err, auth.ErrNotFound) {
			return err
		}
		if err == nil && !slices.Contains(own, w.offering.Dashboard.ID) {
			taken = append(taken, "Service "+w.offering.Name+": Service dashboard client id must be unique")
		}
	}
	if len(taken) > 0 {
		return services.CatalogInvalid(taken...)
	}
	for _, w := range all {
		if err := refused(w.offering, c.put(broker, w)); err != nil {
			return err
		}
	}
	for _, id := range own {
		if slices.ContainsFunc(all, func(w Client) bool { return w.offering.Dashboard.ID == id }) {
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
func (c *Clients) put(broker string, w Client) error {
	d := *w.offering.Dashboard
	found, err := c.accounts.Client(d.ID)
	if err != nil && !errors.Is(err, auth.ErrNotFound) {
		return err
	}
	missing := err != nil
	if w.hash == nil && (missing || !bytes.Equal(found.Hash, w.current)) { // it changed after Prepare
		if w.hash, err = c.accounts.HashSecret(d.Secret); err != nil {
			return err
		}
	}
	if missing {
		return c.create(broker, w)
	}
	_, err = c.accounts.UpdateClient(d.ID, func(a *auth.Client) error {
		a.Name, a.RedirectURIs = w.offering.Name, []string{d.RedirectURI}
		if w.hash != nil {
			a.Hash = w.hash
		}
		return nil
	})
	return err
}

// create stores a client with its claim.
func (c *Clients) create(broker string, w Client) error {
	d := *w.offering.Dashboard
	client, err := c.accounts.CreateClient(auth.NewClient{
		ID: d.ID, Name: w.offering.Name, Hash: w.hash, GrantTypes: []string{auth.GrantCode}, Scopes: scopes, Authorities: []string{"uaa.none"},
		RedirectURIs: []string{d.RedirectURI},
	})
	if err != nil {
		return err
	}
	if err := c.claims.Put(d.ID, claim{Client: d.ID, Broker: broker, CreatedAt: client.CreatedAt}); err != nil {
		return fmt.Errorf("cannot store the client of a dashboard: %w", err)
	}
	return nil
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
	one, err := c.claims.Get(id)
	if err != nil {
		return fmt.Errorf("cannot read the client of a dashboard: %w", err)
	}
	exists, err := one.exists(c.accounts)
	if exists {
		err = c.accounts.DeleteClient(id)
	}
	if err != nil {
		return err
	}
	if err := c.claims.Delete(id); err != nil {
		return fmt.Errorf("cannot delete the client of a dashboard: %w", err)
	}
	return nil
}

// Sweep deletes the clients of brokers that do not exist. Earlier versions of dewd
// can have left them.
func (c *Clients) Sweep(brokers []services.ServiceBroker) error {
	return c.db.Update(func(tx *store.Tx) error {
		c := c.With(tx)
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
	})
}
