package client

import (
	"slices"
	"strings"
	"testing"
)

func TestDaemonsIn(t *testing.T) {
	const text = `Num       RefCount Protocol Flags    Type St Inode Path
00000000dbecff74: 00000003 00000000 00000000 0001 03 1985344
0000000000000001: 00000002 00000000 00010000 0001 01 1 /run/dew-b/dew.sock
0000000000000002: 00000003 00000000 00000000 0001 03 2 /run/dew-b/dew.sock
0000000000000003: 00000002 00000000 00010000 0001 01 3 /run/dew/dew.sock
0000000000000004: 00000002 00000000 00000000 0001 01 4 /run/dew-gone/dew.sock
0000000000000005: 00000002 00000000 00010000 0001 01 5 /tmp/x/dew.sock
0000000000000006: 00000002 00000000 00010000 0001 01 6 /run/containerd/containerd.sock
0000000000000007: 00000002 00000000 00010000 0001 01 7 @/run/dew-abstract/dew.sock
`
	if got, want := daemonsIn(text), []string{"/run/dew", "/run/dew-b"}; !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

func FuzzDaemonsIn(f *testing.F) {
	f.Add("x: 1 0 00010000 1 1 5 /run/dew/dew.sock\n")
	f.Add("x: 1 0 00010000 1 1 5 /run/../dew.sock")
	f.Add("\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, dir := range daemonsIn(text) {
			if !strings.HasPrefix(dir, "/") || !strings.Contains(text, Socket) {
				t.Errorf("%q: found %q", text, dir)
			}
		}
	})
}
