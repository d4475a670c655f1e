//go:build k8stest

package cluster_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/runtime/kubernetes/kubetest"
	"github.com/dewrun/dew/testkit"
)

// counter prints numbered lines with an id of its own.
const counter = `id=$(cat /proc/sys/kernel/random/uuid); i=0
while :; do
  n=0; while [ $n -lt 50 ]; do i=$((i+1)); n=$((n+1)); echo "LINE $1 $id $i"; done
  sleep 0.05
done
`

// crash is one record of dew crashes --json.
type crash struct {
	Instance string
	Complete bool
	First    struct {
		Source, Cause string
		Code          int
	}
	Followers []struct{ Source string }
	Verdict   struct{ Class string }
}

// faultWorld is an app that prints lines, with a sidecar that does the same.
type faultWorld struct {
	*world
	records int // that must exist
}

// fault is one thing that goes wrong. first is the source of the process that the record
// must name, empty if there must be none.
type fault struct {
	name   string
	first  string
	class  string
	code   int
	inject func(w *faultWorld)
}

const (
	mainSource = "APP/PROC/WEB"
	sideSource = "APP/PROC/WEB/SIDECAR/SIDE"
)

var faults = []fault{
	{"main killed", mainSource, "killed", 137, func(w *faultWorld) { w.killProcess("count.sh main", "") }},
	{"sidecar killed", sideSource, "killed", 137, func(w *faultWorld) { w.killProcess("count.sh side", "") }},
	{"wrapper of the sidecar killed", sideSource, "container_lost", 137, func(w *faultWorld) { w.killProcess("dew-pod wrap", "--process sidecar-0") }},
	{"agent killed", "", "", 0, func(w *faultWorld) { w.killProcess("dew-pod agent", "") }},
	{"dewd killed", "", "", 0, func(w *faultWorld) { w.kill(); w.start() }},
	{"sidecar killed while dewd is away", sideSource, "killed", 137, func(w *faultWorld) { w.kill(); w.killProcess("count.sh side", ""); w.start() }},
	{"sidecar killed while the API server is away", sideSource, "killed", 137, func(w *faultWorld) {
		w.cluster.Stop(w, kubetest.Control, kubetest.APIServer)
		w.killProcess("count.sh side", "")
		w.cluster.Start(w, kubetest.Control, kubetest.APIServer)
	}},
	{"kubelet killed", "", "", 0, func(w *faultWorld) { w.cluster.Kill(w, w.node(), kubetest.Kubelet) }},
	{"containerd killed", "", "", 0, func(w *faultWorld) { w.cluster.Kill(w, w.node(), kubetest.Containerd) }},
	{"etcd killed", "", "", 0, func(w *faultWorld) { w.cluster.Kill(w, kubetest.Control, kubetest.Etcd) }},
	{"Pod deleted", mainSource, "removed", -1, func(w *faultWorld) {
		pod := w.pod()
		if err := w.cluster.Do(w.Context(), http.MethodDelete, "/api/v1/namespaces/"+w.namespace+"/pods/"+pod.Metadata.Name, nil, nil); err != nil {
			w.Fatal(err)
		}
	}},
	{"Pod evicted", mainSource, "removed", -1, func(w *faultWorld) {
		testkit.Eventually(w, "the Pod is evicted", func() error { return w.cluster.Evict(w.Context(), w.namespace, w.pod().Metadata.Name) })
	}},
}

// pod returns the Pod of the app.
func (w *faultWorld) pod() hollowPod {
	w.Helper()
	var found hollowPod
	testkit.Eventually(w, "the app has a Pod", func() error {
		var list struct{ Items []hollowPod }
		if err := w.cluster.Do(w.Context(), http.MethodGet, "/api/v1/namespaces/"+w.namespace+"/pods", nil, &list); err != nil {
			return err
		}
		for _, p := range list.Items {
			if p.Metadata.Labels["run.dew/kind"] == "instance" && p.Metadata.DeletionTimestamp == "" {
				found = p
				return nil
			}
		}
		return errors.New("there is none")
	})
	return found
}

func (w *faultWorld) node() string { return w.pod().Spec.NodeName }

// killProcess kills the processes of the Pods whose command line has both texts.
func (w *faultWorld) killProcess(text, other string) {
	w.Helper()
	testkit.Eventually(w, "a process with "+text+" is killed", func() error {
		files, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			return testkit.Finally(err)
		}
		killed := 0
		for _, file := range files {
			b, err := os.ReadFile(file)
			line := string(bytes.ReplaceAll(b, []byte{0}, []byte{' '}))
			if err != nil || !strings.Contains(line, text) || !strings.Contains(line, other) || strings.HasPrefix(line, "/.dew/bin/dew-init") || strings.Contains(line, "until [") {
				continue // it has exited, is another one, or has not become the process yet
			}
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err != nil {
				return testkit.Finally(err)
			}
			if syscall.Kill(pid, syscall.SIGKILL) == nil {
				killed++
			}
		}
		if killed == 0 {
			return errors.New("there is none")
		}
		return nil
	})
}

// crashes returns all records, newest first.
func (w *faultWorld) crashes() (all []crash, err error) {
	out, err := w.dew("crashes", "count", "--all", "--json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &all)
	}
	return all, err
}

// check waits until the records are as they must be after a fault, and the app runs.
func (w *faultWorld) check(f fault) {
	w.Helper()
	if f.first != "" {
		w.records++
	}
	var newest crash
	testkit.Eventually(w, "the record of: "+f.name, func() error {
		all, err := w.crashes()
		if err == nil && len(all) != w.records {
			err = fmt.Errorf("%d records, want %d", len(all), w.records)
		}
		if err == nil && len(all) > 0 {
			newest = all[0]
			if !newest.Complete {
				err = errors.New("the record is not complete")
			}
		}
		return err
	})
	if f.first != "" {
		if newest.First.Source != f.first || newest.Verdict.Class != f.class || f.code >= 0 && newest.First.Code != f.code || len(newest.Followers) != 1 {
			w.Errorf("%s: the record is %+v, want %s with %s", f.name, newest, f.first, f.class)
		}
	}
	testkit.Eventually(w, "the app runs after: "+f.name, func() error {
		out, err := w.dew("app", "count", "--json")
		if err == nil && !strings.Contains(out, `"RUNNING"`) {
			err = errors.New(out)
		}
		return err
	})
}

// checkLines checks that no process lost or repeated a line. It returns how many there
// were.
func (w *faultWorld) checkLines() (lines int) {
	w.Helper()
	last := map[string]int{}
	for line := range strings.Lines(w.must("logs", "count", "--recent", "-n", "100000000", "--raw")) {
		f := strings.Fields(line)
		if len(f) != 4 || f[0] != "LINE" {
			continue
		}
		n, err := strconv.Atoi(f[3])
		if err != nil || n != last[f[1]+f[2]]+1 {
			w.Fatalf("line %q follows line %d", line, last[f[1]+f[2]])
		}
		last[f[1]+f[2]] = n
		lines++
	}
	return lines
}

// countManifest is the manifest of the app with the counter.
const countManifest = `---
applications:
- name: count
  path: .
  stack: debian
  buildpacks: [binary_buildpack]
  command: exec sh count.sh main
  health-check-type: process
  memory: 64M
  sidecars:
  - name: side
    process_types: [web]
    command: exec sh count.sh side
    memory: 16M
`

// Whatever fails, every exit has one record that names the right process, and no line is
// lost. DEW_K8STEST_FAULTS sets the number of faults, DEW_K8STEST_SEED their order.
func TestFaults(t *testing.T) {
	count, err1 := strconv.Atoi(cmp.Or(os.Getenv("DEW_K8STEST_FAULTS"), strconv.Itoa(len(faults))))
	seed, err2 := strconv.ParseUint(cmp.Or(os.Getenv("DEW_K8STEST_SEED"), strconv.Itoa(int(time.Now().Unix()))), 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d faults; to repeat them: DEW_K8STEST_SEED=%d", count, seed)
	w := &faultWorld{world: newWorldAt(t, func(kubeconfig string) string { return kubeconfig }, "--backoff-first", "10ms", "--backoff-max", "100ms", "--crash-records", "10000")}
	dir := t.TempDir()
	testkit.WriteFile(t, filepath.Join(dir, "count.sh"), counter)
	testkit.WriteFile(t, filepath.Join(dir, "manifest.yml"), countManifest)
	w.must("push", "-f", filepath.Join(dir, "manifest.yml"))
	random := rand.New(rand.NewPCG(seed, 0))
	order := random.Perm(len(faults))
	done := map[string]int{}
	for i := range count {
		if i > 0 && i%len(faults) == 0 {
			order = random.Perm(len(faults))
		}
		f := faults[order[i%len(faults)]]
		t.Logf("fault %d: %s", i+1, f.name)
		f.inject(w)
		w.check(f)
		done[f.name]++
		if t.Failed() {
			break
		}
	}
	t.Logf("%v: %d records, %d lines", done, w.records, w.checkLines())
}
