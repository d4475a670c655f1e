package cause

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestOf(t *testing.T) {
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
			if got := Of(strings.Split(c.printed, "\n")); got != c.want {
				t.Errorf("cause %q, want %q", got, c.want)
			}
		})
	}
}

// For any output of a tool, the cause is one short line without control characters.
func FuzzOf(f *testing.F) {
	f.Add("npm ERR! x\nerror: y")
	f.Add("main.go:1:1: to add it:\n\x1b[0mgo get")
	f.Add("a\r\xff//u:p@h")
	f.Fuzz(func(t *testing.T, printed string) {
		got := Of(strings.Split(printed, "\n"))
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > maxCause+1 || strings.ContainsFunc(got, unicode.IsControl) {
			t.Errorf("cause %q", got)
		}
	})
}
