package console

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// SecretOptions are the sources of a password. The first one that is set is used.
type SecretOptions struct {
	Given  string // on the command line
	Stdin  bool
	Env    string // name of a variable; empty: none
	Prompt string
	New    bool // ask for it twice
	Flag   string
}

// Password reads a password without showing it on the screen or in the list of
// processes.
func (c *Console) Password(ctx context.Context, o SecretOptions) (string, error) {
	switch {
	case o.Given != "":
		return o.Given, nil
	case o.Stdin:
		text, err := await(ctx, c.line)
		if err == nil && text == "" {
			err = errors.New("cannot read the password: stdin is empty")
		}
		return text, err
	case o.Env != "" && os.Getenv(o.Env) != "":
		return os.Getenv(o.Env), nil
	case !c.Interactive:
		todo := "Pass it on stdin with " + o.Flag
		if o.Env != "" {
			todo += ", or set " + o.Env
		}
		return "", &Failure{Status: StatusUsage, Err: errors.New("cannot ask for the password without a terminal"), Advice: todo}
	}
	text, err := c.Secret(ctx, o.Prompt+": ")
	if err != nil || !o.New {
		return text, err
	}
	again, err := c.Secret(ctx, o.Prompt+", again: ")
	if err != nil {
		return "", err
	}
	if again != text {
		return "", &Failure{Status: StatusUsage, Err: errors.New("the passwords do not match")}
	}
	return text, nil
}

// Pick lets the user choose a name by its number or by itself. It returns nothing
// without a terminal or without an answer.
func (c *Console) Pick(ctx context.Context, kind string, names []string) (string, error) {
	if !c.Interactive {
		return "", nil
	}
	for i, n := range names {
		c.Say("%3d. %s", i+1, n)
	}
	answer, err := c.Ask(ctx, fmt.Sprintf("%s (press Enter to skip): ", kind))
	if err != nil || answer == "" {
		return "", err
	}
	for i, n := range names {
		if answer == n || answer == fmt.Sprint(i+1) {
			return n, nil
		}
	}
	return "", UsageError("%q is not in the list", answer)
}
