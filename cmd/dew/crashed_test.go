package main

import (
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
)

func TestChooseCrash(t *testing.T) {
	crashes := []v3.Crash{
		{Instance: "a", Type: "web", Index: 0},
		{Instance: "b", Type: "worker", Index: 0, Kept: true},
		{Instance: "c", Type: "web", Index: 1, Kept: true},
		{Instance: "d", Type: "web", Index: 0, Kept: true},
	}
	for _, tt := range []struct {
		wish crashedWish
		want string // the instance, or a part of the error
	}{
		{crashedWish{index: -1}, "b"},
		{crashedWish{index: -1, process: "web"}, "c"},
		{crashedWish{index: 0, process: "web"}, "d"},
		{crashedWish{index: 7}, "nothing is kept of a crash"},
		{crashedWish{index: -1, number: 3}, "c"},
		{crashedWish{index: -1, number: 1}, "nothing is kept of crash 1"},
		{crashedWish{index: -1, number: 2, process: "web"}, "crash 2 was one of worker/0"},
		{crashedWish{index: -1, number: 5}, "crash 5 does not exist: crashes on record: 4"},
	} {
		c, err := chooseCrash(crashes, tt.wish)
		if err != nil && strings.Contains(err.Error(), tt.want) || err == nil && c.Instance == tt.want {
			continue
		}
		t.Errorf("%+v: %q, %v; want %q", tt.wish, c.Instance, err, tt.want)
	}
}

// Errors are told before anybody is asked to be let in.
func TestCrashedErrors(t *testing.T) {
	d := newDaemon(t).withApp(v3.AppStarted)
	d.crashes = []v3.Crash{{Instance: "a", Type: "web"}}
	for _, tt := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"ssh", "shop", "--crashed"}, 1, "nothing is kept of a crash"},
		{[]string{"ssh", "shop", "--crash", "1"}, 1, "nothing is kept of crash 1"},
		{[]string{"ssh", "shop", "--crash", "0"}, 2, "1 is the newest"},
		{[]string{"ssh", "shop", "--crashed", "-L", "1:localhost:2"}, 2, "nothing to forward to"},
		{[]string{"cp", "--crash", "2", "shop:x", "."}, 1, "crash 2 does not exist: crashes on record: 1"},
	} {
		d.dew(tt.args...).must(t, tt.status, tt.want)
	}
	d.crashes[0].Kept = true
	d.dew("crashes", "shop").must(t, 0, "its files are kept: dew ssh --crash 1")
}
