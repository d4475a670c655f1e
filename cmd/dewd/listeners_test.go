package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRefuseInsecure(t *testing.T) {
	stored := t.TempDir()
	if err := os.WriteFile(filepath.Join(stored, "dew.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		listen  string
		allowed bool
		root    string
		want    string // part of the error
		warned  bool
	}{
		{"127.0.0.1:8484", false, "", "", false},
		{"[::1]:8484", false, "", "", false},
		{"localhost:8484", false, "", "", false},
		{"0.0.0.0:8484", false, "", "--listen-tls 0.0.0.0:8485", true},
		{"[::]:8484", false, "", "--listen-tls [::]:8485", true},
		{"192.0.2.1:8484", false, "", "--listen-insecure", true},
		{"dew.example.com:8484", false, "", "--listen-insecure", true},
		{"0.0.0.0:8484", true, "", "", false},
		{"0.0.0.0:8484", false, stored, "", true},
	} {
		c := defaultConfig()
		c.Root, c.Listen, c.ListenInsecure = tt.root, tt.listen, tt.allowed
		if c.Root == "" {
			c.Root = t.TempDir()
		}
		err := c.refuseInsecure()
		if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || statusOf(err) != statusUsage) {
			t.Errorf("%+v: %v", tt, err)
		}
		if c.insecure() != tt.warned {
			t.Errorf("%+v: warned %v", tt, c.insecure())
		}
	}
}

func TestIsLocal(t *testing.T) {
	d := addresses{&daemon{subnet: netip.MustParsePrefix("10.201.0.0/20")}}
	for address, want := range map[string]bool{
		"127.0.0.1:5": true, "[::1]:5": true, "[::ffff:127.0.0.1]:5": true, "10.201.0.9:5": true,
		"10.202.0.9:5": false, "192.0.2.1:5": false, "[2001:db8::1]:5": false, "": false, "@": false,
	} {
		if got := d.isLocal(address); got != want {
			t.Errorf("%q: %v, want %v", address, got, want)
		}
	}
}
