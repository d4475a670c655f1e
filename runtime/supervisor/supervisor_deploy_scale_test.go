package supervisor_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

// Scaling during a deployment gives the requested number of instances.
func TestScaleMeanwhile(t *testing.T) {
	t.Parallel()
	for _, instances := range []int{1, 2, 6} {
		for name, tt := range map[string]struct {
			n     app.NewDeployment
			first func(w *world, guid string)
			want  string
		}{
			"rolling": {app.NewDeployment{}, func(*world, string) {}, newCommand},
			"cancel":  {app.NewDeployment{}, func(w *world, guid string) { w.cancel(guid) }, oldCommand},
		} {
			inWorld(t, func(w *world) {
				p := w.shopOf(3)
				hold := w.holdAt(4)
				d := w.deploy(p, newCommand, tt.n)
				w.pass(time.Second)
				tt.first(w, d.GUID)
				w.change(p, func(p *app.Process) { p.Instances = instances })
				w.wantServing(p, min(instances, 3))
				hold()
				w.pass(time.Minute)
				if diff := cmp.Diff(w.ready(p), map[string]int{tt.want: instances}); diff != "" {
					t.Errorf("%s to %d (-got +want):\n%s", name, instances, diff)
				}
			})
		}
		inWorld(t, func(w *world) {
			p := w.shopOf(3)
			w.deploy(p, newCommand, app.NewDeployment{Strategy: app.Canary})
			w.pass(time.Second)
			w.change(p, func(p *app.Process) { p.Instances = instances })
			w.pass(time.Minute)
			w.wantReady(p, map[string]int{oldCommand: instances, newCommand: 1})
		})
	}
}

// The number of instances, the memory and the other settings come with the deployment.
// A cancel restores the old ones.
func TestDeploymentScales(t *testing.T) {
	t.Parallel()
	five, much := 5, 512
	for _, cancelled := range []bool{false, true} {
		inWorld(t, func(w *world) {
			p := w.shopOf(2)
			hold := w.holdAt(3)
			d := w.deploy(p, newCommand, app.NewDeployment{Options: app.DeploymentOptions{WebInstances: &five, MemoryMB: &much}})
			w.pass(time.Second)
			desired, err := w.registry.Process(p)
			w.must(err)
			if desired.Instances != 5 || desired.MemoryMB != 512 {
				t.Errorf("desired = %+v, want 5 of 512M", desired)
			}
			if !cancelled {
				hold()
				w.pass(time.Minute)
				w.wantReady(p, map[string]int{newCommand: 5})
				return
			}
			w.cancel(d.GUID)
			hold()
			w.pass(time.Minute)
			w.wantReady(p, map[string]int{oldCommand: 2})
			if desired, err = w.registry.Process(p); err != nil || desired.Instances != 2 || desired.MemoryMB != 256 {
				t.Errorf("desired = %+v, %v, want 2 of 256M", desired, err)
			}
		})
	}
}

// A worker is unchanged until the web process is deployed. Then it follows.
func TestOthersFollow(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push(oldCommand)
		worker, err := w.registry.PutProcess(app.Process{App: p, Type: "worker", Command: oldCommand, Instances: 1, MemoryMB: 64})
		w.must(err)
		w.state(p, app.Stopped)
		w.state(p, app.Started)
		w.daemon()
		w.pass(time.Second)
		old := w.status(worker.GUID)
		w.change(worker.GUID, func(p *app.Process) { p.Command = newCommand })
		hold := w.holdAt(2)
		w.deploy(p, newCommand, app.NewDeployment{})
		w.pass(time.Second)
		if got := w.status(worker.GUID); got.Instance != old.Instance {
			t.Error("the worker was replaced before the web process was deployed")
		}
		w.fake.OnStart(nil)
		w.endTask(old.Instance)
		w.pass(time.Second)
		w.wantReady(worker.GUID, map[string]int{oldCommand: 1})
		hold()
		w.pass(time.Minute)
		w.wantReady(p, map[string]int{newCommand: 1})
		w.wantReady(worker.GUID, map[string]int{newCommand: 1})
	})
}

func (w *world) endTask(id runtime.InstanceID) {
	w.t.Helper()
	for _, c := range w.fake.Containers() {
		if c.Spec().Instance == id {
			c.End(main, 1)
		}
	}
	synctest.Wait()
}
