package netpolicy

import (
	"errors"
	"fmt"
	"time"

	"github.com/dewrun/dew/store"
)

// Store has the network policies, and the settings of this root for them.
type Store struct {
	db       *store.DB
	policies store.Bucket[Policy]
	settings store.Bucket[Settings]
}

// NewStore opens the network policies in db.
func NewStore(db *store.DB) *Store {
	return &Store{
		db: db,
		policies: store.In(db, "network_policies",
			store.Index("source", func(p Policy) string { return p.Source }),
			store.Index("destination", func(p Policy) string { return p.Destination })),
		settings: store.In[Settings](db, "network_settings"),
	}
}

// Settings are what a root remembers about the enforcement of network rules.
type Settings struct {
	Enforced     bool `json:"enforced"`                // if no flag says otherwise
	Older        bool `json:"older,omitempty"`         // an older dewd made the root, and nothing has turned the rules on yet
	Told         bool `json:"told,omitempty"`          // dew status has said so
	DefaultGroup bool `json:"default_group,omitempty"` // the default security group was created
}

const settingsKey = "enforcement"

// Settings returns the settings of the root. If there are none, decide is called and
// its result is stored.
func (s *Store) Settings(decide func() (Settings, error)) (Settings, error) {
	v, err := s.settings.Get(settingsKey)
	if !errors.Is(err, store.ErrNotFound) {
		return v, err
	}
	if v, err = decide(); err != nil {
		return v, err
	}
	return v, s.PutSettings(v)
}

// PutSettings stores the settings of the root.
func (s *Store) PutSettings(v Settings) error {
	if err := s.settings.Put(settingsKey, v); err != nil {
		return fmt.Errorf("cannot store the settings of network policies: %w", err)
	}
	return nil
}

// Notice reports whether dew status must say that the rules are off. It is true once.
func (s *Store) Notice() (bool, error) {
	first := false
	_, err := s.settings.Update(settingsKey, func(v *Settings) error {
		first = v.Older && !v.Told
		v.Told = v.Told || first
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return first, err
}

// Listen calls fn after every change of a policy.
func (s *Store) Listen(fn func(key string)) { s.policies.Listen(fn) }

// All returns all policies.
func (s *Store) All() ([]Policy, error) {
	all, err := s.policies.All()
	if err != nil {
		return nil, fmt.Errorf("cannot list network policies: %w", err)
	}
	return all, nil
}

// MaxPerSource is the largest number of policies with the same source that users who
// are not administrators can create, as on Cloud Foundry.
const MaxPerSource = 150

// ErrQuota reports that an app has too many policies.
var ErrQuota = errors.New("policy quota exceeded")

// Add stores policies in one transaction. Policies that already exist stay unchanged.
// If limited, no source can get more than MaxPerSource policies.
func (s *Store) Add(limited bool, ps ...Policy) error {
	return s.db.Update(func(tx *store.Tx) error {
		policies := s.policies.With(tx)
		for _, p := range ps {
			if err := p.Validate(); err != nil {
				return err
			}
			switch _, err := policies.Get(p.key()); {
			case err == nil:
				continue
			case !errors.Is(err, store.ErrNotFound):
				return err
			}
			p.CreatedAt = time.Now().UTC()
			if err := policies.Put(p.key(), p); err != nil {
				return fmt.Errorf("cannot store a network policy: %w", err)
			}
			same, err := policies.By("source", p.Source)
			if err != nil {
				return err
			}
			if limited && len(same) > MaxPerSource {
				return ErrQuota
			}
		}
		return nil
	})
}

// Remove deletes policies in one transaction. It is not an error if one does not exist.
func (s *Store) Remove(ps ...Policy) error {
	return s.db.Update(func(tx *store.Tx) error {
		for _, p := range ps {
			if err := s.policies.With(tx).Delete(p.key()); err != nil {
				return fmt.Errorf("cannot delete a network policy: %w", err)
			}
		}
		return nil
	})
}

// RemoveApp deletes all policies of an app that was deleted.
func (s *Store) RemoveApp(guid string) error {
	from, ferr := s.policies.By("source", guid)
	to, terr := s.policies.By("destination", guid)
	if err := errors.Join(ferr, terr); err != nil {
		return fmt.Errorf("cannot list the network policies of app %s: %w", guid, err)
	}
	if len(from)+len(to) == 0 {
		return nil
	}
	return s.Remove(append(from, to...)...)
}
