package registry

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/store"
)

// DomainStore stores domains.
type DomainStore struct{ *tables }

// Domains returns all domains by name, the default one first.
func (r *DomainStore) Domains() ([]app.Domain, error) {
	return sorted(r.domains, "domains", func(a, b app.Domain) int {
		if a.Default != b.Default {
			return cmp.Compare(rankDomain(a), rankDomain(b))
		}
		return cmp.Compare(a.Name, b.Name)
	})
}

func rankDomain(d app.Domain) int {
	if d.Default {
		return 0
	}
	return 1
}

// Domain returns the domain with guid.
func (r *DomainStore) Domain(guid string) (app.Domain, error) { return get(r.domains, "domain", guid) }

// DefaultDomain returns the domain of routes that do not name one.
func (r *DomainStore) DefaultDomain() (app.Domain, error) {
	all, err := r.Domains()
	if err != nil {
		return app.Domain{}, err
	}
	if len(all) == 0 || !all[0].Default {
		return app.Domain{}, fmt.Errorf("default domain: %w", app.ErrNotFound)
	}
	return all[0], nil
}

// DomainByName returns the domain with the name, in any case.
func (r *DomainStore) DomainByName(name string) (app.Domain, error) {
	return oneBy(r.domains, "name", strings.ToLower(name), "domain")
}

// PutDomain stores d: it replaces the domain with the same guid, or creates one.
func (r *DomainStore) PutDomain(d app.Domain) (app.Domain, error) {
	d = d.Clone()
	err := r.update(func(r *Registry) (err error) {
		d, err = r.putDomain(d)
		return err
	})
	return d, err
}

// UpdateDomain changes a domain in one transaction.
func (r *DomainStore) UpdateDomain(guid string, fn func(d *app.Domain) error) (d app.Domain, err error) {
	err = r.update(func(r *Registry) error {
		if d, err = r.Domain(guid); err != nil {
			return err
		}
		if err := fn(&d); err != nil {
			return err
		}
		d.GUID = guid
		d, err = r.putDomain(d)
		return err
	})
	return d, err
}

// DeleteDomain deletes a domain with its routes. It refuses the default domain, because
// the next start would create it again.
func (r *DomainStore) DeleteDomain(guid string) error {
	return r.update(func(r *Registry) error {
		d, err := r.Domain(guid)
		if err != nil {
			return err
		}
		if d.Default {
			return &app.Invalid{Key: "domain", Message: fmt.Sprintf("%s is the default domain of dewd and cannot be deleted", d.Name)}
		}
		if err := r.deleteRoutes(func(rt app.Route) bool { return rt.Domain == guid }); err != nil {
			return err
		}
		if err := r.domains.Delete(guid); err != nil {
			return fmt.Errorf("cannot delete domain %s: %w", guid, err)
		}
		return nil
	})
}

// leaveDomains deletes the domains of an org, and stops sharing others with it.
func (r *DomainStore) leaveDomains(org string) error {
	all, err := r.Domains()
	if err != nil {
		return err
	}
	for _, d := range all {
		switch {
		case d.Org == org && org != "":
			err = r.DeleteDomain(d.GUID)
		case slices.Contains(d.SharedWith, org):
			d.SharedWith = slices.DeleteFunc(d.SharedWith, func(guid string) bool { return guid == org })
			_, err = r.putDomain(d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *DomainStore) putDomain(d app.Domain) (app.Domain, error) {
	old, err := find(r.domains, d.GUID)
	if err != nil {
		return d, err
	}
	d.GUID = cmp.Or(d.GUID, uuid.NewString())
	d.Name = strings.ToLower(d.Name)
	d.CreatedAt, d.UpdatedAt = timestamps(old.GUID != "", old.CreatedAt)
	if err := r.checkOwners(d); err != nil {
		return d, err
	}
	if err := errors.Join(checkDomain(d.Name), d.Metadata.Validate()); err != nil {
		return d, err
	}
	if old.Name != d.Name {
		if err := r.checkReserved(d); err != nil {
			return d, err
		}
	}
	err = r.domains.Put(d.GUID, d)
	if errors.Is(err, store.ErrTaken) {
		return d, &app.Invalid{Key: "name", Message: fmt.Sprintf("domain %q already exists", d.Name)}
	}
	if err != nil {
		return d, fmt.Errorf("cannot store domain %q: %w", d.Name, err)
	}
	return d, nil
}

// checkOwners checks that the orgs of a domain exist and are allowed for it.
func (r *DomainStore) checkOwners(d app.Domain) error {
	if d.Org == "" && len(d.SharedWith) > 0 {
		return &app.Invalid{Key: "shared_organizations", Message: "a domain without an owner is already shared with all organizations"}
	}
	if d.Internal && d.Org != "" {
		return &app.Invalid{Key: "internal", Message: "a domain of one organization cannot be internal"}
	}
	if d.TCP() {
		if err := r.checkGroup(d); err != nil {
			return err
		}
	}
	for _, org := range slices.Concat([]string{d.Org}, d.SharedWith) {
		if org == "" {
			continue
		}
		if _, err := r.registry().Org(org); err != nil {
			return err
		}
	}
	return nil
}

// checkGroup checks that the router group of a domain exists and is allowed for it.
func (r *DomainStore) checkGroup(d app.Domain) error {
	switch {
	case d.Internal:
		return &app.Invalid{Key: "router_group", Message: "an internal domain cannot have a router group: apps reach each other there without the router"}
	case d.Org != "":
		return &app.Invalid{Key: "router_group", Message: "a domain of one organization cannot have a router group"}
	}
	_, err := r.registry().RouterGroup(d.RouterGroup)
	if errors.Is(err, app.ErrNotFound) {
		return &app.Invalid{Key: "router_group.guid", Message: fmt.Sprintf("router group %q does not exist", d.RouterGroup)}
	}
	return err
}

// checkReserved refuses a name that would let one org take over names of another: the
// names of its routes, and names under its domains.
func (r *DomainStore) checkReserved(d app.Domain) error {
	reserved := func(by string) error {
		return &app.Invalid{Key: "name", Message: fmt.Sprintf("%q cannot be a domain because %q is reserved by another domain or route", d.Name, by)}
	}
	all, err := r.Domains()
	if err != nil {
		return err
	}
	names := map[string]string{}
	for _, other := range all {
		names[other.GUID] = other.Name
		if other.Org != "" && other.Org != d.Org && (isSubdomain(d.Name, other.Name) || isSubdomain(other.Name, d.Name)) {
			return reserved(other.Name)
		}
	}
	routes, err := r.registry().Routes()
	if err != nil {
		return err
	}
	for _, rt := range routes {
		if rt.Host != "" && rt.Host+"."+names[rt.Domain] == d.Name {
			return reserved(d.Name)
		}
	}
	return nil
}

// isSubdomain reports whether name is a subdomain of domain.
func isSubdomain(name, domain string) bool { return strings.HasSuffix(name, "."+domain) }

// ensureInternal creates the domain through which apps reach each other.
func (r *DomainStore) ensureInternal() error {
	_, err := r.DomainByName(app.InternalDomain)
	if !errors.Is(err, app.ErrNotFound) {
		return err
	}
	_, err = r.putDomain(app.Domain{Name: app.InternalDomain, Internal: true})
	return err
}

// ensureDomain makes name the only default domain.
func (r *DomainStore) ensureDomain(name string) error {
	all, err := r.Domains()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(d app.Domain) bool { return d.Name == name }) {
		all = append(all, app.Domain{GUID: uuid.NewString(), Name: name, CreatedAt: app.Now()})
	}
	for _, d := range all {
		if d.Default == (d.Name == name) {
			continue
		}
		d.Default = d.Name == name
		if d.Default && d.TCP() {
			return &app.Invalid{Key: "domain", Message: fmt.Sprintf("%s is a domain for TCP routes and cannot be the default domain: choose another domain", name)}
		}
		if d.Default {
			d.Org, d.SharedWith = "", nil // the apps of all orgs get their routes there
		}
		d.UpdatedAt = app.Now()
		if err := r.domains.Put(d.GUID, d); err != nil {
			return fmt.Errorf("cannot store domain %q: %w", d.Name, err)
		}
	}
	return nil
}

func checkDomain(name string) error {
	for label := range strings.SplitSeq(name, ".") {
		if !app.HostLabel.MatchString(label) {
			return &app.Invalid{Key: "domain", Message: fmt.Sprintf("must be a name such as dew.localhost, not %q", name)}
		}
	}
	if len(name) > maxHostName {
		return &app.Invalid{Key: "domain", Message: fmt.Sprintf("must have at most %d characters, not %d", maxHostName, len(name))}
	}
	return nil
}
