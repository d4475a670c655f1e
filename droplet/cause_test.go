package droplet

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/store"
)

func TestCauseOf(t *testing.T) {
	for name, c := range map[string]struct{ printed, want string }{
		"nothing": {"", ""},
		"go": {
			"# shop\n./main.go:6:2: undefined: foo\n./main.go:7:1: syntax error: unexpected }\n",
			"./main.go:6:2: undefined: foo (and 1 more error)",
		},
		"go module": {
			"main.go:3:8: no required module provides package example.com/x; to add it:\n\tgo get example.com/x\n",
			"main.go:3:8: no required module provides package example.com/x; to add it: go get example.com/x",
		},
		"go.mod": {"go: errors parsing go.mod:\n/tmp/app/go.mod:3: unknown directive: x\n", "go.mod:3: unknown directive: x"},
		"npm": {
			"npm error code E404\nnpm error 404 Not Found - GET https://me:hush@registry.npmjs.org/nonesuch - Not found\nnpm error 404\n" +
				"npm error A complete log of this run can be found in: /tmp/cache/npm/_logs/x-debug-0.log\n",
			"npm: 404 Not Found - GET https://xxxxx@registry.npmjs.org/nonesuch - Not found",
		},
		"old npm": {
			"npm WARN old lockfile\nnpm ERR! code ENOTFOUND\nnpm ERR! syscall getaddrinfo\nnpm ERR! errno ENOTFOUND\nnpm ERR! network request to https://registry.npmjs.org/x failed\n",
			"npm: network request to https://registry.npmjs.org/x failed",
		},
		"package.json": {
			"node:internal/modules/cjs/loader:1\n  throw err;\n  ^\n\nSyntaxError: /tmp/app/package.json: Unexpected end of JSON input\n    at parse (<anonymous>)\n\nNode.js v20.20.2\n",
			"SyntaxError: package.json: Unexpected end of JSON input",
		},
		"pip": {
			"\x1b[31mERROR: Could not find a version that satisfies the requirement nonesuch (from versions: none)\x1b[0m\n" +
				"\x1b[31mERROR: No matching distribution found for nonesuch\x1b[0m\n[notice] A new release of pip is available: 23.2 -> 24.0\n",
			"No matching distribution found for nonesuch",
		},
		"pip build": {
			"  error: subprocess-exited-with-error\n  × python setup.py egg_info did not run successfully.\n  │ exit code: 1\n  ╰─> [1 lines of output]\n" +
				"      ModuleNotFoundError: No module named 'numpy'\n      [end of output]\n  note: This error originates from a subprocess, and is likely not a problem with pip.\nerror: metadata-generation-failed\n",
			"ModuleNotFoundError: No module named 'numpy'",
		},
		"bundler":  {"Could not find gem 'nonesuch' in rubygems repository https://rubygems.org/ or installed locally.\n", "Could not find gem 'nonesuch' in rubygems repository https://rubygems.org/ or installed locally."},
		"wrapped":  {"Could not reach host index.rubygems.org. Check your network connection and try\nagain.\n", "Could not reach host index.rubygems.org. Check your network connection and try again."},
		"Gemfile":  {"\n[!] There was an error parsing `Gemfile`: x\n          ^\n #  -----\n #  source\n", "There was an error parsing `Gemfile`: x"},
		"composer": {"Your requirements could not be resolved.\n  Problem 1\n    - Root composer.json requires a/b, it could not be found.\n\nRead <https://getcomposer.org>\n", "- Root composer.json requires a/b, it could not be found."},
		"progress": {"10%\r50%\rdownload failed\n", "download failed"},
		"long":     {strings.Repeat("x", 1000), strings.Repeat("x", maxCause) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := causeOf(strings.Split(c.printed, "\n")); got != c.want {
				t.Errorf("cause %q, want %q", got, c.want)
			}
		})
	}
}

// For any output of a tool, the cause is one short line without control characters.
func FuzzCauseOf(f *testing.F) {
	f.Add("npm ERR! x\nerror: y")
	f.Add("main.go:1:1: to add it:\n\x1b[0mgo get")
	f.Add("a\r\xff//u:p@h")
	f.Fuzz(func(t *testing.T, printed string) {
		got := causeOf(strings.Split(printed, "\n"))
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > maxCause+1 || strings.ContainsFunc(got, unicode.IsControl) {
			t.Errorf("cause %q", got)
		}
	})
}

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
