// Command dew speaks to dewd: push an app, see it run, read its logs, see why it
// crashed. Names and flags are those of cf. Package cli has the commands.
package main

import (
	"context"
	"os"

	"github.com/dewrun/dew/cli"
)

// version is set by the linker (make build).
var version = "dev"

func main() { os.Exit(cli.Main(context.Background(), version)) }
