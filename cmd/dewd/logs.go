package main

import (
	"context"

	"github.com/dewrun/dew/logstream"
)

// logsDue asks for a look at logs whose app is no more.
func (d *daemon) logsDue() {
	select {
	case d.sweep <- struct{}{}:
	default: // it is asked for already
	}
}

// sweepLogs removes the logs of deleted apps, when the last of their instances and
// builds has said its last line.
func (d *daemon) sweepLogs(ctx context.Context) error {
	select {
	case <-d.ready: // what an earlier daemon left is known
		d.logsDue()
	case <-ctx.Done():
		return nil
	}
	for {
		select {
		case <-d.sweep:
		case <-ctx.Done():
			return nil
		}
		if err := d.logs.Sweep(d.logged); err != nil {
			d.log.Error("cannot remove the logs of deleted apps", "err", err)
		}
	}
}

// logged are the apps and databases that exist, and those whose instances or builds
// still end.
func (d *daemon) logged() (map[string]bool, error) {
	keep := d.sup.Apps()
	for _, guid := range d.builds.Apps() {
		keep[guid] = true
	}
	databases, err := d.databases.Instances()
	if err != nil {
		return nil, err
	}
	for _, guid := range databases {
		keep[guid] = true
	}
	apps, err := d.registry.Apps()
	for _, a := range apps {
		keep[a.GUID] = true
	}
	return keep, err
}

// copyLogs copies what apps print to the journal, where that is asked for.
func (d *daemon) copyLogs(ctx context.Context) error {
	if d.cfg.LogJournal {
		d.logs.Copy(ctx, logstream.Journal(d.log, d.appName))
	}
	return nil
}

// appName is the name of an app, or its guid where it has none any more.
func (d *daemon) appName(guid string) string {
	a, err := d.registry.App(guid)
	if err != nil {
		return guid
	}
	return a.Name
}
