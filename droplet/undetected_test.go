package droplet

import (
	"strings"
	"testing"
)

// The error of a build that no buildpack detects says what the files lack.
func TestUndetected(t *testing.T) {
	const as = "To run the files as they are, set `buildpacks: [binary_buildpack]`"
	for name, c := range map[string]struct {
		files []member
		want  string
	}{
		"python":  {[]member{{name: "util.py"}, {name: "app.py"}}, "Found app.py, but no requirements.txt. Add requirements.txt (it can be empty) and a Procfile with the line `web: python3 app.py`"},
		"go":      {[]member{{name: "main_test.go"}, {name: "main.go"}, {name: "tool.py"}}, "Found main.go, but no go.mod. Run: go mod init app"},
		"ruby":    {[]member{{name: "hello.rb"}}, "Found hello.rb, but no Gemfile. Add a Gemfile (it can be empty) and a Procfile with the line `web: ruby hello.rb`"},
		"node":    {[]member{{name: "a.js"}, {name: "server.js"}}, "Found server.js, but no package.json. Add package.json with the content `{\"scripts\": {\"start\": \"node server.js\"}}`"},
		"page":    {[]member{{name: "index.html"}, {name: "gen.py"}}, "python3 gen.py`. To serve the files as they are, add an empty Staticfile"},
		"java":    {[]member{{name: "App.java"}}, "Found App.java, but no jar. Build one first (javac -d classes *.java && jar -c -f app.jar -e App -C classes .), then push it: dew push NAME -p app.jar"},
		"maven":   {[]member{{name: "pom.xml"}, {name: "src/App.java"}}, "Found pom.xml, but no jar. Build it first (mvn package), then push the jar: dew push NAME -p target/NAME.jar"},
		"jar":     {[]member{{name: "lib.jar"}}, "Found lib.jar, but its manifest has no Main-Class."},
		"program": {[]member{{name: "server", text: "\x7fELF...", mode: 0o755}}, "Found the program server. " + as + " and `command: ./server`"},
		"script":  {[]member{{name: "Procfile", text: "web: ./x"}, {name: "x", text: "#!/bin/sh", mode: 0o755}}, "Found a Procfile, but no file that shows the programming language. " + as},
		"image":   {[]member{{name: "Dockerfile"}}, "Found a Dockerfile. dew runs images, but does not build them"},
		"folder":  {[]member{{name: "README.md"}, {name: "shop/package.json"}}, "Found shop/package.json. To push that folder, add -p shop to the command or set `path: shop`"},
		"hidden":  {[]member{{name: ".app.py"}, {name: "notes.txt"}}, "Found no go.mod, package.json, requirements.txt, Gemfile, Staticfile, index.html, nginx.conf, PHP file or jar. " + as},
	} {
		t.Run(name, func(t *testing.T) {
			testWithBuilds(t, func(t *testing.T, y *testBuilds) {
				y.withBuilder(&fakeBuilder{code: codeNoApp})
				y.run()
				b := y.build(BuildRequest{Package: y.push("a", c.files...).GUID})
				const words = "NoAppDetectedError - An app was not successfully detected by any available buildpack: "
				if hint, ok := strings.CutPrefix(b.Error, words); !ok || !strings.Contains(hint, c.want) {
					t.Errorf("build = %s %q, want %q", b.State, b.Error, words+c.want)
				}
			})
		})
	}
}
