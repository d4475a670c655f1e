package cli

import (
	"os"
	"path/filepath"
	"testing"
)

// dew kubernetes runs the program dewd, with its output and its exit status.
func TestKubernetes(t *testing.T) {
	clearHome(t)
	dir := t.TempDir()
	script := "#!/bin/sh\necho \"dewd $*\"\necho progress >&2\nexit 9\n"
	if err := os.WriteFile(filepath.Join(dir, "dewd"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/bin:/usr/bin")
	runDew(t.Context(), "kubernetes", "check", "--registry", "r.example.com/dew", "--json").
		must(t, 9, "dewd kubernetes --namespace=dew --registry=r.example.com/dew", "--json --timeout=5m0s check\n", "progress\n")
	runDewWithInput(t.Context(), "n\n", "kubernetes", "uninstall").must(t, 0, "Really stop all apps and delete dewd with all its data in namespace dew? [yN]")
	runDewWithInput(t.Context(), "y\n", "kubernetes", "uninstall").must(t, 9, "--force --timeout=5m0s uninstall\n")
	runDew(t.Context(), "kubernetes", "--generate-bash-completion").must(t, 0, "install\nuninstall\ncheck\n")
	runDew(t.Context(), "kubernetes", "instal").must(t, 2, `"instal" is not an action`, "dew kubernetes ACTION")
}
