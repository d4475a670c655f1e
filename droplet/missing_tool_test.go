package droplet

import (
	"testing"
	"time"

	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/store"
)

// The cause of a failed build names the missing program and how to install it.
func TestMissingTool(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		const told = "Node.js\nnodejs\n"
		if got, want := y.builds.missingTool(told, stack.Stack{Name: stack.HostName}), "Node.js is not installed on this machine. Install it: apt install nodejs"; got != want {
			t.Errorf("said %q, want %q", got, want)
		}
		kept, err := stack.Open(y.db, stack.Options{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		y.builds.o.StackStore = kept
		stacks := store.In(y.db, "stacks", store.Index("name", func(k stack.Record) string { return k.Name }))
		for _, k := range []stack.Record{{GUID: "1", Name: "jammy", Kind: stack.KindDebian, Source: "curl,git,ruby"}, {GUID: "2", Name: "alpine", Kind: stack.KindTarball}} {
			if err := stacks.Put(k.GUID, k); err != nil {
				t.Fatal(err)
			}
		}
		for name, want := range map[string]string{
			"jammy":  "Node.js is not installed in stack jammy. Build a stack that has it: dew stack build debian --include ruby,nodejs --name jammy-nodejs, then set `stack: jammy-nodejs`",
			"alpine": "Node.js is not installed in stack alpine. Choose a stack that has it. To list the stacks, run: dew stacks",
		} {
			if got := y.builds.missingTool(told, stack.Stack{Name: name}); got != want {
				t.Errorf("said %q, want %q", got, want)
			}
		}
	})
}

// The cause has precedence over the exit status of the buildpack's script. The order
// is: a missing program, the buildpack's own reason, the error that a tool printed.
func TestStageFailsWithCause(t *testing.T) {
	const compile = "BuildpackCompileFailed - App staging failed in the buildpack compile phase: "
	for name, c := range map[string]struct {
		told    map[string]string
		printed []string
		want    string
	}{
		"missing": {map[string]string{"missing": "Go\ngolang-go\n", "reason": "no"}, []string{"no"}, "Go is not installed on this machine. Install it: apt install golang-go"},
		"reason":  {map[string]string{"reason": "The app is\nstrange"}, []string{"no"}, "The app is strange"},
		"printed": {nil, []string{"./main.go:1:1: expected 'package'"}, "./main.go:1:1: expected 'package'"},
		"silent":  {nil, nil, "bin/finalize exited with status 1"},
	} {
		t.Run(name, func(t *testing.T) {
			testWithBuilds(t, func(t *testing.T, y *testBuilds) {
				f := &fakeBuilder{code: codeNoCompile, files: map[string]string{"/tmp/result/failed": "bin/finalize exited with status 1\n"}}
				for file, text := range c.told {
					f.files["/tmp/result/"+file] = text
				}
				y.withBuilder(f)
				began := time.Now()
				y.builds.o.Printed = func(app string, since time.Time) []string {
					if app != "a" || since.Before(began) {
						t.Errorf("asked for the lines of %s since %s", app, since)
					}
					return c.printed
				}
				y.run()
				b := y.build(BuildRequest{Package: y.push("a", member{name: "x", text: "x"}).GUID, Buildpacks: []string{"go_buildpack"}})
				if b.State != BuildFailed || b.Error != compile+c.want {
					t.Errorf("build = %s %q, want %q", b.State, b.Error, compile+c.want)
				}
			})
		})
	}
}
