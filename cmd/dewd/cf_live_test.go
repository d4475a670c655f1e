//go:build integration

package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/cftest"
)

// The cf CLI opens SSH sessions in instances and follows their logs. This needs a real
// container, so it is not recorded.
func TestCFLive(t *testing.T) {
	s := newStockClient(t, "")
	s.layOut()
	s.write("site.yml", []byte("applications:\n- name: site\n  path: site\n  instances: 2\n  memory: 128M\n  processes:\n"+
		"  - {type: web, command: "+serving+", memory: 64M, instances: 2}\n  - {type: worker, command: sleep 1000000, memory: 32M, instances: 1, health-check-type: process}\n"))
	s.cf("push -f site.yml -b binary_buildpack", "^#0 +running ")
	s.eventuallySays("web:2/2, worker:1/1", "apps")
	s.entersInstances()
	s.forwardsPorts()
	s.follow("[SSH/0] OUT Successful remote access", "logs site")
	s.cf("logs site --recent", `^ *\S+ \[APP/PROC/WEB/1\] OUT listening on 0\.0\.0\.0:8080$`)
	s.refuses("logs none", "App 'none' not found.")
	s.live(0, "ssh-code", `^\S{6,}$`)
	s.live(0, "download-droplet site --path here.tgz", "OK")
	at := "/v3/apps/" + strings.TrimSpace(s.live(0, "app site --guid"))
	s.live(0, "curl -X POST "+at+"/processes/worker/actions/scale -d {\"memory_in_mb\":1048576000}", `"memory_in_mb":1048576000`)
	s.live(0, "curl -X POST "+at+"/actions/restart", `"state":"STARTED"`)
	s.eventuallySays("insufficient resources: memory (the instance can use up to 1048576000M", "app site")
	s.eventuallySays("web:2/2, worker:0/1", "apps")
	s.cf("app site", "^#0 +down .*insufficient resources: memory", "^#0 +running ")
	ran := slices.Clone(s.ran)
	for _, name := range cftest.Live() {
		if !slices.Contains(ran, name) {
			t.Errorf("cf %s is said to be tried live, and is not", name)
		}
	}
}

func (s *stock) entersInstances() {
	s.cf("ssh site -c 'echo index=$CF_INSTANCE_INDEX'", "index=0")
	s.cf("ssh site -i 1 -c 'echo index=$CF_INSTANCE_INDEX'", "index=1")
	s.cf("ssh site --process worker -c 'echo port=$PORT-'", "^port=")
	s.cf("ssh site -c echo -c several -c words", "several words")
	s.cf("ssh site -T -k -c id", "^uid=2000")
	s.cf("ssh site --force-pseudo-tty -c tty", "^/dev/pts/")
	s.input = []string{"echo from-a-shell", "exit 4"}
	s.exits(4, "ssh site", "from-a-shell")
	s.input = nil
	s.exits(3, "ssh site -c 'exit 3'", "!FAILED")
	s.refuses("ssh site --process none -c true", "Process none not found")
	s.refuses("ssh site -i 7 -c true", "Instance 7 of process web not found")
	s.refuses("ssh none -c true", "App 'none' not found.")
	s.cf("disable-ssh site", "OK")
	s.refuses("ssh site -c true", "Error opening SSH connection: You are not authorized to perform the requested action.")
	s.cf("enable-ssh site", "OK")
	s.cf("create-app still", "OK")
	s.refuses("ssh still -c true", "Application 'still' is not in the STARTED state")
}

// forwardsPorts reaches the app through a forwarded port of this machine.
func (s *stock) forwardsPorts() {
	s.t.Helper()
	here := freeAddress(s.t)
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	cmd := s.command(ctx, "ssh", "site", "-N", "-L", here+":localhost:8080")
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.eventually("the forwarded port answers", func() error {
		resp, err := http.Get("http://" + here) //nolint:noctx // it is on this machine
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", resp.StatusCode)
		}
		return nil
	})
	cancel()
	_ = cmd.Wait() // it was killed
	s.takeRaw()
}

// Every command of the client is either tested or excluded with a reason.
func TestCFCommands(t *testing.T) {
	s := newStock(t, "")
	var names []string
	help := s.live(0, "help -a")
	_, help, _ = strings.Cut(help, "GETTING STARTED:\n")
	help, _, _ = strings.Cut(help, "INSTALLED PLUGIN COMMANDS:")
	for l := range strings.Lines(help) {
		if rest, ok := strings.CutPrefix(l, "   "); ok && !strings.HasPrefix(rest, " ") {
			name, _, _ := strings.Cut(rest, " ")
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if known := slices.Sorted(slices.Values(cftest.Commands())); !slices.Equal(names, known) {
		t.Errorf("the client has the commands %v, known are %v", names, known)
	}
}
