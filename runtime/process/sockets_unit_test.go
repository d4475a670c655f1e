package process

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const tcpTable = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  2000        0 5511 1 0000000000000000 100 0 0 10 0
   1: 00000000:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000  2000        0 5512 1 0000000000000000 100 0 0 10 0
   2: 0200C90A:1F90 0100C90A:C350 01 00000000:00000000 00:00000000 00000000  2000        0 5513 1 0000000000000000 100 0 0 10 0
   0: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 2000 0 5514 1 0 100 0 0 10 0
   0: 0000000000000000FFFF00000100007F:0051 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 2000 0 5515 1 0 100 0 0 10 0
`

func TestListening(t *testing.T) {
	want := []Socket{
		{netip.MustParseAddrPort("127.0.0.1:8080"), 5511},
		{netip.MustParseAddrPort("0.0.0.0:3000"), 5512},
		{netip.MustParseAddrPort("[::1]:80"), 5514},
		{netip.MustParseAddrPort("127.0.0.1:81"), 5515},
	}
	if diff := cmp.Diff(want, listening(tcpTable), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

func FuzzListening(f *testing.F) {
	f.Add(tcpTable)
	f.Fuzz(func(t *testing.T, table string) {
		for _, s := range listening(table) {
			if !s.Address.IsValid() {
				t.Errorf("%q: %v", table, s)
			}
		}
	})
}
