package versions

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// readNode reads engines.node of package.json, otherwise .nvmrc. Cloud Foundry ignores
// .nvmrc if there is engines.node, and .node-version.
func readNode(a App) []Hint {
	var out []Hint
	if h, ok := jsonHint(a, "package.json", npmRange, "engines", "node"); ok {
		h.Must, h.Suggest = true, "%s.x"
		out = append(out, h)
	}
	for _, h := range lineFile(a, ".nvmrc", nvmVersion) {
		h.Must, h.Suggest = len(out) == 0, "%s"
		out = append(out, h)
	}
	return append(out, lineFile(a, ".node-version", nvmVersion)...)
}

// jsonHint reads a hint from a JSON file. It returns false if the file has none.
func jsonHint(a App, file string, parse func(string) (accepter, error), path ...string) (Hint, bool) {
	text, ok, err := a.read(file)
	if !ok {
		return Hint{}, false
	}
	key := strings.Join(path, ".")
	if err != nil {
		return unreadable(file, err), true
	}
	value, line, err := jsonText(text, path...)
	switch {
	case errors.Is(err, errNoKey):
		return Hint{}, false
	case err != nil && line == 0:
		return unreadable(file, err), true
	case err != nil:
		return unreadable(at(file, line)+" ("+key+")", err), true
	case strings.TrimSpace(value) == "":
		return Hint{}, false
	}
	h := Hint{Where: at(file, line) + " (" + key + ")", Text: value}
	h.accepts, h.err = parse(value)
	return h, true
}

// ltsNames are the long-term releases of Node.js by name.
var ltsNames = map[string]uint64{
	"argon": 4, "boron": 6, "carbon": 8, "dubnium": 10, "erbium": 12, "fermium": 14,
	"gallium": 16, "hydrogen": 18, "iron": 20, "jod": 22, "krypton": 24,
}

// nvmVersion parses a version in the form of nvm.
func nvmVersion(text string) (accepter, error) {
	name, lts := strings.CutPrefix(strings.ToLower(text), "lts/")
	major := ltsNames[name]
	switch {
	case lts && name == "*": // even numbers become long-term releases
		return func(v *semver.Version) bool { return v.Major()%2 == 0 }, nil
	case lts && major > 0:
		return func(v *semver.Version) bool { return v.Major() == major }, nil
	case lts:
		return nil, fmt.Errorf("dew does not know the release %q", short(text))
	case text == "node", text == "stable":
		return func(*semver.Version) bool { return true }, nil
	}
	return prefix(text)
}

// readPHP reads require.php of composer.json. Cloud Foundry only warns if there is no
// such version.
func readPHP(a App) []Hint {
	if h, ok := jsonHint(a, "composer.json", composerRange, "require", "php"); ok {
		return []Hint{h}
	}
	return nil
}

// readPython reads runtime.txt. Cloud Foundry ignores .python-version.
func readPython(a App) []Hint {
	out := lineFile(a, "runtime.txt", pythonVersion)
	for i := range out {
		out[i].Must, out[i].Suggest = true, "python-%s.x"
	}
	text, ok, err := a.read(".python-version")
	if line, _ := firstLine(text); !ok || err == nil && line == "system" {
		return out
	}
	return append(out, lineFile(a, ".python-version", pythonVersion)...)
}

func pythonVersion(text string) (accepter, error) {
	return prefix(strings.TrimPrefix(strings.TrimPrefix(text, "python"), "-"))
}

// readRuby reads the Gemfile. Cloud Foundry ignores .ruby-version unless the Gemfile
// names it.
func readRuby(a App) []Hint {
	out, file := gemfileHints(a)
	for _, h := range lineFile(a, ".ruby-version", rubyVersion) {
		h.Must = file == ".ruby-version"
		out = append(out, h)
	}
	if file == ".tool-versions" {
		out = append(out, Hint{Where: file, err: errors.New("dew does not read this file")})
	}
	return out
}

// rubyVersion parses a version as version managers write it, such as ruby-3.1.2 or
// 3.1.2-p20.
func rubyVersion(text string) (accepter, error) {
	text = strings.TrimPrefix(text, "ruby-")
	if version, level, ok := strings.Cut(text, "-p"); ok && strings.Trim(level, "0123456789") == "" {
		text = version
	}
	return prefix(text)
}

var (
	// rubyLine matches the line of a Gemfile with the version of Ruby.
	rubyLine = regexp.MustCompile(`^\s*ruby(?:\s+|\s*\(\s*)(\S.*)$`)
	// rubyString matches one argument that is text.
	rubyString = regexp.MustCompile(`^\s*(?:"([^"#\\]*)"|'([^'\\]*)')\s*`)
	// rubyFile matches an argument that names a file with the version.
	rubyFile = regexp.MustCompile(`^(?:file:|:file\s*=>|File\.read\()\s*["']([^"']*)["']`)
	// rubyEngine matches arguments with another engine than that of Ruby itself.
	rubyEngine = regexp.MustCompile(`engine:\s*["']([^"']*)["']|:engine\s*=>\s*["']([^"']*)["']`)
)

// gemfileHints returns the hint of the Gemfile, or the file that the Gemfile names.
func gemfileHints(a App) (out []Hint, file string) {
	text, ok, err := a.read("Gemfile")
	if !ok {
		return nil, ""
	}
	if err != nil {
		return []Hint{unreadable("Gemfile", err)}, ""
	}
	number := 0
	for line := range strings.Lines(text) {
		number++
		m := rubyLine.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		if m == nil {
			continue
		}
		if f := rubyFile.FindStringSubmatch(m[1]); f != nil {
			return nil, f[1]
		}
		return []Hint{gemfileHint(at("Gemfile", number), m[1])}, ""
	}
	return nil, ""
}

// gemfileHint parses the arguments of ruby in a Gemfile.
func gemfileHint(where, args string) Hint {
	h := Hint{Where: where, Text: strings.TrimSpace(args), Must: true, Suggest: `"~> %s.0"`}
	if len(args) > maxRange {
		h.err = errLongRange
		return h
	}
	if m := rubyEngine.FindStringSubmatch(args); m != nil && m[1]+m[2] != "ruby" {
		h.err = fmt.Errorf("it asks for the engine %s, which dew does not check", m[1]+m[2])
		return h
	}
	args = strings.NewReplacer("[", " ", "]", " ").Replace(args)
	var parts []string
	for {
		m := rubyString.FindStringSubmatch(args)
		if m == nil {
			break
		}
		parts = append(parts, m[1]+m[2])
		args = strings.TrimPrefix(args[len(m[0]):], ",")
	}
	rest := strings.TrimSpace(args)
	computed := rest != "" && rest[0] != ')' && rest[0] != '#' && !strings.HasPrefix(rest, "engine") && !strings.HasPrefix(rest, ":engine") &&
		!strings.HasPrefix(rest, "patchlevel") && !strings.HasPrefix(rest, ":patchlevel")
	if len(parts) == 0 || computed {
		h.err = fmt.Errorf("dew cannot compute %q; it reads text such as \"~> 3.1\"", short(h.Text))
		return h
	}
	h.Text = strings.Join(parts, ", ")
	h.accepts, h.err = all(parts)
	return h
}
