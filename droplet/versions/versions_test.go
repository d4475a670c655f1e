package versions

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// appWith returns an app with these files. Names of variables start with $.
func appWith(files map[string]string) App {
	dir := fstest.MapFS{}
	for name, text := range files {
		if name[0] != '$' {
			dir[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	return App{Files: dir, Env: func(name string) string { return files["$"+name] }}
}

// The ranges of each language have the meaning that its own tools give them.
func TestRanges(t *testing.T) {
	for _, c := range []struct {
		name  string
		parse func(string) (accepter, error)
		text  string
		yes   string // versions in the range
		no    string // versions outside
	}{
		{"npm", npmRange, ">=18 <21", "18.0.0 20.9.1", "17.9.0 21.0.0"},
		{"npm", npmRange, ">= 18", "18.0.0 24.1.0", "17.9.0"},
		{"npm", npmRange, "18.x", "18.20.4", "19.0.0 17.0.0"},
		{"npm", npmRange, "18", "18.20.4", "19.0.0"},
		{"npm", npmRange, "~2.7", "2.7.0 2.7.9", "2.8.0 2.6.9"},
		{"npm", npmRange, "^20", "20.0.0 20.99.1", "21.0.0 19.9.9"},
		{"npm", npmRange, "^18.17.0 || >=20", "18.20.4 22.0.0", "18.16.0 19.0.0"},
		{"npm", npmRange, "16 - 18", "16.0.0 18.20.4", "15.9.9 19.0.0"},
		{"npm", npmRange, ">18", "19.0.0", "18.20.4"},
		{"npm", npmRange, "*", "1.0.0", ""},
		{"npm", npmRange, "v18.20.4", "18.20.4", "18.20.5"},
		{"nvm", nvmVersion, "v18", "18.20.4", "20.0.0"},
		{"nvm", nvmVersion, "lts/hydrogen", "18.20.4", "20.0.0"},
		{"nvm", nvmVersion, "lts/*", "20.1.0", "21.0.0"},
		{"nvm", nvmVersion, "node", "1.0.0", ""},
		{"gem", gem, "3.1", "3.1.0", "3.1.2 3.2.0"},
		{"gem", gem, "~> 3.1", "3.1.0 3.9.0", "4.0.0 3.0.9"},
		{"gem", gem, "~> 3.1.2", "3.1.2 3.1.9", "3.2.0 3.1.1"},
		{"gem", gem, "~>3", "3.0.0 3.9.9", "4.0.0 2.9.9"},
		{"gem", gem, ">= 3.0; < 3.3", "3.0.0 3.2.9", "3.3.0 2.9.9"},
		{"gem", gem, "!= 3.1.2", "3.1.3", "3.1.2"},
		{"gem", gem, "> 3.1", "3.1.2", "3.1.0"},
		{"ruby", rubyVersion, "ruby-3.1.2", "3.1.2", "3.1.3"},
		{"ruby", rubyVersion, "3.1.2-p20", "3.1.2", "3.1.3"},
		{"ruby", rubyVersion, "3.1", "3.1.2", "3.2.0"},
		{"python", pythonVersion, "python-3.11.x", "3.11.2", "3.12.0"},
		{"python", pythonVersion, "python-3.11.4", "3.11.4", "3.11.2"},
		{"python", pythonVersion, "3.11", "3.11.2", "3.1.1"},
		{"go", goVersion, "go1.21", "1.21.5", "1.22.0"},
		{"go", goVersion, "go1.x", "1.26.6", "2.0.0"},
		{"go", goVersion, "latest", "1.26.6", ""},
		{"go.mod", atLeastGo, "1.21", "1.21.0 1.26.6", "1.20.9"},
		{"go.mod", atLeastGo, "1.22rc1", "1.22.0", "1.21.9"},
		{"java", javaVersion, "17.+", "17.0.12", "21.0.1"},
		{"java", javaVersion, "1.8.0_+", "8.0.402", "11.0.1"},
		{"java", javaVersion, "11.0.3_7", "11.0.3", "11.0.4"},
		{"java", javaVersion, "openjdk-17", "17.0.1", "18.0.1"},
		{"java", javaVersion, "+", "1.0.0", ""},
		{"composer", composerRange, "^8.1", "8.1.0 8.9.9", "9.0.0 8.0.9"},
		{"composer", composerRange, "~8.1", "8.1.0 8.9.9", "9.0.0 8.0.9"},
		{"composer", composerRange, "~8.1.2", "8.1.2 8.1.9", "8.2.0 8.1.1"},
		{"composer", composerRange, ">=7.4,<8.3", "7.4.0 8.2.9", "8.3.0 7.3.9"},
		{"composer", composerRange, ">= 7.4 < 8.3", "7.4.0 8.2.9", "8.3.0 7.3.9"},
		{"composer", composerRange, "^7.4|^8.0", "7.4.1 8.2.0", "7.3.0 9.0.0"},
		{"composer", composerRange, "^7.4 || 8.2.*", "7.4.1 8.2.9", "8.1.0 8.3.0"},
		{"composer", composerRange, "7.4 - 8.2", "7.4.0 8.2.29", "8.3.0 7.3.0"},
		{"composer", composerRange, "^0.3", "0.3.1", "0.4.0"},
		{"composer", composerRange, "8.1", "8.1.0", "8.1.2"},
		{"composer", composerRange, "*", "8.1.0", ""},
		{"composer", composerRange, ">=8.1@stable", "8.1.0", "8.0.0"},
	} {
		accepts, err := c.parse(c.text)
		if err != nil {
			t.Errorf("%s %s: %v", c.name, c.text, err)
			continue
		}
		for want, list := range map[bool]string{true: c.yes, false: c.no} {
			for text := range strings.FieldsSeq(list) {
				if v, err := Parse(text); err != nil || accepts(v) != want {
					t.Errorf("%s %s accepts %s: %t, %v, want %t", c.name, c.text, text, !want, err, want)
				}
			}
		}
	}
}

// gem parses requirements of a gem, separated by semicolons.
func gem(text string) (accepter, error) { return all(strings.Split(text, ";")) }

// Text that is no version is an error, never a range that accepts everything.
func TestBadRanges(t *testing.T) {
	long := strings.Repeat("1 || ", 200) + "1"
	for name, parse := range map[string]func(string) (accepter, error){
		"npm": npmRange, "nvm": nvmVersion, "gem": gem, "ruby": rubyVersion, "python": pythonVersion, "go": goVersion,
		"go.mod": atLeastGo, "java": javaVersion, "composer": composerRange,
	} {
		for _, text := range []string{"", "newest", "3..1", ">> 3.1", "=>", "99999999999999999999999", "\x00", long} {
			if accepts, err := parse(text); err == nil && !(name == "npm" && text == "") {
				t.Errorf("%s: %.40q is accepted: %v", name, text, accepts != nil)
			}
		}
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"v18.20.4": "18.20.4", "go1.26.6": "1.26.6", "3.1.2p20": "3.1.2", "17.0.12+7-Debian": "17.0.12", "21": "21.0.0",
		"1.8.0_402": "8.0.402", "1.8.0_05": "8.0.5", "8.2.29-1~deb12u1": "8.2.29", "3.14.0rc1\n": "3.14.0",
	} {
		if v, err := Parse(text); err != nil || v.String() != want {
			t.Errorf("%s: %v, %v, want %s", text, v, err, want)
		}
	}
	for _, text := range []string{"", "devel go1.27-abc", "x"} {
		if v, err := Parse(text); err == nil {
			t.Errorf("%q is version %s", text, v)
		}
	}
}

// A hint that Cloud Foundry uses refuses the app with the file, its line and what to
// do. The others warn.
func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		found    Found
		files    map[string]string
		refused  string
		warnings []string
		notes    []string
	}{
		"no hint": {found: Found{"ruby", "3.1.2", "host"}, files: map[string]string{"Gemfile": "gem 'x'\n"}},
		"Gemfile": {
			found:   Found{"ruby", "3.1.2", "host"},
			files:   map[string]string{"Gemfile": "source 'https://rubygems.org'\n\nruby '~> 3.3.0' # new\n"},
			refused: `Gemfile line 3 asks for Ruby ~> 3.3.0, but this machine has 3.1.2. Install that version, change the version to "~> 3.1.0", or use another stack or an image`,
		},
		"Gemfile with two bounds": {
			found: Found{"ruby", "3.1.2", "host"}, files: map[string]string{"Gemfile": "ruby \">= 3.0\", '< 3.3'\n"},
			notes: []string{"Ruby 3.1.2 satisfies >= 3.0, < 3.3 (Gemfile line 1)"},
		},
		"Gemfile that names a file": {
			found: Found{"ruby", "3.1.2", "old"}, files: map[string]string{"Gemfile": "ruby file: '.ruby-version'\n", ".ruby-version": "3.3.0\n"},
			refused: ".ruby-version line 1 asks for Ruby 3.3.0, but stack old has 3.1.2. Use a stack that has it, change the version, or push an image",
		},
		"Gemfile that computes": {
			found: Found{"ruby", "3.1.2", "host"}, files: map[string]string{"Gemfile": "ruby ENV['R'] || '3.3'\n"},
			warnings: []string{`Cannot compare the Ruby version in Gemfile line 1: dew cannot compute "ENV['R'] || '3.3'"; it reads text such as "~> 3.1"`},
		},
		"JRuby": {
			found: Found{"ruby", "3.1.2", "host"}, files: map[string]string{"Gemfile": "ruby '3.1.2', engine: 'jruby', engine_version: '9.4'\n"},
			warnings: []string{"Cannot compare the Ruby version in Gemfile line 1: it asks for the engine jruby, which dew does not check"},
		},
		"only .ruby-version": {
			found: Found{"ruby", "3.1.2", "host"}, files: map[string]string{".ruby-version": "ruby-3.3.0\n"},
			warnings: []string{".ruby-version line 1 asks for Ruby 3.3.0, but this machine has 3.1.2"},
		},
		"engines": {
			found: Found{"node", "v18.20.4", "host"}, files: map[string]string{"package.json": "{\n  \"name\": \"x\",\n  \"engines\": {\"npm\": \"1\",\n    \"node\": \">=20\"}\n}", ".nvmrc": "16"},
			refused:  "package.json line 4 (engines.node) asks for Node.js >=20, but this machine has 18.20.4. Install that version, change the version to 18.20.x, or use another stack or an image",
			warnings: []string{".nvmrc line 1 asks for Node.js 16, but this machine has 18.20.4"},
		},
		"nvmrc": {
			found: Found{"node", "v18.20.4", "host"}, files: map[string]string{"package.json": "{}", ".nvmrc": "# ours\n\nv16.2.0\n"},
			refused: ".nvmrc line 3 asks for Node.js v16.2.0, but this machine has 18.20.4. Install that version, change the version to 18.20, or use another stack or an image",
		},
		"engines that are no range": {
			found: Found{"node", "v18.20.4", "host"}, files: map[string]string{"package.json": `{"engines": {"node": "the newest"}}`},
			warnings: []string{`Cannot compare the Node.js version in package.json line 1 (engines.node): "the newest" is not a version or a range`},
		},
		"engines that are a number": {
			found: Found{"node", "v18.20.4", "host"}, files: map[string]string{"package.json": "{\"engines\":\n{\"node\": 18}}"},
			warnings: []string{"Cannot read the Node.js version in package.json line 2 (engines.node): the value must be text in quotes"},
		},
		"engines that are a list": {found: Found{"node", "v18.20.4", "host"}, files: map[string]string{"package.json": `{"engines": ["node >= 20"]}`}},
		"no JSON": {
			found: Found{"node", "v18.20.4", "host"}, files: map[string]string{"package.json": `{"engines": `},
			warnings: []string{"Cannot read the Node.js version in package.json: the file is not JSON"},
		},
		"runtime.txt": {
			found: Found{"python", "3.11.2", "host"}, files: map[string]string{"runtime.txt": "python-3.12.x\n", ".python-version": "3.11.2\n"},
			refused: "runtime.txt line 1 asks for Python 3.12.x, but this machine has 3.11.2. Install that version, change the version to python-3.11.x, or use another stack or an image",
			notes:   []string{"Python 3.11.2 satisfies 3.11.2 (.python-version line 1)"},
		},
		"empty runtime.txt": {
			found: Found{"python", "3.11.2", "host"}, files: map[string]string{"runtime.txt": "\n"},
			warnings: []string{"Cannot read the Python version in runtime.txt: the file is empty"},
		},
		"python of the system": {found: Found{"python", "3.11.2", "host"}, files: map[string]string{".python-version": "system\n"}},
		"go.mod": {
			found: Found{"go", "go1.24.1", "host"}, files: map[string]string{"go.mod": "module x\n\ngo 1.99.3\n\ntoolchain go1.99.4\n"},
			refused:  "go.mod line 3 asks for Go 1.99.3, but this machine has 1.24.1. Install that version, change the version to 1.24, or use another stack or an image",
			warnings: []string{"go.mod line 5 (toolchain) asks for Go 1.99.4, but this machine has 1.24.1"},
		},
		"go.mod and an old Go": {
			found: Found{"go", "go1.19.8", "host"}, files: map[string]string{"go.mod": "module x\n\ngo 1.20\n"},
			warnings: []string{"go.mod line 3 asks for Go 1.20, but this machine has 1.19.8"},
		},
		"GOVERSION": {
			found: Found{"go", "go1.24.1", "host"}, files: map[string]string{"$GOVERSION": "go1.23", "go.mod": "module x\ngo 1.20\n"},
			refused: "Variable GOVERSION asks for Go 1.23, but this machine has 1.24.1. Install that version, change the version to go1.24, or use another stack or an image",
			notes:   []string{"Go 1.24.1 satisfies 1.20 (go.mod line 2)"},
		},
		"a Go of one's own": {
			found: Found{"go", "devel go1.27-abcdef", "host"}, files: map[string]string{"go.mod": "module x\ngo 1.20\n"},
			warnings: []string{`Cannot compare the Go version that go.mod line 2 asks for: the stack has version "devel go1.27-abcdef"`},
		},
		"JRE": {
			found: Found{"java", "17.0.12", "host"}, files: map[string]string{"$" + openJDK: "{jre: {version: 21.+}}", "system.properties": "a=b\njava.runtime.version=11\n"},
			refused:  "Variable JBP_CONFIG_OPEN_JDK_JRE asks for Java 21.+, but this machine has 17.0.12. Install that version, change the version to 17.0.+, or use another stack or an image",
			warnings: []string{"system.properties line 2 asks for Java 11, but this machine has 17.0.12"},
		},
		"JRE in a list": {
			found: Found{"java", "17.0.12", "host"}, files: map[string]string{"$" + openJDK: "[memory_calculator: {stack_threads: 25}, jre: {version: 17.+}]"},
			notes: []string{"Java 17.0.12 satisfies 17.+ (Variable JBP_CONFIG_OPEN_JDK_JRE)"},
		},
		"JRE without a version": {found: Found{"java", "17.0.12", "host"}, files: map[string]string{"$" + openJDK: "{memory_calculator: {stack_threads: 25}}"}},
		"Tomcat": {
			found: Found{"tomcat", "10.1.60", "host"}, files: map[string]string{"$JBP_CONFIG_TOMCAT": "{tomcat: {version: 9.0.+}}"},
			refused: "Variable JBP_CONFIG_TOMCAT asks for Tomcat 9.0.+, but this machine has 10.1.60. Install that version, change the version to 10.1.+, or use another stack or an image",
		},
		"JRE as text": {
			found: Found{"java", "17.0.12", "host"}, files: map[string]string{"$" + openJDK: "17"},
			warnings: []string{"Cannot read the Java version in Variable JBP_CONFIG_OPEN_JDK_JRE: the value must be a mapping such as {jre: {version: 17.+}}"},
		},
		"nginx": {
			found: Found{"nginx", "1.22.1", "host"}, files: map[string]string{"buildpack.yml": "---\nnginx:\n  version: 1.27.x\n"},
			refused: "buildpack.yml line 3 (nginx.version) asks for nginx 1.27.x, but this machine has 1.22.1. Install that version, change the version to 1.22.x, or use another stack or an image",
		},
		"nginx line":            {found: Found{"nginx", "1.22.1", "host"}, files: map[string]string{"buildpack.yml": "nginx: {version: stable}\n"}},
		"buildpack.yml as text": {found: Found{"nginx", "1.22.1", "host"}, files: map[string]string{"buildpack.yml": "nginx\n"}},
		"buildpack.yml, no YAML": {
			found: Found{"nginx", "1.22.1", "host"}, files: map[string]string{"buildpack.yml": "nginx: ["},
			warnings: []string{"Cannot read the nginx version in buildpack.yml: the file is not YAML"},
		},
		"composer.json": {
			found: Found{"php", "8.2.29", "host"}, files: map[string]string{"composer.json": "{\"require\": {\n\"php\": \"^8.3\"}}"},
			warnings: []string{"composer.json line 2 (require.php) asks for PHP ^8.3, but this machine has 8.2.29"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			hints, err := Read(c.found.Language, appWith(c.files))
			if err != nil {
				t.Fatal(err)
			}
			r := Check(c.found, hints)
			if r.Refused != c.refused || !slices.Equal(r.Warnings, c.warnings) || !slices.Equal(r.Notes, c.notes) {
				t.Errorf("refused  %s\nwarnings %q\nnotes    %q\nwant     %s\n         %q\n         %q", r.Refused, r.Warnings, r.Notes, c.refused, c.warnings, c.notes)
			}
		})
	}
	if _, err := Read("cobol", appWith(nil)); err == nil {
		t.Error("an unknown language is accepted")
	}
}

// A file that is too large, or a folder in its place, is a warning.
func TestUnreadableFiles(t *testing.T) {
	files := map[string]string{"runtime.txt": strings.Repeat("#", maxFile+1), ".python-version/x": ""}
	hints, err := Read("python", appWith(files))
	if err != nil {
		t.Fatal(err)
	}
	r := Check(Found{"python", "3.11.2", "host"}, hints)
	if r.Refused != "" || len(r.Warnings) != 2 || !strings.HasSuffix(r.Warnings[0], "the file is larger than 1 MiB") {
		t.Errorf("%+v", r)
	}
}

// No file of an app makes the comparison fail, and a message is one printable line.
func FuzzCheck(f *testing.F) {
	for _, text := range []string{
		"ruby '~> 3.1'", "ruby \"3.1\", \">= 2\"", "{\"engines\": {\"node\": \">=18 <21\"}}", "{\"require\":{\"php\":\"^8 || 7.4 - 8.1\"}}",
		"python-3.11.x", "module x\ngo 1.21\ntoolchain go1.22\n", "{jre: {version: 17.+}}", "java.runtime.version=17", "lts/*", "v18", "ruby-3.1.2-p20",
	} {
		f.Add(text)
	}
	names := []string{"Gemfile", ".ruby-version", "package.json", ".nvmrc", ".node-version", "runtime.txt", ".python-version", "go.mod", "system.properties", "composer.json", "buildpack.yml", "$GOVERSION", "$" + openJDK, "$JBP_CONFIG_TOMCAT"}
	f.Fuzz(func(t *testing.T, text string) {
		files := map[string]string{}
		for _, name := range names {
			files[name] = text
		}
		for language := range maps.Keys(languages) {
			hints, err := Read(language, appWith(files))
			if err != nil {
				t.Fatal(err)
			}
			r := Check(Found{language, "3.1.2", "host"}, hints)
			if got := len(r.Notes) + len(r.Warnings); r.Refused == "" && got != len(hints) || r.Refused != "" && got != len(hints)-1 {
				t.Errorf("%d hints, but %+v", len(hints), r)
			}
			for _, line := range append(append(r.Notes, r.Warnings...), r.Refused) {
				if strings.ContainsAny(line, "\n\r\x00\x1b") || len([]rune(line)) > 400 {
					t.Errorf("message %q", line)
				}
			}
		}
	})
}
