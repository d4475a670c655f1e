package main

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cmd/dewd/doctor"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/services/marketplace"
	"github.com/dewrun/dew/store"
)

func TestOutboundFlags(t *testing.T) {
	t.Setenv("DEW_ALLOW_LINK_LOCAL", "169.254.1.0/24")
	c, err := parse(t, "--allow-broker-hosts", "broker.example, 127.0.0.0/8", "--allow-link-local", "169.254.169.254,169.254.7.7/16")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Outbound.BrokerHosts.String(); got != "broker.example,127.0.0.0/8" {
		t.Errorf("broker hosts = %q", got)
	}
	if got := c.Outbound.LinkLocal.String(); got != "169.254.169.254/32,169.254.0.0/16" {
		t.Errorf("link-local networks = %q", got)
	}
	for flag, values := range map[string][]string{
		"--allow-link-local":   {"10.0.0.1", "169.254.0.0/15", "0.0.0.0/0", "fe80::1", "here"},
		"--allow-broker-hosts": {"http://a.example", "a.example:80", "10.0.0.0/33"},
	} {
		for _, v := range values {
			if _, err := parse(t, flag, v); statusOf(err) != statusUsage || !strings.Contains(err.Error(), flag[2:]) {
				t.Errorf("%s %s: %v", flag, v, err)
			}
		}
	}
}

func TestDialable(t *testing.T) {
	for listener, want := range map[string]string{
		"127.0.0.1:80": "127.0.0.1:80", "0.0.0.0:80": "127.0.0.1:80", "[::]:80": "[::1]:80", "192.0.2.1:80": "192.0.2.1:80",
	} {
		if got, ok := dialable(listener); !ok || got != want {
			t.Errorf("%s: %q, %v; want %q", listener, got, ok, want)
		}
	}
	if at, ok := dialable("here"); ok {
		t.Errorf("here is reached at %q", at)
	}
}

// oldStore writes the store of a dewd that did not record the owner of a URL. It has a
// space's broker, a log drain and a route service at the given hosts.
func oldStore(t testing.TB, root, broker, drain, front string) {
	t.Helper()
	db, err := store.Open(filepath.Join(root, "dew.db"), store.Options{Format: storeFormat})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	reg := registry.New(db)
	if _, err := reg.EnsureDefaults("dew.localhost"); err != nil {
		t.Fatal(err)
	}
	spaces, err := reg.Spaces()
	if err != nil {
		t.Fatal(err)
	}
	space := spaces[0].GUID
	market := marketplace.New(marketplace.Config{DB: db, Registry: reg, Events: registry.NewEvents(db)})
	_, _, err = market.CreateBroker(services.NewBroker{Name: "old-broker", URL: "http://" + broker, Username: "user", Password: "pass", Space: space})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = market.CreateInstance(services.NewInstance{
		Type: services.UserProvided, Name: "old-door", Space: space, SyslogDrain: "syslog://" + drain, RouteService: "https://" + front,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// doctor reports URLs that only an administrator could set now. Without a daemon, it
// reads the store.
func TestDoctorNamesStoredURLs(t *testing.T) {
	root := t.TempDir()
	cfg := config{Root: root, Run: t.TempDir()}
	expect(t, checkURLs(t.Context(), cfg), doctor.OK, "the URLs of all service brokers, log drains and route services are allowed")
	oldStore(t, root, "127.0.0.1:9", "192.0.2.1:514", "[::ffff:169.254.169.254]/latest")
	got := checkURLs(t.Context(), cfg)
	expect(t, got, doctor.Warning, "route service old-door (")
	expect(t, got, doctor.Warning, ") at [::ffff:169.254.169.254], a link-local address; service broker old-broker (")
	if strings.Contains(got.What, "192.0.2.1") {
		t.Errorf("finding = %q", got.What)
	}
	if err := cfg.Outbound.BrokerHosts.UnmarshalText([]byte("127.0.0.1,169.254.0.0/16")); err != nil {
		t.Fatal(err)
	}
	expect(t, checkURLs(t.Context(), cfg), doctor.OK, "the URLs of all service brokers, log drains and route services are allowed")
}

func TestURLsRule(t *testing.T) {
	got := urlsRule([]v3.RefusedURL{{Kind: "log drain", GUID: "g", Name: "papers", Host: "h:1", Why: "a loopback address"}})
	want := doctor.Finding{
		Level: doctor.Warning, What: "these URLs still work, but now only an administrator can set such URLs: log drain papers (g) at h:1, a loopback address",
		Do: "set the URLs again as an administrator, or allow their hosts with --allow-broker-hosts",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestLinkLocalText(t *testing.T) {
	l := linkLocal{netip.MustParsePrefix("169.254.1.0/24")}
	if err := l.UnmarshalText(nil); err != nil || len(l) != 0 {
		t.Errorf("nothing: %v, %v", l, err)
	}
}
