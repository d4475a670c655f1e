package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/sshd"
)

// placePrograms copies the programs of instances to a place where upgrades do not
// change them. Without dew-sftp, only copying files does not work.
func (d *daemon) placePrograms() (err error) {
	if d.init, err = d.holder.PlaceProgram("dew-init", d.cfg.Init); err != nil {
		return err
	}
	d.sftp, err = d.holder.PlaceProgram("dew-sftp", filepath.Join(filepath.Dir(d.cfg.Init), "dew-sftp"))
	if errors.Is(err, os.ErrNotExist) {
		d.log.Warn("SFTP does not work in SSH sessions: cannot find dew-sftp", "err", err)
		return nil
	}
	return err
}

// openSSH creates the SSH server of instances. The API, which checks permissions, is
// created after it and shows its fingerprint.
func (d *daemon) openSSH() (err error) {
	if len(d.ports.ssh) == 0 {
		return nil
	}
	d.ssh, err = sshd.New(sshd.Config{
		HostKey: filepath.Join(d.cfg.Root, "keys", "ssh_host_ed25519"), Registry: d.registry, Instances: d.sup,
		Redeem: d.auth.Redeem,
		Allow:  d.allowSSH,
		Append: d.appLogs.Append,
		Record: func(a sshd.Access) { d.api.RecordSSH(a.Who, a.App, a.Index, a.Err) },
		Logger: d.log,
	})
	return err
}

// allowSSH checks the present permissions of a user, which can be fewer than when the
// user got the code.
func (d *daemon) allowSSH(p auth.Principal, a app.App) error {
	now, err := d.auth.Current(p)
	if err != nil {
		return err
	}
	return d.api.AllowSSH(now, a)
}

// sshEndpoint returns the address and the fingerprint of the SSH server, or nil.
func sshEndpoint(server *sshd.Server, on []net.Listener) *platform.SSHEndpoint {
	if server == nil {
		return nil
	}
	return &platform.SSHEndpoint{Address: on[0].Addr().String(), Fingerprint: server.Fingerprint()}
}

// serveSSH accepts SSH connections until ctx is done.
func serveSSH(ctx context.Context, server *sshd.Server, on []net.Listener) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, l := range on {
		g.Go(func() error { return server.Serve(ctx, l) })
	}
	return g.Wait()
}
