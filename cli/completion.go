package cli

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// bashCompletion does not use compgen -W, because that expands shell characters in
// names of other users' resources.
const bashCompletion = `# dew: source <(dew completion bash)
_dew() {
    local cur="${COMP_WORDS[COMP_CWORD]}" words name quoted
    words=("${COMP_WORDS[@]:0:$COMP_CWORD}")
    [[ "$cur" == -* ]] && words+=("$cur")
    COMPREPLY=()
    while IFS= read -r name; do
        printf -v quoted %q "$name"
        [[ -n "$name" && ("$quoted" == "$cur"* || "$name" == "$cur"*) ]] && COMPREPLY+=("$quoted")
    done < <("${words[@]}" --generate-bash-completion 2>/dev/null)
}
complete -o bashdefault -o default -F _dew dew
`

const zshCompletion = `#compdef dew
# dew: source <(dew completion zsh)
_dew() {
    local -a opts
    local cur="${words[-1]}"
    if [[ "$cur" == -* ]]; then
        opts=("${(@f)$(${words[@]:0:#words[@]-1} "$cur" --generate-bash-completion 2>/dev/null)}")
    else
        opts=("${(@f)$(${words[@]:0:#words[@]-1} --generate-bash-completion 2>/dev/null)}")
    fi
    if [[ -n "${opts[1]}" ]]; then compadd -- "${opts[@]}"; else _files; fi
}
compdef _dew dew
`

func completionCommands(g *command.Set) []*cli.Command {
	completion := g.WithoutClient(command.Verb{
		Name: "completion", Args: "bash|zsh|fish", Category: "Advanced", Usage: "Print a shell completion script for commands, flags and names",
		About: "Examples:\n   source <(dew completion bash)\n   dew completion fish > ~/.config/fish/completions/dew.fish",
	}, func(c *cli.Context) error {
		var script string
		var err error
		switch c.Args().First() {
		case "bash":
			script = bashCompletion
		case "zsh":
			script = zshCompletion
		case "fish":
			script, err = c.App.ToFishCompletion()
		default:
			return console.UsageError("completion needs bash, zsh or fish")
		}
		if err != nil {
			return fmt.Errorf("cannot write the completion script: %w", err)
		}
		_, err = fmt.Fprint(c.App.Writer, script)
		return err
	})
	completion.BashComplete = func(c *cli.Context) { fmt.Fprintln(c.App.Writer, "bash\nzsh\nfish") }
	return []*cli.Command{completion, {
		Name: "man", Hidden: true, Usage: "Print the manual page", // make install stores it
		Action: func(c *cli.Context) error {
			page, err := c.App.ToManWithSection(1)
			if err != nil {
				return fmt.Errorf("cannot write the manual page: %w", err)
			}
			_, err = fmt.Fprint(c.App.Writer, page)
			return err
		},
	}}
}
