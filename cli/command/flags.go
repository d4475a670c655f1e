package command

import (
	"github.com/urfave/cli/v2"
)

// BoolFlag is a flag without a value. Its help shows no default.
func BoolFlag(name, about string) cli.Flag {
	return &cli.BoolFlag{Name: name, Usage: about, DisableDefaultText: true}
}

// JSONFlag is --json.
func JSONFlag() cli.Flag { return BoolFlag("json", "Write the data as JSON to stdout") }

// Dashed is the name of a flag with its dashes.
func Dashed(flag string) string {
	if len(flag) == 1 {
		return "-" + flag
	}
	return "--" + flag
}

// PasswordFlag is --password-stdin.
func PasswordFlag() cli.Flag {
	return BoolFlag("password-stdin", "Read the password from stdin")
}

// ForceFlag is -f: do not ask for confirmation.
func ForceFlag() cli.Flag {
	return &cli.BoolFlag{Name: "f", Aliases: []string{"force"}, Usage: "Do not ask for confirmation", DisableDefaultText: true}
}

// OrgFlag is -o, the name of an org.
func OrgFlag() cli.Flag {
	return &cli.StringFlag{Name: "o", Usage: "Name of the `org` (default: the targeted org)"}
}
