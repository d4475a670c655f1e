package shim

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		line, want string
	}{
		{"/usr/bin/containerd-shim-runc-v2 -namespace dew -id dew-1 -address /run/containerd.sock", "dew-1"},
		{"containerd-shim-runc-v2 -id dew-1 -namespace dew", "dew-1"},
		{"/usr/bin/containerd-shim-runc-v2 -namespace dew-abc -id dew-1", ""},
		{"/usr/bin/containerd-shim-runc-v2 -namespace dew -id dew-1 -bundle /run/x delete", ""},
		{"/usr/bin/containerd-shim-runc-v2 -namespace dew -id", ""},
		{"/usr/bin/containerd-shim-runc-v2 -namespace", ""},
		{"grep containerd-shim -namespace dew -id dew-1", ""},
		{"", ""},
	} {
		got, ok := parse([]byte(strings.ReplaceAll(tt.line, " ", "\x00")+"\x00"), "dew")
		if got != tt.want || ok != (tt.want != "") {
			t.Errorf("%q: %q, %v, want %q", tt.line, got, ok, tt.want)
		}
	}
}
