package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
)

func TestReorder(t *testing.T) {
	t.Parallel()
	a := newApp("dev", quiet()).app
	for in, want := range map[string]string{
		"dew":                             "dew",
		"dew apps":                        "dew apps",
		"dew push shop -m 64M --no-start": "dew push -m 64M --no-start -- shop",
		"dew push -m=64M shop -f x":       "dew push -m=64M -f x -- shop",
		"dew app shop --run /r --json":    "dew --run /r app --json -- shop",
		"dew --run /r app shop":           "dew --run /r app -- shop",
		"dew set-env shop OPTS -Xmx1g":    "dew set-env -- shop OPTS -Xmx1g",
		"dew run shop -m 1G -- ls -m x":   "dew run -m 1G -- shop ls -m x",
		"dew run -T shop ls -m x":         "dew run -T -- shop ls -m x",
		"dew run shop":                    "dew run -- shop",
		"dew rename -- -a -b":             "dew rename -- -a -b",
		"dew nothing --x y":               "dew nothing --x y",
		"dew doctor --json --root /x":     "dew doctor --json --root /x",
		"dew curl /v3/apps -X PUT -d -1":  "dew curl -X PUT -d -1 -- /v3/apps",
		"dew push shop --memory":          "dew push --memory",
		"dew push shop -m 64M --memory":   "dew push -m 64M --memory",
		"dew app shop --run":              "dew --run",
		"dew create-route x --path api":   "dew create-route --path api -- x",
		"dew curl /x -d --run":            "dew curl -d --run -- /x",
		"dew inbox wait --help":           "dew inbox --help",
		"dew push shop -h":                "dew push -h",
	} {
		if got := strings.Join(reorder(a, strings.Fields(in)), " "); got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
}

// everyFlag returns the flags of all commands.
func everyFlag(a *cli.App) []cli.Flag {
	all := slices.Clone(a.Flags)
	for _, c := range a.Commands {
		all = append(all, c.Flags...)
	}
	return all
}

// A flag without its value is an error: a word from another place is not used as the
// value.
func TestFlagWithoutValue(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	d.dew("run-task", "shop", "-c").must(t, 2, "flag needs an argument: -c")
	d.dew("scale", "shop", "-m").must(t, 2, "flag needs an argument: -m")
	d.dew("tasks", "shop", "--run").must(t, 2, "flag needs an argument: -run")
	if len(d.requests) != 0 {
		t.Errorf("asked %v, want nothing", d.requests)
	}
}

// Reordering loses no word of the command line. The exceptions are a request for help
// and a last flag without its value, which run nothing.
func FuzzReorder(f *testing.F) {
	f.Add("push shop -m 64M -- x")
	f.Add("--run x app --json")
	f.Add("set-env a b -c --")
	a := newApp("dev", quiet()).app
	f.Fuzz(func(t *testing.T, line string) {
		in := append([]string{"dew"}, strings.Fields(line)...)
		if requestsHelp(in, &cli.Command{}) {
			return
		}
		if last := in[len(in)-1]; strings.HasPrefix(last, "-") && find(last, everyFlag(a)) != nil {
			return
		}
		got := slices.DeleteFunc(reorder(a, slices.Clone(in)), func(s string) bool { return s == "--" })
		want := slices.DeleteFunc(slices.Clone(in), func(s string) bool { return s == "--" })
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%q became %q", want, got)
		}
	})
}

func TestUsage(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	for args, text := range map[string]string{
		"psuh":                         `did you mean "push"?`,
		"frobnicate":                   `command "frobnicate" does not exist`,
		"app":                          "app needs APP",
		"apps x":                       "takes no arguments",
		"app shop x":                   "takes only APP, but got \"x\" as well",
		"app shop --jsn":               "jsn",
		"restart-app-instance shop x":  "not an instance index",
		"scale shop -i -2":             "less than 0",
		"scale shop -m 1x":             "not a valid amount",
		"kill shop --signal NOPE":      `signal "NOPE" does not exist`,
		"kill shop --signal 99":        "signal 99 does not exist",
		"kill shop --instance -1":      "less than 0",
		"logs shop -n -1":              "less than 0",
		"curl /x -H nonsense":          "not a header",
		"completion tcsh":              "bash, zsh or fish",
		"delete shop":                  "confirmation needed: pass -f to delete app shop",
		"scale shop -m 64M":            "confirmation needed: pass -f to scale and restart app shop",
		"push a --var x --no-manifest": "",
	} {
		status := 2
		if text == "" {
			continue
		}
		d.dew(strings.Fields(args)...).must(t, status, text)
	}
	d.dew("app", "").must(t, 2, "an argument is empty")
	d.dew("--help").must(t, 0, "EXIT STATUS:", "6  cannot connect to the daemon")
	d.dew("completion", "bash").must(t, 0, "complete -o bashdefault")
	d.dew("completion", "zsh").must(t, 0, "#compdef dew")
	d.dew("completion", "fish").must(t, 0, "restart-app-instance")
	d.dew("app", "--generate-bash-completion").must(t, 0, "shop")
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	r := runDew(t.Context(), "--run", t.TempDir(), "apps")
	r.must(t, 6, "cannot connect to dewd at")
	if strings.Count(command.Explain(r.err), "dew.sock") != 1 {
		t.Errorf("the address is named more than once: %s", command.Explain(r.err))
	}
}
