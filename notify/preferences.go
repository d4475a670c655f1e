package notify

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/dewrun/dew/inbound"
	"github.com/dewrun/dew/store"
)

// unsubscription says that a user unsubscribed from a kind.
type unsubscription struct {
	User   string `json:"user"`
	Client string `json:"client"`
	Kind   string `json:"kind"`
}

func (u unsubscription) key() string { return keyOf(u.User, u.Client, u.Kind) }

// isPreferencesPath reports whether pages of other origins can send the request.
func isPreferencesPath(r *http.Request) bool {
	return r.URL.Path == "/user_preferences" || strings.HasPrefix(r.URL.Path, "/user_preferences/")
}

// setCORSHeaders sets the CORS headers.
func (s *preferenceHandlers) setCORSHeaders(h http.Header) {
	h.Set("Access-Control-Allow-Origin", s.c.CORSOrigin)
	h.Set("Access-Control-Allow-Methods", "GET, PATCH")
	h.Set("Access-Control-Allow-Headers", "Accept, Authorization, Content-Type")
}

// answerPreflight handles OPTIONS /user_preferences. The response consists of the
// headers.
func (s *preferenceHandlers) answerPreflight(request) (any, error) { return noContent, nil }

// preferences are the preferences of a user, as JSON.
type preferences struct {
	Silent  bool                             `json:"global_unsubscribe"`
	Clients map[string]map[string]preference `json:"clients"`
}

type preference struct {
	Email  bool   `json:"email"` // subscribed
	Kind   string `json:"kind_description"`
	Source string `json:"source_description"`
}

// tokenUser returns the user of the token.
func tokenUser(r request) (string, error) {
	if !r.who.IsUser {
		return "", invalid("Missing user_id from token claims.")
	}
	return r.who.ID, nil
}

// ownPreferences handles GET /user_preferences.
func (s *preferenceHandlers) ownPreferences(r request) (any, error) {
	user, err := tokenUser(r)
	if err != nil {
		return nil, err
	}
	return s.preferences(user)
}

// preferencesOf handles GET /user_preferences/{guid}.
func (s *preferenceHandlers) preferencesOf(r request) (any, error) {
	return s.preferences(r.PathValue("guid"))
}

// preferences returns the settings of a user: every kind that is not critical, of every
// client that has sent the user a notification.
func (s *preferenceHandlers) preferences(user string) (preferences, error) {
	out := preferences{Clients: map[string]map[string]preference{}}
	senders, err := s.c.Queue.SendersTo(user)
	if err != nil {
		return out, err
	}
	return out, s.c.DB.View(func(tx *store.Tx) error {
		if out.Silent, err = s.wantsOnlyCritical(tx, user); err != nil {
			return err
		}
		for _, id := range senders {
			kinds, err := s.choices(tx, user, id)
			if err != nil {
				return err
			}
			if len(kinds) > 0 {
				out.Clients[id] = kinds
			}
		}
		return nil
	})
}

// choices returns the kinds of one client that a user can unsubscribe from.
func (s *preferenceHandlers) choices(tx *store.Tx, user, client string) (map[string]preference, error) {
	c, err := ignoreNotFound(s.buckets.clients.With(tx).Get(keyOf(client)))
	if err != nil {
		return nil, fmt.Errorf("cannot read client %s: %w", client, err)
	}
	kinds, err := s.buckets.kinds.With(tx).Prefix(keyOf(client, ""))
	if err != nil {
		return nil, fmt.Errorf("cannot read the notifications of client %s: %w", client, err)
	}
	out := map[string]preference{}
	for _, k := range kinds {
		if k.Critical {
			continue
		}
		unsubscribed, err := s.hasUnsubscribed(tx, unsubscription{user, client, k.ID})
		if err != nil {
			return nil, err
		}
		out[k.ID] = preference{Email: !unsubscribed, Kind: cmp.Or(k.Description, k.ID), Source: cmp.Or(c.Name, client)}
	}
	return out, nil
}

// wantsOnlyCritical reports whether a user wants only critical notifications.
func (s *core) wantsOnlyCritical(tx *store.Tx, user string) (bool, error) {
	return has(s.buckets.silent.With(tx), keyOf(user))
}

// hasUnsubscribed reports whether a user has unsubscribed from a kind.
func (s *core) hasUnsubscribed(tx *store.Tx, u unsubscription) (bool, error) {
	return has(s.buckets.unsubscribed.With(tx), u.key())
}

// has reports whether a key exists.
func has[T any](b store.Bucket[T], key string) (bool, error) {
	_, err := b.Get(key)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot read the notification preferences of a user: %w", err)
	}
	return true, nil
}

// changeOwnPreferences handles PATCH /user_preferences.
func (s *preferenceHandlers) changeOwnPreferences(r request) (any, error) {
	user, err := tokenUser(r)
	if err != nil {
		return nil, err
	}
	return s.changePreferences(r, user)
}

// changePreferencesOf handles PATCH /user_preferences/{guid}.
func (s *preferenceHandlers) changePreferencesOf(r request) (any, error) {
	return s.changePreferences(r, r.PathValue("guid"))
}

func (s *preferenceHandlers) changePreferences(r request, user string) (any, error) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, asRequest(err)
	}
	if len(user) > maxName {
		return nil, invalid("the user's guid has more than %d characters", maxName)
	}
	change, err := readPreferenceChange(raw)
	if err != nil {
		return nil, err
	}
	return noContent, s.c.DB.Update(func(tx *store.Tx) error { return s.applyChange(tx, user, change) })
}

// preferenceChange is a change of preferences: for each kind of each client, whether
// the user gets mails.
type preferenceChange struct {
	silent bool
	kinds  []kindChange
}

type kindChange struct {
	client, kind string
	email        bool
}

type emailChange struct {
	Email *bool `json:"email"`
}

// readPreferenceChange parses the body of a change. If global_unsubscribe is missing,
// it is false.
func readPreferenceChange(raw []byte) (w preferenceChange, err error) {
	var body struct {
		Silent  *bool                              `json:"global_unsubscribe"`
		Clients map[string]map[string]*emailChange `json:"clients"`
	}
	var f fields
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&f); err != nil {
		return w, invalid("%s", err)
	}
	if err := inbound.JSON(raw, &body); err != nil && !errors.Is(err, inbound.ErrSyntax) {
		return w, invalid("%s", err)
	}
	if f == nil {
		return w, invalid("the preferences must be an object, not null")
	}
	if name, ok := f.unknownKey("global_unsubscribe", "clients"); ok {
		return w, invalid("Extra field %q is not valid", inbound.Shorten(name))
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		return w, invalid("%s", err)
	}
	w.silent = body.Silent != nil && *body.Silent
	for _, client := range slices.Sorted(maps.Keys(body.Clients)) {
		kinds := body.Clients[client]
		if len(kinds) == 0 {
			return w, invalid("Missing kinds")
		}
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			if kinds[kind] == nil || kinds[kind].Email == nil {
				return w, invalid("Missing the email field")
			}
			w.kinds = append(w.kinds, kindChange{client, kind, *kinds[kind].Email})
		}
	}
	return w, nil
}

// applyChange stores a change of preferences, completely or not at all.
func (s *preferenceHandlers) applyChange(tx *store.Tx, user string, w preferenceChange) error {
	silent := s.buckets.silent.With(tx)
	var err error
	if w.silent {
		err = silent.Put(keyOf(user), user)
	} else {
		err = silent.Delete(keyOf(user))
	}
	if err != nil {
		return fmt.Errorf("cannot store the notification preferences of user %s: %w", user, err)
	}
	for _, k := range w.kinds {
		if err := s.applyKindChange(tx, user, k); err != nil {
			return err
		}
	}
	return nil
}

func (s *preferenceHandlers) applyKindChange(tx *store.Tx, user string, w kindChange) error {
	k, err := s.buckets.kinds.With(tx).Get(keyOf(w.client, w.kind))
	if errors.Is(err, store.ErrNotFound) {
		return invalid("The kind '%s' cannot be found for client '%s'", inbound.Shorten(w.kind), inbound.Shorten(w.client))
	}
	if err != nil {
		return fmt.Errorf("cannot read notification %s of client %s: %w", w.kind, w.client, err)
	}
	if k.Critical {
		return invalid("The kind '%s' for the '%s' client is critical and cannot be unsubscribed from", k.ID, k.Client)
	}
	u := unsubscription{user, k.Client, k.ID}
	bucket := s.buckets.unsubscribed.With(tx)
	if w.email {
		err = bucket.Delete(u.key())
	} else {
		err = bucket.Put(u.key(), u)
	}
	if err != nil {
		return fmt.Errorf("cannot store the notification preferences of user %s: %w", user, err)
	}
	return nil
}
