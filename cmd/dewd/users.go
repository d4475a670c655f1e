package main

import (
	"errors"
	"net/netip"

	"github.com/dewrun/dew/runtime/userns"
	"github.com/dewrun/dew/store"
)

// ownUsers decides whether new instances run in user namespaces. A root keeps its
// setting. An older dewd did not store one: its root starts without.
func ownUsers(d *daemon) (bool, error) {
	settings := store.In[bool](d.db, "settings")
	on, err := settings.Get("userns")
	if errors.Is(err, store.ErrNotFound) {
		_, err = store.In[netip.Prefix](d.db, "settings").Get("subnet") // every dewd stores it at its first start
		on = errors.Is(err, store.ErrNotFound)
		if on {
			err = nil
		}
		if err == nil {
			err = settings.Put("userns", on)
		}
	}
	if err != nil {
		return false, err
	}
	if d.cfg.UserNS != "" {
		on = d.cfg.UserNS == "on"
	}
	if !on || d.cfg.Snapshotter != "overlayfs" {
		return false, nil
	}
	if err := errors.Join(userns.Probe(d.cfg.Root), userns.Reachable(d.cfg.Run)); err != nil {
		d.log.Warn("instances run without user namespaces (dewd doctor says what to do)", "err", err)
		return false, nil
	}
	return true, nil
}
