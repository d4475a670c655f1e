package dependencies

import (
	"maps"
	"strings"
	"testing"
	"testing/fstest"
)

const (
	manifest = `{"dependencies":{"x":"1"},"scripts":{"start":"node ."}}`
	locked   = `{"lockfileVersion":3,"packages":{"":{},"node_modules/x":{"resolved":"https://example.com/x.tgz","integrity":"sha512-x"}}}`
)

// lockWith returns a lock file with one package.
func lockWith(entry string) string {
	return `{"lockfileVersion":3,"packages":{"":{},"node_modules/x":` + entry + `}}`
}

// key returns the key of an app with these files.
func key(t *testing.T, a App, files map[string]string) string {
	t.Helper()
	all := fstest.MapFS{}
	for name, text := range files {
		all[name] = &fstest.MapFile{Data: []byte(text)}
	}
	a.Files = all
	if a.Context == nil {
		a.Context = strings.NewReader("stack")
	}
	k, err := Key(a)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestCertain(t *testing.T) {
	node := map[string]string{"package.json": manifest, "package-lock.json": locked}
	with := func(more ...string) map[string]string {
		files := maps.Clone(node)
		for i := 0; i < len(more); i += 2 {
			files[more[i]] = more[i+1]
		}
		return files
	}
	script := func(name string) map[string]string {
		return with("package.json", `{"scripts":{"`+name+`":"x"}}`)
	}
	python := func(text string) map[string]string { return map[string]string{"requirements.txt": text} }
	for name, c := range map[string]struct {
		language string
		files    map[string]string
		want     bool
	}{
		"node":                  {"node", node, true},
		"shrinkwrap":            {"node", map[string]string{"package.json": manifest, "npm-shrinkwrap.json": locked}, true},
		"no lock file":          {"node", map[string]string{"package.json": manifest}, false},
		"only yarn.lock":        {"node", map[string]string{"package.json": manifest, "yarn.lock": "x"}, false},
		"no package.json":       {"node", map[string]string{"package-lock.json": locked}, false},
		"invalid package.json":  {"node", with("package.json", "{"), false},
		"invalid lock file":     {"node", with("package-lock.json", "{"), false},
		"second invalid":        {"node", with("npm-shrinkwrap.json", "{"), false},
		"old lock file":         {"node", with("package-lock.json", `{"lockfileVersion":1,"dependencies":{"x":{}}}`), false},
		"workspaces":            {"node", with("package.json", `{"workspaces":["a"]}`), false},
		"preinstall":            {"node", script("preinstall"), false},
		"install":               {"node", script("install"), false},
		"postinstall":           {"node", script("postinstall"), false},
		"prepare":               {"node", script("prepare"), false},
		"dependencies":          {"node", script("dependencies"), false},
		"other script":          {"node", script("test"), true},
		"binding.gyp":           {"node", with("binding.gyp", "{}"), false},
		"link":                  {"node", with("package-lock.json", lockWith(`{"resolved":"lib","link":true}`)), false},
		"git":                   {"node", with("package-lock.json", lockWith(`{"resolved":"git+ssh://git@example.com/x.git#1"}`)), false},
		"install script":        {"node", with("package-lock.json", lockWith(`{"integrity":"x","hasInstallScript":true}`)), false},
		"install script in dev": {"node", with("package-lock.json", lockWith(`{"dev":true,"hasInstallScript":true}`)), true},
		"bundled":               {"node", with("package-lock.json", lockWith(`{"inBundle":true}`)), true},
		"file":                  {"node", with("package-lock.json", lockWith(`{"resolved":"file:vendor/x.tgz","integrity":"x"}`), "vendor/x.tgz", "x"), true},
		"missing file":          {"node", with("package-lock.json", lockWith(`{"resolved":"file:vendor/x.tgz","integrity":"x"}`)), false},
		"file elsewhere":        {"node", with("package-lock.json", lockWith(`{"resolved":"file:../x.tgz","integrity":"x"}`)), false},
		"python":                {"python", python("# comment\n\nflask==3.0.0\r\nGunicorn[gevent, x] == 21.2  # comment\n"), true},
		"hashes":                {"python", python("flask==3.0.0 \\\n    --hash=sha256:00ff \\\n    --hash=sha256:11ee\n"), true},
		"marker":                {"python", python(`x==1.0; python_version < "3.12" and sys_platform == "linux"`), true},
		"marker and hash":       {"python", python(`x==1.0; python_version < "3.12" --hash=sha256:00`), true},
		"kernel":                {"python", python(`x==1.0; platform_release >= "6"`), false},
		"no requirements.txt":   {"python", nil, false},
		"not pinned":            {"python", python("a==1\nflask\n"), false},
		"range":                 {"python", python("flask>=3.0\n"), false},
		"two conditions":        {"python", python("flask==3.0,!=3.1\n"), false},
		"wildcard":              {"python", python("flask==3.*\n"), false},
		"other file":            {"python", python("a==1\n-r more.txt\n"), false},
		"constraints":           {"python", python("a==1\n-c more.txt\n"), false},
		"editable":              {"python", python("-e .\n"), false},
		"path":                  {"python", python("./lib\n"), false},
		"folder":                {"python", python(".\n"), false},
		"wheel":                 {"python", python("x-1.0-py3-none-any.whl\n"), false},
		"URL":                   {"python", python("https://example.com/x.tgz\n"), false},
		"direct reference":      {"python", python("x @ file:///x.tgz\n"), false},
		"option":                {"python", python("--find-links=wheels\nx==1\n"), false},
		"option behind":         {"python", python("x==1 --config-settings=a=b\n"), false},
		"ruby":                  {"ruby", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := key(t, App{Language: c.language, Version: "1"}, c.files) != ""; got != c.want {
				t.Errorf("certain = %v, want %v", got, c.want)
			}
		})
	}
	if k, err := Key(App{Language: "cobol", Context: strings.NewReader("")}); k != "" || err == nil {
		t.Errorf("unknown language: %q, %v", k, err)
	}
}

// A key changes with everything that can change the dependencies, and with nothing else.
func TestKeyChanges(t *testing.T) {
	lock := lockWith(`{"resolved":"file:x.tgz","integrity":"x"}`)
	node := map[string]string{"package.json": manifest, "package-lock.json": lock, "x.tgz": "1", "server.js": "1"}
	python := map[string]string{"requirements.txt": "x==1\n", "vendor/x.whl": "1", "app.py": "1"}
	env := []string{"A=1", "CF_INSTANCE_IP=1", "VCAP_APPLICATION=1", "BUNDLE_X=1"}
	for name, c := range map[string]struct {
		language, version, context string
		env                        []string
		files                      map[string]string
		file, text                 string
		same                       bool
	}{
		"nothing":              {language: "node", files: node, same: true},
		"version":              {language: "node", files: node, version: "2"},
		"stack":                {language: "node", files: node, context: "other"},
		"variable":             {language: "node", files: node, env: []string{"A=2"}},
		"address":              {language: "node", files: node, env: []string{"A=1", "BUNDLE_X=1", "CF_INSTANCE_IP=2", "VCAP_APPLICATION=2", "PWD=2"}, same: true},
		"code":                 {language: "node", files: node, file: "server.js", text: "2", same: true},
		"package.json":         {language: "node", files: node, file: "package.json", text: manifest + " "},
		"lock file":            {language: "node", files: node, file: "package-lock.json", text: lock + " "},
		"second lock file":     {language: "node", files: node, file: "npm-shrinkwrap.json", text: lock},
		".npmrc":               {language: "node", files: node, file: ".npmrc", text: "x"},
		"package in the app":   {language: "node", files: node, file: "x.tgz", text: "2"},
		"python code":          {language: "python", files: python, file: "app.py", text: "2", same: true},
		"requirements.txt":     {language: "python", files: python, file: "requirements.txt", text: "x==2\n"},
		"vendored wheel":       {language: "python", files: python, file: "vendor/x.whl", text: "2"},
		"new wheel":            {language: "python", files: python, file: "vendor/y.whl", text: "1"},
		"setup.cfg":            {language: "python", files: python, file: "setup.cfg", text: "x"},
		"python variable":      {language: "python", files: python, env: []string{"PIP_INDEX_URL=x"}},
		"variable of ruby":     {language: "ruby", env: []string{"A=2", "BUNDLE_X=1"}, same: true},
		"variable of bundler":  {language: "ruby", env: []string{"BUNDLE_X=2"}},
		"Gemfile, for bundler": {language: "ruby", file: "Gemfile", text: "gem 'x'", same: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := key(t, App{Language: c.language, Version: "1", Env: env}, c.files)
			after := App{Language: c.language, Version: "1", Env: env}
			if c.version != "" {
				after.Version = c.version
			}
			if c.env != nil {
				after.Env = c.env
			}
			if c.context != "" {
				after.Context = strings.NewReader(c.context)
			}
			files := map[string]string{}
			maps.Copy(files, c.files)
			if c.file != "" {
				files[c.file] = c.text
			}
			if got := key(t, after, files); before == "" || got == "" || (got == before) != c.same {
				t.Errorf("keys %q and %q, want the same = %v", before, got, c.same)
			}
		})
	}
}
