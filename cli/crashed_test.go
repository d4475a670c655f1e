package cli

import (
	"testing"

	"github.com/dewrun/dew/api/v3"
)

// dew reports errors before it requests an SSH login.
func TestCrashedErrors(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	d.crashes = []v3.Crash{{Instance: "a", Type: "web"}}
	for _, tt := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"ssh", "shop", "--crashed"}, 1, "no files of a matching crash are kept"},
		{[]string{"ssh", "shop", "--crash", "1"}, 1, "the files of crash 1 are not kept"},
		{[]string{"ssh", "shop", "--crash", "0"}, 2, "is less than 1"},
		{[]string{"ssh", "shop", "--crashed", "-L", "1:localhost:2"}, 2, "cannot forward ports to a crashed instance"},
		{[]string{"cp", "--crash", "2", "shop:x", "."}, 1, "crash 2 does not exist: 1 crash recorded"},
	} {
		d.dew(tt.args...).must(t, tt.status, tt.want)
	}
	d.crashes[0].Kept = true
	d.dew("crashes", "shop").must(t, 0, "its files are kept. To see them: dew ssh --crash 1")
}
