//go:build k8stest

package cluster_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dewrun/dew/runtime/kubernetes/kubetest"
	"github.com/dewrun/dew/testkit"
)

// A dewd that has lost its Lease exits with a plain message. Its apps keep running, and
// the next dewd waits for the Lease.
func TestLeaseLost(t *testing.T) {
	w := newWorld(t)
	w.push()
	before := w.must("app", "sample", "--json")
	cluster := kubetest.Open(t)
	lease := "/apis/coordination.k8s.io/v1/namespaces/" + w.namespace + "/leases/dewd"
	cluster.Patch(t, lease, kubetest.Object{"spec": kubetest.Object{"holderIdentity": "other//var/lib/dew", "renewTime": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")}})
	if err := w.cmd.Wait(); err == nil || w.cmd.ProcessState.ExitCode() != 9 {
		t.Errorf("dewd exited with %v, want status 9", err)
	}
	if said := w.said.String(); !strings.Contains(said, "dewd on host other with root /var/lib/dew has taken the Lease dewd of namespace "+w.namespace) {
		t.Errorf("dewd does not say why it exits:\n%s", said)
	}
	w.start() // the other one does not renew the Lease
	testkit.Eventually(t, "the app answers", func() error {
		_, err := w.get("sample", "/config")
		return err
	})
	if after := w.must("app", "sample", "--json"); instances(before) != instances(after) {
		t.Errorf("the instances changed:\n%s\n%s", instances(before), instances(after))
	}
}

// While the API server is away, dewd keeps running and routes requests. Then it renews its
// Lease and goes on.
func TestAPIServerAway(t *testing.T) {
	w := newWorld(t)
	w.push()
	cluster := kubetest.Open(t)
	cluster.Stop(t, kubetest.Control, kubetest.APIServer)
	testkit.Eventually(t, "dewd cannot renew its Lease", func() error { return w.says("cannot renew the Lease") })
	if _, err := w.get("sample", "/config"); err != nil {
		t.Errorf("the app does not answer: %v", err)
	}
	cluster.Start(t, kubetest.Control, kubetest.APIServer)
	testkit.Eventually(t, "dewd has renewed its Lease", func() error { return w.says("renewed the Lease again") })
	w.must("restart", "sample")
	if _, err := w.get("sample", "/config"); err != nil {
		t.Errorf("the app does not answer: %v", err)
	}
}

// says returns an error until the log of dewd contains a text.
func (w *world) says(text string) error {
	if said := w.said.String(); !strings.Contains(said, text) {
		return fmt.Errorf("dewd does not say %q:\n%s", text, said)
	}
	return nil
}

// transcript keeps what dewd prints. It can be read while dewd runs.
type transcript struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *transcript) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *transcript) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
