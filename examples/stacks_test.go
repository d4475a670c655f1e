//go:build integration

package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A stack with the machine's own Debian release is created once. Apps in several
// languages are staged and run on it. The test takes minutes and needs the network.
func TestDebianStack(t *testing.T) {
	if os.Getenv("DEW_PROOF") == "" {
		t.Skip("a long test: make proof")
	}
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		t.Fatal("mmdebstrap is not installed: make setup-test")
	}
	const stack = "debian"
	made := dew(t, "", "stack", "build", stack, "--include", "ruby,ruby-webrick,openjdk-17-jre-headless")
	t.Logf("%s", tail(made.err))
	t.Cleanup(func() { dew(t, "", "stack", "remove", stack, "-f") })

	deleteLater(t, "hello-ruby")
	dew(t, "", "push", "hello-ruby", "-p", "hello-ruby", "-m", "128M", "-s", stack)
	waitForPage(t, "hello-ruby", "/", "hello from Ruby in production\n")
	dew(t, "", "restage", "hello-ruby")
	waitForPage(t, "hello-ruby", "/", "hello from Ruby in production\n")

	dir := threadDumpJar(t)
	deleteLater(t, "java-threaddump")
	dew(t, dir, "push", "-s", stack)
	waitForPage(t, "java-threaddump", "/", "hello from Java\n")
	dew(t, "", "restage", "java-threaddump")
	waitForPage(t, "java-threaddump", "/", "hello from Java\n")

	program := t.TempDir()
	cmd := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(program, "hello"), ".")
	cmd.Dir, cmd.Env = "hello-go", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	deleteLater(t, "binary")
	dew(t, "", "push", "binary", "-p", program, "-b", "binary_buildpack", "-c", "./hello", "-m", "64M", "-s", stack, "--no-manifest")
	waitForPage(t, "binary", "/", "hello from Go\n")
	dew(t, "", "restage", "binary")
	waitForPage(t, "binary", "/", "hello from Go\n")

	deleteLater(t, "missing-toolchain")
	const advice = "Build a stack that has it: dew stack build debian --include ruby,ruby-webrick,openjdk-17-jre-headless,nodejs --name debian-nodejs, then set `stack: debian-nodejs`"
	r := dewd.dew("broken/missing-toolchain", "push")
	if want := "cannot stage missing-toolchain: Node.js is not installed in stack debian. " + advice; r.code != 3 || !strings.Contains(r.err, want) {
		t.Errorf("status %d, want 3 with %q:\n%s", r.code, want, r.err)
	}
	dew(t, "", "stack", "build", "debian", "--include", "ruby,ruby-webrick,openjdk-17-jre-headless,nodejs", "--name", "debian-nodejs")
	t.Cleanup(func() { dew(t, "", "stack", "remove", "debian-nodejs", "-f") })
	dew(t, "broken/missing-toolchain", "push", "-s", "debian-nodejs")
	waitForPage(t, "missing-toolchain", "/", "hello\n")
}
