package main

import (
	"github.com/urfave/cli/v2"
)

func passwordFlag() cli.Flag {
	return boolFlag("password-stdin", "read the password from stdin")
}
