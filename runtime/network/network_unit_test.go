package network

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime"
)

func prefixes(texts ...string) (ps []netip.Prefix) {
	for _, s := range texts {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}

func TestFreeSubnet(t *testing.T) {
	t.Parallel()
	var all []string
	for third := 0; third < 256; third += 16 {
		all = append(all, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 201, byte(third), 0}), 20).String())
	}
	tests := []struct {
		name  string
		taken []netip.Prefix
		want  string // "" for none
	}{
		{"nothing taken", nil, "10.201.0.0/20"},
		{"others", prefixes("192.168.0.0/16", "172.17.0.0/16", "10.200.0.0/16", "10.202.0.0/16"), "10.201.0.0/20"},
		{"default route", prefixes("0.0.0.0/0"), "10.201.0.0/20"},
		{"the first", prefixes("10.201.0.0/20"), "10.201.16.0/20"},
		{"one address of it", prefixes("10.201.3.4/32"), "10.201.16.0/20"},
		{"holes", prefixes("10.201.0.0/20", "10.201.16.0/24", "10.201.48.0/20"), "10.201.32.0/20"},
		{"half of all", prefixes("10.201.0.0/17"), "10.201.128.0/20"},
		{"IPv6", prefixes("fe80::/64", "::/0"), "10.201.0.0/20"},
		{"all but the last", prefixes(all[:15]...), "10.201.240.0/20"},
		{"all", prefixes(all...), ""},
		{"a VPN over it", prefixes("10.0.0.0/8"), ""},
	}
	for _, tt := range tests {
		got, err := freeSubnet(tt.taken)
		if tt.want == "" {
			if err == nil || !strings.Contains(err.Error(), "--subnet") {
				t.Errorf("%s: %v, %v, want an error with the remedy", tt.name, got, err)
			}
			continue
		}
		if err != nil || got.String() != tt.want {
			t.Errorf("%s: %v, %v, want %s", tt.name, got, err, tt.want)
		}
	}
}

func TestNetworkNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := New(dir, "dew0", netip.MustParsePrefix("10.201.16.9/20"))
	if got := n.Gateway().String(); got != "10.201.16.1" {
		t.Errorf("gateway = %s, want 10.201.16.1", got)
	}
	if got, want := n.Path(someInstance), filepath.Join(dir, "dew-"+string(someInstance)); got != want {
		t.Errorf("namespace at %q, want %q", got, want)
	}
	touch(t, dir, "dew-"+string(someInstance), "dew-foreign", string(someInstance))
	ids, err := n.Namespaces()
	if err != nil || !slices.Equal(ids, []runtime.InstanceID{someInstance}) {
		t.Errorf("namespaces = %v, %v, want %s", ids, err, someInstance)
	}
	n.dir = filepath.Join(dir, "absent")
	if ids, err := n.Namespaces(); err != nil || len(ids) != 0 {
		t.Errorf("namespaces in no folder = %v, %v, want none", ids, err)
	}
}

func TestDialWithoutNamespace(t *testing.T) {
	t.Parallel()
	n := New(t.TempDir(), "dew0", netip.MustParsePrefix("10.201.16.0/20"))
	for address, want := range map[string]string{
		"localhost:8080": "it is not an address with a port", // it would be resolved in another namespace
		"10.201.16.2":    "it is not an address with a port",
		"127.0.0.1:8080": "cannot open network namespace of the instance",
	} {
		_, err := n.Dial(t.Context(), someInstance, "tcp", address)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("dial %s: %v, want %q", address, err, want)
		}
	}
}

// The number of dials is limited, and a waiting caller can cancel.
func TestDialWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	n := New(t.TempDir(), "dew0", netip.MustParsePrefix("10.201.16.0/20"))
	for range maxDials {
		n.dials <- struct{}{}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("asked to")
	cancel(why)
	if _, err := n.Dial(ctx, someInstance, "tcp", "127.0.0.1:8080"); !errors.Is(err, why) {
		t.Errorf("error = %v, want %v", err, why)
	}
}

// The test checks the bytes that the kernel compares.
func TestFirewallMatches(t *testing.T) {
	t.Parallel()
	v4 := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.NFPROTO_IPV4}},
	}
	tests := []struct {
		name      string
		got, want []expr.Any
	}{
		{"source", matchNetwork(sourceOffset, netip.MustParsePrefix("10.201.16.9/20")), append(slices.Clone(v4),
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 4},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: []byte{255, 255, 240, 0}, Xor: []byte{0, 0, 0, 0}},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{10, 201, 16, 0}},
		)},
		{"destination", matchDestination(netip.MustParseAddr("10.201.16.1")), append(slices.Clone(v4),
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{10, 201, 16, 1}},
		)},
		{"name", matchName(expr.MetaKeyIIFNAME, expr.CmpOpNeq, "dew0"), []expr.Any{
			&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: append([]byte("dew0"), make([]byte, 12)...)},
		}},
		{"state", matchState(ctEstabOrRe), []expr.Any{
			&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binary.NativeEndian.AppendUint32(nil, 2|4), Xor: make([]byte, 4)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
		}},
		{"port", matchPort(unix.IPPROTO_TCP, 8484), []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{6}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{0x21, 0x24}},
		}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.got, tt.want); diff != "" {
			t.Errorf("%s (-got +want):\n%s", tt.name, diff)
		}
	}
	a, b := &Firewall{Bridge: "dew0"}, &Firewall{Bridge: "dewbr12345678"}
	if slices.Equal(a.comment(), b.comment()) || !strings.Contains(string(a.comment()), "dew dew0") {
		t.Errorf("comments %q and %q, want them to tell the daemons apart", a.comment(), b.comment())
	}
}

// An interrupted listing is read again. A listing that fails, or that is always
// interrupted, is an error.
func TestWhole(t *testing.T) {
	for _, tt := range []struct {
		name      string
		fails     int
		err, want error
		calls     int
	}{
		{"undisturbed", 0, nil, nil, 1},
		{"disturbed twice", 2, netlink.ErrDumpInterrupted, nil, 3},
		{"always disturbed", 1000, netlink.ErrDumpInterrupted, netlink.ErrDumpInterrupted, 100},
		{"refused", 1000, os.ErrPermission, os.ErrPermission, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			calls := 0
			got, err := whole(func() ([]int, error) {
				if calls++; calls <= tt.fails {
					return []int{1}, tt.err
				}
				return []int{1, 2}, nil
			})
			if !errors.Is(err, tt.want) || calls != tt.calls || err == nil && len(got) != 2 {
				t.Errorf("got %v, %v after %d calls, want %v after %d", got, err, calls, tt.want, tt.calls)
			}
		})
	}
}
