package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cmd/dewd/doctor"
	"github.com/dewrun/dew/cmd/dewd/folders"
	"github.com/dewrun/dew/egress"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/route"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/services/marketplace"
	"github.com/dewrun/dew/store"
)

// outbound holds the flags for outgoing connections.
type outbound struct {
	BrokerHosts egress.Allowed // allowed hosts in the URLs of non-administrators
	LinkLocal   linkLocal      // networks that instances can reach
}

func (o *outbound) flags() []cli.Flag {
	return []cli.Flag{
		value(&o.BrokerHosts, "allow-broker-hosts", "Comma-separated `hosts`, addresses or networks (CIDR) that non-administrators can use for service brokers, log drains and route services, even on this machine or at link-local addresses"),
		value(&o.LinkLocal, "allow-link-local", "Comma-separated link-local `networks` or addresses that instances can reach, such as 169.254.169.254 for the metadata service of a cloud"),
	}
}

// linkLocal are networks within 169.254.0.0/16.
type linkLocal []netip.Prefix

var allLinkLocal = netip.MustParsePrefix("169.254.0.0/16")

// UnmarshalText parses a comma-separated list of addresses and networks.
func (l *linkLocal) UnmarshalText(b []byte) error {
	var out linkLocal
	for item := range strings.SplitSeq(string(b), ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		p, err := netip.ParsePrefix(item)
		if a, aerr := netip.ParseAddr(item); aerr == nil {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil || p.Bits() < allLinkLocal.Bits() || !allLinkLocal.Contains(p.Addr()) {
			return fmt.Errorf("%q is not a valid address or network within %s", item, allLinkLocal)
		}
		out = append(out, p.Masked())
	}
	*l = out
	return nil
}

// String returns the text that UnmarshalText parses.
func (l *linkLocal) String() string {
	var all []string
	for _, p := range *l {
		all = append(all, p.String())
	}
	return strings.Join(all, ",")
}

// egress returns the policy for the URLs of non-administrators. They reach the routes
// of this daemon through its router.
func (d *daemon) egress() egress.Policy {
	return egress.Policy{
		Allow: d.cfg.Outbound.BrokerHosts,
		Web: func(host string) (string, bool) {
			if len(d.ports.routes) == 0 || !d.router.Serves(host) {
				return "", false
			}
			return dialable(d.ports.routes[0].Addr().String())
		},
		TCP: func(host, port string) (string, bool) {
			if len(d.ports.routes) == 0 || !d.router.ServesPort(host, port) {
				return "", false
			}
			at, _, err := net.SplitHostPort(d.ports.routes[0].Addr().String())
			if err != nil {
				return "", false
			}
			return dialable(net.JoinHostPort(at, port))
		},
	}
}

// dialable returns the address at which this machine reaches a listener.
func dialable(listener string) (string, bool) {
	at, err := netip.ParseAddrPort(listener)
	if err != nil {
		return "", false
	}
	switch a := at.Addr(); {
	case a.IsUnspecified() && a.Is4():
		at = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), at.Port())
	case a.IsUnspecified():
		at = netip.AddrPortFrom(netip.IPv6Loopback(), at.Port())
	}
	return at.String(), true
}

// storedURLs finds the stored URLs that a non-administrator could not set now.
type storedURLs struct {
	market *marketplace.Marketplace
	log    *slog.Logger
	first  func() ([]v3.RefusedURL, error) // URLs that were refused when dewd started; read once
}

func newStoredURLs(market *marketplace.Marketplace, policy egress.Policy, log *slog.Logger) *storedURLs {
	return &storedURLs{market: market, log: log, first: sync.OnceValues(func() ([]v3.RefusedURL, error) {
		return refusedURLs(context.Background(), market, &policy)
	})}
}

// report writes the refused URLs into the log.
func (s *storedURLs) report() {
	urls, err := s.first()
	if err != nil {
		s.log.Error("cannot read the stored URLs of service brokers, log drains and route services", "err", err)
	}
	for _, u := range urls {
		s.log.Warn("a stored URL still works, but now only an administrator can set such a URL (set it again as an administrator, or allow its host with --allow-broker-hosts)",
			"kind", u.Kind, "name", u.Name, "guid", u.GUID, "host", u.Host, "why", u.Why)
	}
}

// refused returns the URLs that report logged and that are still stored, for doctor.
func (s *storedURLs) refused() ([]v3.RefusedURL, error) {
	urls, err := s.first()
	if len(urls) == 0 || err != nil {
		return nil, err
	}
	stored, err := s.market.StoredURLs()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(urls), func(u v3.RefusedURL) bool {
		return !slices.ContainsFunc(stored, func(s services.StoredURL) bool {
			return s.Kind == u.Kind && s.GUID == u.GUID && s.URL.Host == u.Host
		})
	}), nil
}

// refusedURLs returns the stored URLs of unknown origin that the policy refuses. It
// leaves out names that have no address now.
func refusedURLs(ctx context.Context, market *marketplace.Marketplace, policy *egress.Policy) (out []v3.RefusedURL, err error) {
	ctx, cancel := context.WithTimeout(ctx, doctor.Limit/2) // doctor must get the result in time
	defer cancel()
	all, err := market.StoredURLs()
	for _, u := range all {
		refused, ok := errors.AsType[*egress.Refused](policy.CheckURL(ctx, u.URL))
		if ok {
			out = append(out, v3.RefusedURL{Kind: u.Kind, GUID: u.GUID, Name: u.Name, Host: u.URL.Host, Why: refused.What})
		}
	}
	return out, err
}

// checkURLs checks for stored URLs that only administrators could set now. The running
// daemon reports them; without one, checkURLs reads the store.
func checkURLs(ctx context.Context, cfg config) doctor.Finding {
	var urls []v3.RefusedURL
	var err error
	if folders.HolderOf(filepath.Join(cfg.Root, folders.RootLock)) != "" {
		urls, err = askURLs(ctx, cfg.Run)
	} else {
		urls, err = readURLs(ctx, cfg)
	}
	if err != nil {
		return doctor.Warn(oneLine(fmt.Errorf("cannot check the stored URLs of service brokers, log drains and route services: %w", err)), "run dewd doctor as root, with the --root and --run of dewd")
	}
	return urlsRule(urls)
}

func urlsRule(urls []v3.RefusedURL) doctor.Finding {
	if len(urls) == 0 {
		return doctor.Good("the URLs of all service brokers, log drains and route services are allowed")
	}
	var all []string
	for _, u := range urls {
		all = append(all, fmt.Sprintf("%s %s (%s) at %s, %s", u.Kind, u.Name, u.GUID, u.Host, u.Why))
	}
	slices.Sort(all)
	return doctor.Warn("these URLs still work, but now only an administrator can set such URLs: "+strings.Join(all, "; "),
		"set the URLs again as an administrator, or allow their hosts with --allow-broker-hosts")
}

// askURLs requests them from the running daemon.
func askURLs(ctx context.Context, run string) ([]v3.RefusedURL, error) {
	c, err := client.New(client.Options{Run: run, UserAgent: "dewd doctor"})
	if err != nil {
		return nil, err
	}
	st, err := c.Daemon().Status(ctx)
	return st.RefusedURLs, err
}

// readURLs reads the store of a daemon that does not run.
func readURLs(ctx context.Context, cfg config) (out []v3.RefusedURL, err error) {
	path := filepath.Join(cfg.Root, "dew.db")
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	db, err := store.Open(path, store.Options{Format: storeFormat})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	reg := registry.New(db)
	serves, err := route.Hosts(reg)
	if err != nil {
		return nil, err
	}
	policy := egress.Policy{Allow: cfg.Outbound.BrokerHosts, Web: func(host string) (string, bool) { return "", serves(host) }}
	return refusedURLs(ctx, marketplace.New(marketplace.Config{DB: db, Registry: reg, Events: registry.NewEvents(db)}), &policy)
}
