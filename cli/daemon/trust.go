package daemon

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/certs/trust"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// trustCommands change which certificate authorities (CAs) this machine trusts.
func trustCommands(g *command.Set) []*cli.Command {
	stores := trust.New()
	return []*cli.Command{
		g.Command(command.Verb{
			Name: "trust", ThisMachine: true, Category: "Daemon", Usage: "Add the CA of the daemon to the certificate store of this machine",
			About: "Programs of this machine then accept the certificates of the API and of app routes. The CA can sign only for the domain of dew. If certutil is installed, dew adds the CA to Firefox and Chromium as well. " +
				"To change the store of the machine, dew needs root.\n\nExamples:\n   sudo dew trust\n   sudo dew trust --json",
			Flags: []cli.Flag{command.JSONFlag()},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			return runTrust(c.Context, stores, api, out)
		}),
		g.Command(command.Verb{
			Name: "untrust", ThisMachine: true, Category: "Daemon", Usage: "Remove the CA of the daemon from the certificate store of this machine",
			About: "Run it before you uninstall dew. With --all, dew removes the CAs of all daemons, and needs no daemon.\n\nExamples:\n   sudo dew untrust\n   sudo dew untrust --all",
			Flags: []cli.Flag{command.BoolFlag("all", "Remove the CAs of all daemons of dew, including earlier ones"), command.JSONFlag()},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			return runUntrust(c.Context, c.Bool("all"), stores, api, out)
		}),
	}
}

// daemonCA returns the status of the daemon if it has a CA of its own.
func daemonCA(ctx context.Context, api *client.Client) (v3.Status, error) {
	s, err := api.Daemon().Status(ctx)
	if err != nil {
		return s, err
	}
	if s.TLS == nil || s.TLS.CA == "" {
		return s, &console.Failure{
			Status: console.StatusFailed, Err: errors.New("the daemon has no CA: TLS is off, or --router-cert sets its certificate"),
			Advice: "Start dewd with --router-tls and without --router-cert. dew status shows what is wrong",
		}
	}
	return s, nil
}

func runTrust(ctx context.Context, stores trust.Stores, api *client.Client, out *console.Console) error {
	s, err := daemonCA(ctx, api)
	if err != nil {
		return err
	}
	changed, err := stores.Add(ctx, []byte(s.TLS.CA))
	said := storeTexts{"sudo dew trust", "Added the CA of dew to %s", "%s has the CA of dew already"}
	if err := said.tell(out, changed, err); err != nil || out.JSON {
		return err
	}
	if at := secureAPI(ctx, s); at != "" {
		out.Say("For the cf command: cf api %s", at)
	}
	return nil
}

func runUntrust(ctx context.Context, all bool, stores trust.Stores, api *client.Client, out *console.Console) error {
	var ca []byte
	if !all {
		s, err := daemonCA(ctx, api)
		if err != nil {
			return err
		}
		ca = []byte(s.TLS.CA)
	}
	changed, err := stores.Remove(ctx, ca)
	return storeTexts{"sudo dew untrust", "Removed the CA of dew from %s", "%s does not have the CA of dew"}.tell(out, changed, err)
}

// storeTexts are what a command says about stores: how to run it as root, and the result
// for a store that it changed or left as it was.
type storeTexts struct{ asRoot, changed, same string }

// tell prints what happened to the stores.
func (t storeTexts) tell(out *console.Console, changed []trust.Result, err error) error {
	if errors.Is(err, trust.ErrNotRoot) {
		return &console.Failure{Status: console.StatusFailed, Err: err, Advice: t.asRoot}
	}
	if err != nil && !errors.Is(err, trust.ErrNoCertutil) {
		return &console.Failure{Status: console.StatusFailed, Err: err}
	}
	if err != nil {
		out.Warn(err.Error())
	}
	if out.JSON {
		return out.Encode(changed)
	}
	for _, r := range changed {
		if r.Changed {
			out.Say(t.changed, r.Store)
		} else {
			out.Say(t.same, r.Store)
		}
	}
	return nil
}

// probeTime is the maximum time of a connection to an address of the API.
const probeTime = 3 * time.Second

// secureAPI returns a URL of the API over TLS that programs of this machine accept: its
// name resolves and its certificate is trusted. It returns nothing if there is none.
func secureAPI(ctx context.Context, s v3.Status) string {
	if s.TLS == nil {
		return ""
	}
	for _, at := range []string{nameAt("api."+s.Domain, s.TLS.Router), nameAt("api."+s.Domain, s.TLS.API), s.TLS.API} {
		if at != "" && accepted(ctx, at) {
			return at
		}
	}
	return ""
}

// nameAt returns a URL with another host and the same port.
func nameAt(host, at string) string {
	u, err := url.Parse(at)
	if at == "" || err != nil {
		return ""
	}
	u.Host = net.JoinHostPort(host, cmp.Or(u.Port(), "443"))
	return u.String()
}

// accepted reports whether a client of this machine accepts the certificate at a URL.
func accepted(ctx context.Context, at string) bool {
	u, err := url.Parse(at)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	c, err := (&tls.Dialer{}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return false
	}
	return c.Close() == nil
}
