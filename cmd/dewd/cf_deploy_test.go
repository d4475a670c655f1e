//go:build integration

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The stock client deploys without a gap: rolling and canary, with push, restart and
// restage; it continues, cancels, and goes back to a revision.
func TestCFDeploys(t *testing.T) {
	s := stockClient{newStock(t)}
	s.write("site/testapp", s.readFile(filepath.Join(programs, "testapp")))
	s.write("site.yml", []byte("applications:\n- name: site\n  path: site\n  buildpacks: [binary_buildpack]\n  command: "+serving+"\n  memory: 128M\n  env:\n    COLOUR: green\n"))
	s.run(0, nil, "api", s.url)
	s.run(0, nil, "login", "-u", "admin", "-p", s.adminPassword(), "-o", "local", "-s", "dev")
	s.run(0, []string{`instances: +1/1`}, "push", "-f", "site.yml")
	if t.Failed() {
		t.FailNow()
	}
	s.run(0, []string{`(?m)^1\(deployed\) +Initial revision\. +true`}, "revisions", "site")

	const two = `instances: +2/2`
	s.run(0, []string{"Starting deployment for app site", "Waiting for app to deploy", two, `memory usage: +160M`},
		"push", "-f", "site.yml", "--strategy", "rolling", "-i", "2", "-m", "160M", "--max-in-flight", "2")
	s.run(0, nil, "set-env", "site", "COLOUR", "red")
	s.run(0, []string{"Creating deployment for app site", two}, "restart", "site", "--strategy", "rolling")
	s.run(0, []string{`(?m)^3\(deployed\) +New environment variables deployed\. +true`, `(?m)^2 +New droplet deployed\.`, `(?m)^1 +Initial revision\.`}, "revisions", "site")
	s.run(0, []string{`deployed: +true`, `COLOUR: +red`, `description: +New environment variables deployed\.`}, "revision", "site", "--version", "3")
	s.run(0, []string{`revision: +3`}, "revision", "site")
	s.run(0, []string{"First instance restaged correctly, restaging remaining in the background"}, "restage", "site", "--strategy", "rolling", "--no-wait")

	// A canary pauses: nobody waits longer than that.
	s.run(0, nil, "set-env", "site", "COLOUR", "blue")
	s.run(0, []string{`(?s)Active deployment with status PAUSED.*strategy: +canary.*canary-steps: +1/2`}, "restart", "site", "--strategy", "canary", "--instance-steps", "50,100")
	s.run(0, []string{`Active deployment with status PAUSED`, `type: +web(?s:.*)type: +web`}, "app", "site")
	s.run(0, []string{`canary-steps: +2/2`}, "continue-deployment", "site", "--no-wait")
	s.run(0, []string{"OK", "TIP: Run 'cf app site' to view app status."}, "cancel-deployment", "site")
	s.settles(two)
	s.run(1, []string{"No active deployment found for app"}, "cancel-deployment", "site")
	s.run(1, []string{"No active deployment found for app"}, "continue-deployment", "site")
	if os.Getenv("DEW_PROOF") != "" {
		s.run(0, []string{`(?s)Active deployment with status PAUSED`}, "push", "-f", "site.yml", "--strategy", "canary")
		s.run(0, nil, "continue-deployment", "site")
		s.settles(two)
	}

	s.run(0, []string{"Rolling back to revision 1 for app site", two}, "rollback", "site", "--version", "1", "-f")
	s.run(0, []string{`\(deployed\) +.*Rolled back to revision 1\.`}, "revisions", "site")
	s.run(0, []string{`COLOUR: +green`}, "env", "site")
	s.run(1, []string{"Unable to rollback. The code and configuration you are rolling back to is the same as the deployed revision."},
		"rollback", "site", "--version", "1", "-f")
	s.run(0, []string{`(?m)audit\.app\.deployment\.create`, `audit\.app\.revision\.create`, `audit\.app\.deployment\.cancel`, `audit\.app\.deployment\.continue`}, "events", "site")
	s.run(0, nil, "delete", "-f", "-r", "site")
}

// settles waits until the client shows no deployment, and the pattern.
func (s stockClient) settles(pattern string) {
	s.t.Helper()
	s.eventually("the deployment is over", func() error {
		cmd := exec.CommandContext(s.t.Context(), s.bin, "app", "site")
		cmd.Env = append(os.Environ(), "CF_HOME="+s.home, "CF_COLOR=false", "LANG=C.UTF-8")
		out, err := cmd.CombinedOutput()
		if err != nil || strings.Contains(string(out), "Active deployment") || !regexp.MustCompile(pattern).Match(out) {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
}
