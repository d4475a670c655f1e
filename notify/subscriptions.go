package notify

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/notify/unsubscribe"
	"github.com/dewrun/dew/store"
)

// subscriptions reads and changes the subscriptions of users, for the links in mails.
type subscriptions struct{ *core }

// Subscription implements unsubscribe.Subscriptions.
func (s *subscriptions) Subscription(u unsubscribe.Subscription) (state unsubscribe.State, err error) {
	err = s.c.DB.View(func(tx *store.Tx) error {
		state, err = s.subscription(tx, u)
		return err
	})
	return state, err
}

// SetSubscribed implements unsubscribe.Subscriptions.
func (s *subscriptions) SetSubscribed(u unsubscribe.Subscription, subscribed bool) error {
	return s.c.DB.Update(func(tx *store.Tx) error {
		if _, err := s.subscription(tx, u); err != nil {
			return err
		}
		bucket, key, v := s.buckets.unsubscribed.With(tx), "", unsubscription{u.User, u.Client, u.Kind}
		key = v.key()
		if u.Version == delivery.V2 {
			bucket, key, v = s.buckets.unsubscribers.With(tx), keyOf(u.Kind, u.User), unsubscription{User: u.User, Kind: u.Kind}
		}
		if subscribed {
			return storeError(bucket.Delete(key), "the subscription of user", u.User)
		}
		return storeError(bucket.Put(key, v), "the subscription of user", u.User)
	})
}

// subscription returns the state of a subscription. It returns unsubscribe.ErrNotFound if
// the kind does not exist, and unsubscribe.ErrCritical for a critical one.
func (s *core) subscription(tx *store.Tx, u unsubscribe.Subscription) (state unsubscribe.State, err error) {
	var critical, unsubscribed bool
	if u.Version == delivery.V2 {
		t, err := s.buckets.types.With(tx).Get(u.Kind)
		if err != nil {
			return state, subscriptionError(err, u)
		}
		critical, state.Kind, state.Source = t.Critical, cmp.Or(t.Name, t.ID), u.Client
		unsubscribed, err = has(s.buckets.unsubscribers.With(tx), keyOf(u.Kind, u.User))
		if err != nil {
			return state, err
		}
	} else {
		k, err := s.buckets.kinds.With(tx).Get(keyOf(u.Client, u.Kind))
		if err != nil {
			return state, subscriptionError(err, u)
		}
		c, err := ignoreNotFound(s.buckets.clients.With(tx).Get(keyOf(u.Client)))
		if err != nil {
			return state, subscriptionError(err, u)
		}
		critical, state.Kind, state.Source = k.Critical, cmp.Or(k.Description, k.ID), cmp.Or(c.Name, u.Client)
		if unsubscribed, err = s.hasUnsubscribed(tx, unsubscription{u.User, u.Client, u.Kind}); err != nil {
			return state, err
		}
	}
	if critical {
		return state, unsubscribe.ErrCritical
	}
	state.Subscribed = !unsubscribed
	state.Silent, err = s.wantsOnlyCritical(tx, u.User)
	return state, err
}

func subscriptionError(err error, u unsubscribe.Subscription) error {
	if errors.Is(err, store.ErrNotFound) {
		return unsubscribe.ErrNotFound
	}
	return fmt.Errorf("cannot read notification %s of client %s: %w", u.Kind, u.Client, err)
}

// unsubscribeURL returns the link that unsubscribes the recipient of a message. It is
// empty for critical kinds, and for recipients of whom only the address is known.
func (s *composer) unsubscribeURL(tx *store.Tx, m delivery.Message, n delivery.Notice) (string, error) {
	u := unsubscribe.Subscription{Version: n.Version, User: m.User, Client: n.Client, Kind: n.Kind}
	if u.User == "" || u.Kind == "" {
		return "", nil
	}
	_, err := s.subscription(tx, u)
	switch {
	case errors.Is(err, unsubscribe.ErrNotFound) || errors.Is(err, unsubscribe.ErrCritical):
		return "", nil
	case err != nil:
		return "", err
	}
	link := s.links.URL(u)
	if len(link) > maxLink {
		return "", nil
	}
	return link, nil
}

// maxLink is the length of a link that fits in one line of a header, of 998 characters.
const maxLink = 900
