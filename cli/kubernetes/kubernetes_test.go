package kubernetes

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// run runs dew kubernetes with arguments, and returns the arguments of dewd.
func run(t *testing.T, args ...string) (dewd []string, err error) {
	t.Helper()
	var out bytes.Buffer
	g := &command.Set{Out: &console.Console{Out: &out, Err: &out, In: strings.NewReader("")}, Complete: func(command.Verb) cli.BashCompleteFunc { return nil }}
	app := &cli.App{
		Writer: &out, ErrWriter: &out, ExitErrHandler: func(*cli.Context, error) {},
		Commands: Commands(g, func(_ context.Context, args []string, _ *console.Console) error {
			dewd = args
			return nil
		}),
	}
	err = app.RunContext(t.Context(), append([]string{"dew", "kubernetes"}, args...))
	return dewd, err
}

// dewd gets all flags of dew, and reads the same values from them.
func TestFlags(t *testing.T) {
	args, err := run(t, "--registry", "registry.example.com/dew", "--insecure-registry", "--registry-config", "config.json", "--image", "i", "--programs", "p", "--domain", "d", "--load-balancer",
		"--storage-class", "fast", "--storage-size", "5Gi", "--set", "a=1,2", "--set", "b=3", "--kubeconfig", "k", "--context", "c", "--timeout", "7s",
		"--dry-run", "--skip-checks", "-f", "--json", "--namespace", "n", "install")
	if err != nil {
		t.Fatal(err)
	}
	var got Options
	app := &cli.App{Commands: []*cli.Command{{Name: "kubernetes", Flags: Flags(), Action: func(c *cli.Context) error {
		got = Read(c)
		if c.Args().First() != Install {
			t.Errorf("action = %q", c.Args().First())
		}
		return nil
	}}}}
	if err := app.RunContext(t.Context(), append([]string{"dewd"}, args...)); err != nil {
		t.Fatal(err)
	}
	want := Options{
		Registry: "registry.example.com/dew", Insecure: true, RegistryConfig: "config.json", Image: "i", Folder: "p", Domain: "d", LoadBalancer: true,
		StorageClass: "fast", StorageSize: "5Gi", Set: []string{"a=1,2", "b=3"}, Kubeconfig: "k", Context: "c", Timeout: 7e9,
		DryRun: true, SkipChecks: true, Force: true, JSON: true, Namespace: "n",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("flags of dewd (-want +got):\n%s", diff)
	}
}

// Wrong flags are refused before dewd starts.
func TestRefused(t *testing.T) {
	for want, args := range map[string][]string{
		`"instal" is not an action: use install, uninstall, check`: {"instal"},
		"needs ACTION":                                 {},
		"install needs --registry":                     {"install"},
		"cannot be used together":                      {"--registry", "r", "--registry-config", "f", "--pull-secret", "s", "install"},
		"--dry-run works only with install":            {"--dry-run", "check"},
		"--keep-data works only with uninstall":        {"--keep-data", "--registry", "r", "install"},
		`"x" is not of the form FLAG=VALUE`:            {"--set", "x", "--registry", "r", "install"},
		"--timeout: 0s is not greater than 0":          {"--timeout", "0s", "check"},
		"--namespace: the value is empty":              {"--namespace", "", "check"},
		"confirmation needed: pass -f to stop all app": {"uninstall"},
	} {
		dewd, err := run(t, args...)
		if err == nil || !strings.Contains(err.Error(), want) || dewd != nil {
			t.Errorf("%v: error = %v, dewd %v, want %q", args, err, dewd, want)
		}
	}
}

// Uninstall with -f needs no answer.
func TestUninstall(t *testing.T) {
	dewd, err := run(t, "-f", "--keep-data", "uninstall")
	if err != nil || !strings.Contains(strings.Join(dewd, " "), "--keep-data --force") || dewd[len(dewd)-1] != Uninstall {
		t.Errorf("dewd %v, %v", dewd, err)
	}
}
