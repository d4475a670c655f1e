package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/sshd"
)

// placePrograms puts what runs inside of instances where upgrades do not reach
// it. Without dew-sftp everything works but the copying of files.
func (d *daemon) placePrograms() (err error) {
	if d.init, err = d.holder.placeInit(d.cfg.Init); err != nil {
		return err
	}
	d.sftp, err = d.holder.placeProgram("dew-sftp", filepath.Join(filepath.Dir(d.cfg.Init), "dew-sftp"))
	if errors.Is(err, os.ErrNotExist) {
		d.log.Warn("sessions have no SFTP", "err", err)
		return nil
	}
	return err
}

// openGate takes the port of the ssh door. Without an address there is none.
func (d *daemon) openGate() (err error) {
	if d.cfg.SSH != "" {
		d.gate, err = listenTCP(d.cfg.SSH, "ssh")
	}
	return err
}

// openSSH makes the door into instances. The API, which says who may enter, is
// made after it and tells its fingerprint.
func (d *daemon) openSSH() (err error) {
	if len(d.gate) == 0 {
		return nil
	}
	d.ssh, err = sshd.New(sshd.Config{
		HostKey: filepath.Join(d.cfg.Root, "keys", "ssh_host_ed25519"), Registry: d.registry, Instances: d.sup,
		Redeem: d.auth.Redeem,
		Allow:  d.allowSSH,
		Append: book{d.logs}.Append,
		Record: func(a sshd.Access) { d.api.RecordSSH(a.Who, a.App, a.Index, a.Err) },
		Logger: d.log,
	})
	return err
}

// allowSSH asks about somebody as they are now, which may be less than they were
// when they came.
func (d *daemon) allowSSH(p auth.Principal, a app.App) error {
	now, err := d.auth.Current(p)
	if err != nil {
		return err
	}
	return d.api.AllowSSH(now, a)
}

// sshDoor is how clients find and recognise it.
func (d *daemon) sshDoor() *platform.SSHDoor {
	if d.ssh == nil {
		return nil
	}
	return &platform.SSHDoor{Address: d.gate[0].Addr().String(), Fingerprint: d.ssh.Fingerprint()}
}

// serveSSH lets clients in until ctx ends.
func (d *daemon) serveSSH(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, l := range d.gate {
		g.Go(func() error { return d.ssh.Serve(ctx, l) })
	}
	return g.Wait()
}
