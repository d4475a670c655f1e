//go:build integration

package network

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/testkit"
)

// A bridge that another program removed or switched off works again after Restore, with
// the instances that were connected to it.
func TestBridgeComesBack(t *testing.T) {
	l := newLAN(t)
	ids := testkit.Must(l.net.Namespaces())(t)
	if restored, err := l.net.Restore(ids); restored || err != nil {
		t.Errorf("Restore of a whole bridge = %v, %v, want nothing to do", restored, err)
	}
	for name, damage := range map[string]func(netlink.Link) error{
		"removed": netlink.LinkDel, "down": netlink.LinkSetDown,
		"without address": func(br netlink.Link) error {
			addrs, err := netlink.AddrList(br, netlink.FAMILY_V4)
			return errors.Join(err, netlink.AddrDel(br, &addrs[0]))
		},
	} {
		l.must(damage(testkit.Must(netlink.LinkByName("dewtest0"))(t)))
		if seen, err := l.dialFrom("", lanInstance, lanPort, dropped); err == nil {
			t.Fatalf("%s: the instance answers %s", name, seen)
		}
		if restored, err := l.net.Restore(ids); !restored || err != nil {
			t.Fatalf("%s: Restore = %v, %v, want a restored bridge", name, restored, err)
		}
		l.reaches("", lanInstance, lanPort, lanGateway)
	}
}

// The name of a network namespace that another program unmounted comes back.
func TestNamespaceComesBack(t *testing.T) {
	l := newLAN(t)
	id := testkit.Must(l.net.Namespaces())(t)[0]
	var inside *exec.Cmd
	l.in(l.instance, func() error { inside = testkit.Sleeper(t); return nil })
	restore := func(want bool) {
		t.Helper()
		if restored, err := l.net.RestoreNamespace(id, inside.Process.Pid); restored != want || err != nil {
			t.Fatalf("RestoreNamespace = %v, %v, want %v", restored, err, want)
		}
	}
	restore(false)
	l.must(errors.Join(unix.Unmount(l.instance, unix.MNT_DETACH), os.Remove(l.instance)))
	restore(true)
	restore(false)
	l.reaches(l.instance, lanGateway, lanDoor, lanInstance)
	if _, err := l.net.RestoreNamespace(runtime.NewInstanceID(), testkit.NoPID); err == nil {
		t.Error("RestoreNamespace for a process that does not exist: no error")
	}
}
