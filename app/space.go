package app

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// What the first start makes.
const (
	DefaultOrg   = "local"
	DefaultSpace = "dev"
)

// Org is a group of spaces.
type Org struct {
	GUID      string    `json:"guid"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Space is where apps and routes live.
type Space struct {
	GUID      string    `json:"guid"`
	Name      string    `json:"name"`
	Org       string    `json:"org"` // guid
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Domain is what the names of routes end with. It is shared by all orgs.
type Domain struct {
	GUID      string    `json:"guid"`
	Name      string    `json:"name"` // in small letters
	Internal  bool      `json:"internal,omitempty"`
	Default   bool      `json:"default,omitempty"` // gets the routes that name no domain
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// EnsureDefaults makes the org, the space and the shared domain of a first start,
// as far as they are not there, and returns the space. The domain becomes the
// default one; routes of an earlier default stay as they are.
func (r *Registry) EnsureDefaults(domain string) (s Space, err error) {
	domain = strings.ToLower(domain)
	if err := checkDomain(domain); err != nil {
		return s, err
	}
	err = r.update(func(r *Registry) error {
		org, err := r.ensureOrg(DefaultOrg)
		if err != nil {
			return err
		}
		if s, err = r.ensureSpace(org.GUID, DefaultSpace); err != nil {
			return err
		}
		return r.ensureDomain(domain)
	})
	return s, err
}

// Orgs returns all orgs by name.
func (r *Registry) Orgs() ([]Org, error) {
	return sorted(r.orgs, "orgs", func(a, b Org) int { return cmp.Compare(a.Name, b.Name) })
}

// Org returns the org with guid.
func (r *Registry) Org(guid string) (Org, error) { return get(r.orgs, "org", guid) }

// Spaces returns all spaces by name.
func (r *Registry) Spaces() ([]Space, error) {
	return sorted(r.spaces, "spaces", func(a, b Space) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Org, b.Org))
	})
}

// Space returns the space with guid.
func (r *Registry) Space(guid string) (Space, error) { return get(r.spaces, "space", guid) }

// Domains returns all domains by name, the default one first.
func (r *Registry) Domains() ([]Domain, error) {
	return sorted(r.domains, "domains", func(a, b Domain) int {
		if a.Default != b.Default {
			return cmp.Compare(rankDomain(a), rankDomain(b))
		}
		return cmp.Compare(a.Name, b.Name)
	})
}

func rankDomain(d Domain) int {
	if d.Default {
		return 0
	}
	return 1
}

// Domain returns the domain with guid.
func (r *Registry) Domain(guid string) (Domain, error) { return get(r.domains, "domain", guid) }

// DefaultDomain returns the domain of routes that name none.
func (r *Registry) DefaultDomain() (Domain, error) {
	all, err := r.Domains()
	if err != nil {
		return Domain{}, err
	}
	if len(all) == 0 || !all[0].Default {
		return Domain{}, fmt.Errorf("default domain: %w", ErrNotFound)
	}
	return all[0], nil
}

func (r *Registry) ensureOrg(name string) (Org, error) {
	found, err := r.orgs.By("name", name)
	if err != nil {
		return Org{}, fmt.Errorf("cannot look for org %q: %w", name, err)
	}
	if len(found) > 0 {
		return found[0], nil
	}
	o := Org{GUID: uuid.NewString(), Name: name, CreatedAt: now()}
	o.UpdatedAt = o.CreatedAt
	if err := r.orgs.Put(o.GUID, o); err != nil {
		return o, fmt.Errorf("cannot keep org %q: %w", name, err)
	}
	return o, nil
}

func (r *Registry) ensureSpace(org, name string) (Space, error) {
	found, err := r.spaces.By("org and name", org+"\x00"+name)
	if err != nil {
		return Space{}, fmt.Errorf("cannot look for space %q: %w", name, err)
	}
	if len(found) > 0 {
		return found[0], nil
	}
	s := Space{GUID: uuid.NewString(), Name: name, Org: org, CreatedAt: now()}
	s.UpdatedAt = s.CreatedAt
	if err := r.spaces.Put(s.GUID, s); err != nil {
		return s, fmt.Errorf("cannot keep space %q: %w", name, err)
	}
	return s, nil
}

// ensureDomain makes name the one default domain.
func (r *Registry) ensureDomain(name string) error {
	all, err := r.Domains()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(d Domain) bool { return d.Name == name }) {
		all = append(all, Domain{GUID: uuid.NewString(), Name: name, CreatedAt: now()})
	}
	for _, d := range all {
		if d.Default == (d.Name == name) {
			continue
		}
		d.Default = d.Name == name
		d.UpdatedAt = now()
		if err := r.domains.Put(d.GUID, d); err != nil {
			return fmt.Errorf("cannot keep domain %q: %w", d.Name, err)
		}
	}
	return nil
}

func checkDomain(name string) error {
	for label := range strings.SplitSeq(name, ".") {
		if !hostLabel.MatchString(label) {
			return &Invalid{Key: "domain", Message: fmt.Sprintf("must be a name such as dew.localhost, not %q", name)}
		}
	}
	if len(name) > maxHostName {
		return &Invalid{Key: "domain", Message: fmt.Sprintf("must have at most %d characters, not %d", maxHostName, len(name))}
	}
	return nil
}
