package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// runner accepts flags after arguments (`dew push shop -m 64M`), as cf does. The cli
// package itself stops reading flags at the first argument.
type runner struct {
	app   *cli.App
	typed func([]string) // receives the original command line
}

// RunContext runs the command that args name; args[0] is the program.
func (r *runner) RunContext(ctx context.Context, args []string) error {
	r.typed(args)
	if len(args) == 2 && (args[1] == "--version" || args[1] == "-v") {
		args = []string{args[0], "version"} // as in cf
	}
	return r.app.RunContext(ctx, reorder(r.app, args))
}

// literal lists the commands whose arguments from an index on are values, even if they
// look like flags. Examples are `dew set-env shop JAVA_OPTS -Xmx64m` and `dew run shop
// ls -l`.
var literal = map[string]int{"set-env": 2, "run": 2}

// reorder moves flags before arguments, and global flags before the command.
func reorder(a *cli.App, args []string) []string {
	if len(args) == 0 || slices.Contains(args, "--generate-bash-completion") {
		return args
	}
	// Every command has its own --help.
	shared := slices.DeleteFunc(slices.Clone(a.Flags), func(f cli.Flag) bool { return f == cli.HelpFlag })
	global, rest := split(args[1:], shared, func(n int) bool { return n > 0 })
	if len(rest) == 0 {
		return append([]string{args[0]}, global...)
	}
	cmd := a.Command(rest[0])
	if cmd == nil || cmd.SkipFlagParsing {
		return append(append([]string{args[0]}, global...), rest...)
	}
	limit, isLiteral := literal[cmd.Name]
	stop := func(n int) bool { return isLiteral && n >= limit }
	known := append(slices.Clone(cmd.Flags), shared...)
	flags, plain := split(rest[1:], known, stop)
	own, local := splitFlags(flags, shared, known)
	if lacksValue(own, known) { // the next word would become its value
		return slices.Concat(args[:1], global, own)
	}
	out := slices.Concat(args[:1], global, own, rest[:1], local)
	if lacksValue(local, known) {
		return out
	}
	if len(plain) > 0 && !(requestsHelp(local, cmd) && len(cmd.Subcommands) == 0) {
		out = append(append(out, "--"), plain...)
	}
	return out
}

// requestsHelp reports whether the flags request the help of the command. Other arguments
// would be read as help topics.
func requestsHelp(flags []string, cmd *cli.Command) bool {
	return slices.ContainsFunc(flags, func(f string) bool {
		return (f == "--help" || f == "-h") && find(f, cmd.Flags) == nil
	})
}

// split separates flags with their values from arguments. It stops at "--", and when
// stop returns true for the number of arguments so far. The rest are arguments.
func split(args []string, known []cli.Flag, stop func(n int) bool) (flags, plain []string) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		if stop(len(plain)) {
			return flags, append(plain, args[i:]...)
		}
		if a == "--" {
			return flags, append(plain, args[i+1:]...)
		}
		if len(a) < 2 || a[0] != '-' {
			plain = append(plain, a)
			continue
		}
		flags = append(flags, a)
		if wantsValue(a, known) && i+1 < len(args) {
			i++
			flags = append(flags, args[i])
		}
	}
	return flags, plain
}

// splitFlags separates the flags in wanted, with their values, from the others. It needs all
// known flags, because a value can look like the name of a flag, as in --path api.
func splitFlags(flags []string, wanted, known []cli.Flag) (own, others []string) {
	for i := 0; i < len(flags); i++ {
		dst := &others
		if find(flags[i], wanted) != nil {
			dst = &own
		}
		*dst = append(*dst, flags[i])
		if wantsValue(flags[i], known) && i+1 < len(flags) {
			i++
			*dst = append(*dst, flags[i])
		}
	}
	return own, others
}

// lacksValue reports whether the last flag needs a value and has none.
func lacksValue(flags []string, known []cli.Flag) bool {
	for i := 0; i < len(flags); i++ {
		if !wantsValue(flags[i], known) {
			continue
		}
		if i++; i == len(flags) {
			return true
		}
	}
	return false
}

// wantsValue reports whether the next argument is the value of the flag.
func wantsValue(arg string, known []cli.Flag) bool {
	f, ok := find(arg, known).(cli.DocGenerationFlag)
	return ok && f.TakesValue() && !strings.Contains(arg, "=")
}

func find(arg string, known []cli.Flag) cli.Flag {
	name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	for _, f := range known {
		if slices.Contains(f.Names(), name) {
			return f
		}
	}
	return nil
}
