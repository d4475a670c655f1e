package cli

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
)

var update = flag.Bool("update", false, "write the golden files again")

// The help of every command equals the golden file, so that a change of it is reviewed.
func TestHelp(t *testing.T) {
	clearHome(t)
	var b strings.Builder
	b.WriteString(runDew(t.Context(), "--help").out)
	for _, c := range newApp("dev", quiet()).app.Commands {
		if c.SkipFlagParsing {
			continue // another program prints its help
		}
		r := runDew(t.Context(), c.Name, "--help")
		r.must(t, 0, c.Usage)
		b.WriteString("\n$ dew " + c.Name + " --help\n" + r.out)
	}
	golden := filepath.Join("testdata", "help.txt")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(b.String(), "\n")); diff != "" {
		t.Errorf("help differs (-update writes it again):\n%s", diff)
	}
}

// dew without arguments is for new users: it lists a few commands that exist, and how
// to list the others.
func TestBasicCommands(t *testing.T) {
	clearHome(t)
	r := runDew(t.Context())
	a := newApp("dev", quiet()).app
	a.Setup()
	r.must(t, 0, fmt.Sprintf("To list the other %d commands: dew help\n", len(a.VisibleCommands())-len(basicCommands)))
	for _, e := range basicCommands {
		if c := a.Command(e[0]); c == nil || c.Name != e[0] {
			t.Errorf("command %s does not exist", e[0])
		}
		r.must(t, 0, "  dew "+e[0]+" ", e[1])
	}
	if n := strings.Count(r.out, "\n"); n > 20 {
		t.Errorf("%d lines:\n%s", n, r.out)
	}
	all := runDew(t.Context(), "--help")
	for _, c := range a.VisibleCommands() {
		all.must(t, 0, "     "+c.Name)
	}
	for _, args := range [][]string{{"help"}, {"help", "-a"}, {"help", "--all"}, {"h"}} {
		if got := runDew(t.Context(), args...); got.out != all.out {
			t.Errorf("%v differs from --help:\n%s", args, cmp.Diff(all.out, got.out))
		}
	}
	if got, want := runDew(t.Context(), "help", "push"), runDew(t.Context(), "push", "--help"); got.out != want.out {
		t.Errorf("help push differs from push --help:\n%s", cmp.Diff(want.out, got.out))
	}
	runDew(t.Context(), "help", "--generate-bash-completion").must(t, 0, "restart-app-instance\n")
	runDew(t.Context(), "help", "psuh").must(t, 2, `command "psuh" does not exist: did you mean "push"?`, "To list all commands: dew help")
	for _, typo := range []string{"delet", "shutdwn", "kil", "purge-service-instanc"} {
		if r := runDew(t.Context(), typo); r.status != 2 || strings.Contains(r.talk+r.err.Error(), "did you mean") {
			t.Errorf("%s: status %d, %v; a destructive command must not be suggested", typo, r.status, r.err)
		}
	}
}

// An error in a command line comes with the usage line of the command.
func TestUsageLine(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	for line, texts := range map[string][]string{
		"push --foo":              {"push has no flag --foo\n     usage: dew push [APP] [flags]\n     dew push --help lists the flags"},
		"push --memmory 1":        {"push has no flag --memmory: did you mean --memory?"},
		"p -X":                    {"push has no flag -X", "usage: dew push [APP] [flags]"},
		"app":                     {"app needs APP (APP is the name of an app: dew apps lists them)\n     usage: dew app APP [flags]"},
		"rename a b c":            {"usage: dew rename APP NEW_NAME"},
		"kill shop --signal NOPE": {`signal "NOPE" does not exist`, "usage: dew kill APP [flags]"},
		"completion tcsh":         {"usage: dew completion bash|zsh|fish"},
		"--foo":                   {"usage: dew [--run folder | --api URL] command", "To list all commands: dew help"},
		"--api x apps":            {"--run and --api cannot be used together", "usage: dew [--run"},
	} {
		d.dew(strings.Fields(line)...).must(t, 2, texts...)
	}
	r := d.dew("rename", "x")
	if text := command.Explain(r.err); strings.Contains(text, "lists the flags") {
		t.Errorf("a command without flags:\n%s", text)
	}
	if text := command.Explain(d.dew("delete", "shop").err); strings.Contains(text, "usage:") {
		t.Errorf("an error that says what to do has a usage line as well:\n%s", text)
	}
}
