package smoketest

import (
	"github.com/dewrun/dew/cli/console"
	"github.com/dewrun/dew/cli/push"
	"github.com/dewrun/dew/smoke"
)

// runSmokeInit writes a first smoke.yml.
func runSmokeInit(o Options, out *console.Console) error {
	dir := "."
	switch len(o.Args) {
	case 1:
	case 2:
		dir = o.Args[1]
	default:
		return console.UsageError("smoke init takes one folder, but got %q as well (for a folder named init, use ./init)", o.Args[2])
	}
	file, err := smoke.Init(dir, o.Force)
	if err != nil {
		return push.SmokeFailure(err)
	}
	out.Say("Wrote %s. Check it, then run: dew smoke %s", file, dir)
	return nil
}
