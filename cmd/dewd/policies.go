package main

import (
	"errors"
	"net/netip"

	"github.com/dewrun/dew/netpolicy"
	"github.com/dewrun/dew/netpolicy/desired"
	"github.com/dewrun/dew/store"
)

// enforcePolicies decides whether network policies and security groups are enforced. It
// returns the function that reads them, or nil.
func enforcePolicies(d *daemon) (func() (netpolicy.State, error), error) {
	_, err := store.In[netip.Prefix](d.db, "settings").Get("subnet")
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	older := err == nil // every dewd stores its subnet at its first start
	on, err := desired.Reader{Registry: d.registry, Policies: d.policies}.Enforce(d.cfg.NetworkPolicies, older)
	if err != nil || !on {
		d.policyMode = desired.Off
		return nil, err
	}
	d.policyMode = desired.On
	return func() (netpolicy.State, error) {
		return desired.Reader{Registry: d.registry, Services: d.services, Policies: d.policies}.State()
	}, nil
}
