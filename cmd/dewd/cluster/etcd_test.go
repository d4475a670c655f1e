//go:build k8stest

package cluster_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/dewrun/dew/testkit"
)

// etcdAlarm activates or deactivates the alarm that etcd raises when its database has no
// space left. etcd then refuses to store anything.
func (w *faultWorld) etcdAlarm(action string) {
	w.Helper()
	body := strings.NewReader(`{"action": "` + action + `", "alarm": "NOSPACE"}`)
	req, err := http.NewRequestWithContext(w.Context(), http.MethodPost, "http://127.0.0.1:2379/v3/maintenance/alarm", body)
	if err != nil {
		w.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		w.Fatalf("etcd answered %s: %s %v", resp.Status, b, err)
	}
}

// printed returns the number in the newest line of the main process.
func (w *faultWorld) printed() (n int) {
	w.Helper()
	for line := range strings.Lines(w.must("logs", "count", "--recent", "-n", "200", "--raw")) {
		if f := strings.Fields(line); len(f) == 4 && f[0] == "LINE" && f[1] == "main" {
			n, _ = strconv.Atoi(f[3]) // checkLines checks the lines
		}
	}
	return n
}

// etcd has no space left: dewd says so, apps run on and their lines are stored. When there
// is space again, everything that happened in between is done.
func TestEtcdFull(t *testing.T) {
	w := &faultWorld{world: newWorldAt(t, func(kubeconfig string) string { return kubeconfig }, "--backoff-first", "10ms", "--backoff-max", "100ms")}
	dir := t.TempDir()
	testkit.WriteFile(t, filepath.Join(dir, "count.sh"), counter)
	w.must("push", "-f", testkit.WriteFile(t, filepath.Join(dir, "manifest.yml"), countManifest))
	w.push()
	full := true
	w.etcdAlarm("ACTIVATE")
	t.Cleanup(func() {
		if full {
			w.etcdAlarm("DEACTIVATE")
		}
	})
	stop := w.load()
	const want = "the database of the cluster (etcd) has no space left"
	testkit.Eventually(t, "dewd says what is wrong", func() error {
		if !strings.Contains(w.said.String(), want) {
			return errors.New("its log does not")
		}
		out, err := w.dew("app", "count")
		if err == nil && !strings.Contains(out, want) {
			err = fmt.Errorf("dew app prints:\n%s", out)
		}
		return err
	})
	before := w.printed()
	testkit.Eventually(t, "more lines are stored", func() error {
		if n := w.printed(); n <= before {
			return fmt.Errorf("the newest line is %d", n)
		}
		return nil
	})
	// A crash has its record, but the next instance has to wait.
	w.killProcess("count.sh side", "")
	w.records++
	testkit.Eventually(t, "the crash is recorded", func() error {
		all, err := w.crashes()
		if err == nil && (len(all) != 1 || !all[0].Complete || all[0].First.Source != sideSource) {
			err = fmt.Errorf("records = %+v", all)
		}
		return err
	})
	stop()
	w.etcdAlarm("DEACTIVATE")
	full = false
	w.check(fault{name: "etcd full"})
	if !strings.Contains(w.said.String(), "renewed the Lease again") {
		t.Error("dewd does not say that it can change the cluster again")
	}
	t.Logf("%d lines", w.checkLines())
}
