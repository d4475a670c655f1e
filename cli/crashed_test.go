package cli

import (
	"testing"

	"github.com/dewrun/dew/api/v3"
)

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
