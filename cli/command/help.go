package command

import (
	"errors"
	"strings"

	"github.com/dewrun/dew/cli/console"
)

// helpWidth is the maximum length of a line of help, without its margin.
const helpWidth = 76

// wrap breaks long lines of help. Lines that start with a space are examples or tables
// and stay as they are.
func wrap(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if !strings.HasPrefix(line, " ") {
			lines[i] = fold(line)
		}
	}
	return strings.Join(lines, "\n")
}

func fold(line string) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(line) {
		switch {
		case column == 0:
		case column+1+len(word) > helpWidth:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}

// usageLine is the usage line of the command.
func (v Verb) usageLine() string {
	words := []string{"dew", v.Name}
	if v.Args != "" {
		words = append(words, v.Args)
	}
	if len(v.Flags) > 0 {
		words = append(words, "[flags]")
	}
	return strings.Join(words, " ")
}

// withUsage adds the command's usage line to an error in its flags or arguments that
// has no advice.
func (v Verb) withUsage(err error) error {
	f := (*console.Failure)(nil)
	if !errors.As(err, &f) || f.Status != console.StatusUsage || f.Advice != "" {
		return err
	}
	todo := "usage: " + v.usageLine()
	if len(v.Flags) > 0 {
		todo += "\n     dew " + v.Name + " --help lists the flags"
	}
	return &console.Failure{Status: console.StatusUsage, Err: err, Advice: todo}
}

// flagError is the error for a wrong flag. For an unknown flag it suggests the nearest
// name.
func (v Verb) flagError(err error) error {
	const unknown = "flag provided but not defined: -"
	name, ok := strings.CutPrefix(err.Error(), unknown)
	if !ok {
		return console.UsageError("%s: %w", v.Name, err)
	}
	var names []string
	for _, f := range v.Flags {
		names = append(names, f.Names()...)
	}
	if near := Nearest(name, names); near != "" {
		return console.UsageError("%s has no flag %s: did you mean %s?", v.Name, Dashed(name), Dashed(near))
	}
	return console.UsageError("%s has no flag %s", v.Name, Dashed(name))
}
