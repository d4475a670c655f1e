//go:build integration

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

const two = "instances: 2/2"

// The cf CLI deploys without downtime: rolling and canary, with push, restart and
// restage. It continues and cancels deployments, and rolls back to a revision.
func TestCFDeploys(t *testing.T) {
	s := newStockClient(t, "deploys")
	program := s.readFile(filepath.Join(programs, "testapp"))
	s.tape.Pushes("testapp", program)
	s.write("site/testapp", program)
	s.write("site.yml", []byte("applications:\n- name: site\n  path: site\n  buildpacks: [binary_buildpack]\n  command: "+serving+"\n  memory: 128M\n  env:\n    COLOUR: green\n"))
	s.cf("push -f site.yml", oneRunning)
	s.parts(
		part{"rolling", s.rolls},
		part{"canary", s.pauses},
		part{"back", s.goesBack},
	)
	s.finish()
}

func (s *stock) rolls() {
	s.cf("revisions site", `^1\(deployed\) +Initial revision\. +true`)
	s.cf("push -f site.yml --strategy rolling -i 2 -m 160M -k 300M -l 1M --max-in-flight 2",
		"Starting deployment for app site", "Waiting for app to deploy", two, "memory usage: 160M")
	s.cf("set-env site COLOUR red", "OK")
	s.cf("restart site --strategy rolling --max-in-flight 2", "Creating deployment for app site", two)
	s.cf("revisions site", `^3\(deployed\) +New environment variables deployed\. +true`, `^2 +New droplet deployed\.`, `^1 +Initial revision\.`)
	s.cf("revision site --version 3", "deployed: true", "COLOUR: red", "description: New environment variables deployed.")
	s.cf("revision site", "revision: 3")
	s.refuses("revision site --version 99", "Revision '99' not found")
	s.refuses("revisions none", "App 'none' not found.")
	s.passes("restage site --strategy rolling --no-wait", "First instance restaged correctly, restaging remaining in the background")
	s.settles()
}

// pauses deploys canaries. The client waits only until the next pause.
func (s *stock) pauses() {
	s.cf("set-env site COLOUR blue", "OK")
	s.cf("restart site --strategy canary --instance-steps 25,50", "Active deployment with status PAUSED", "strategy: canary", "canary-steps: 1/2")
	s.cf("app site", "Active deployment with status PAUSED", "^type: +web(?s:.*)type: +web")
	s.refuses("scale site -i 3", "Cannot scale this process while a deployment is in flight.")
	s.refuses("set-health-check site process", "Cannot update this process while a deployment is in flight.")
	s.refuses("push -f site.yml --strategy rolling", "For application 'site': Cannot update this process while a deployment is in flight.")
	s.cf("continue-deployment site", "canary-steps: 2/2")
	s.cf("cancel-deployment site", "OK", "TIP: Run 'cf app site' to view app status.")
	s.settles()
	s.refuses("cancel-deployment site", "No active deployment found for app")
	s.refuses("continue-deployment site", "No active deployment found for app")
	s.refuses("continue-deployment none", "App 'none' not found.")
	s.cf("push -f site.yml --strategy canary", "Active deployment with status PAUSED")
	s.passes("continue-deployment site --no-wait", "Waiting for app to deploy...")
	s.settles()
}

func (s *stock) goesBack() {
	s.cf("rollback site --version 1 -f", "Rolling back to revision 1 for app site", two)
	s.settles()
	s.cf("revisions site", `^.*\(deployed\) +.*Rolled back to revision 1\.`)
	s.cf("env site", "COLOUR: green")
	s.refuses("rollback site --version 1 -f", "Unable to rollback. The code and configuration you are rolling back to is the same as the deployed revision.")
	s.refuses("rollback site --version 99 -f", "Revision '99' not found")
	s.cf("events site", "audit.app.deployment.create", "audit.app.revision.create", "audit.app.deployment.cancel", "audit.app.deployment.continue")
	s.cf("delete -f -r site", "OK")
}

// settles waits until the client shows no deployment, and two instances.
func (s *stock) settles() {
	s.t.Helper()
	s.eventually("the deployment is over", func() error {
		r := s.once(s.words("app site"))
		s.takeRaw()
		if r.code != 0 || strings.Contains(r.out, "Active deployment") || !holds(r.out, two) {
			return fmt.Errorf("status %d\n%s", r.code, r.out)
		}
		return nil
	})
	s.before = append(s.before, "await site 2")
}
