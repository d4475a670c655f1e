package containerd

import (
	"path/filepath"
	"testing"

	"github.com/dewrun/dew/runtime"
)

func TestKnownContainers(t *testing.T) {
	t.Parallel()
	e := &Engine{cfg: Config{Run: "/run/dew"}}
	a, b := &container{spec: runtime.Spec{Instance: someInstance}}, &container{spec: runtime.Spec{Instance: runtime.NewInstanceID()}}
	e.known.add(a)
	e.known.add(b)
	if !e.known.has(a.spec.Instance) || len(e.known.all()) != 2 {
		t.Errorf("living = %v, want both", e.known.all())
	}
	if got := e.known.remove(a.spec.Instance); got != a {
		t.Errorf("forgot %v, want %v", got, a)
	}
	if e.known.remove(a.spec.Instance) != nil || e.known.has(a.spec.Instance) || !e.known.has(b.spec.Instance) {
		t.Error("a removed container is known, or the other one is not")
	}
	if got, want := e.instanceDir(someInstance), filepath.Join("/run/dew/instances", string(someInstance)); got != want {
		t.Errorf("folder = %q, want %q", got, want)
	}
}
