//go:build integration

package network

import (
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"
)

// Daemons that start at the same moment get different subnets. A daemon whose bridge
// already exists gets the same subnet again.
func TestTakeSubnet(t *testing.T) {
	const daemons = 4
	got := make([]netip.Prefix, daemons)
	name := func(i int) string { return fmt.Sprintf("dewt%d-%d", os.Getpid()%100000, i) }
	var wg sync.WaitGroup
	for i := range daemons {
		t.Cleanup(func() {
			if err := New("", name(i), netip.Prefix{}).TearDown(); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			var err error
			if got[i], err = TakeSubnet(t.Context(), name(i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i, p := range got {
		for _, q := range got[:i] {
			if p.Overlaps(q) {
				t.Errorf("two have the same: %v", got)
			}
		}
	}
	again, err := TakeSubnet(t.Context(), name(0))
	if err != nil || got[0] == (netip.Prefix{}) {
		t.Fatalf("subnet = %v, %v", got[0], err)
	}
	if again != got[0] && again.Addr().Compare(got[0].Addr()) > 0 {
		t.Errorf("the one whose bridge has %v gets %v", got[0], again)
	}
}
