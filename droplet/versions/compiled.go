package versions

import (
	"errors"
	"fmt"
	goversion "go/version"
	"regexp"
	"strings"

	"github.com/Masterminds/semver/v3"
	"golang.org/x/mod/modfile"

	"github.com/dewrun/dew/yamlfile"
)

// firstStrictGo is the first Go whose go line in go.mod must be satisfied. Older ones
// compile the module anyway, and say so if that fails.
var firstStrictGo = semver.New(1, 21, 0, "", "")

// readGo reads the variable GOVERSION and go.mod.
func readGo(a App) []Hint {
	var out []Hint
	if text := strings.TrimSpace(a.Env("GOVERSION")); text != "" {
		h := Hint{Where: "Variable GOVERSION", Text: text, Must: true, Suggest: "go%s"}
		h.accepts, h.err = goVersion(text)
		out = append(out, h)
	}
	text, ok, err := a.read("go.mod")
	if !ok {
		return out
	}
	if err != nil {
		return append(out, unreadable("go.mod", err))
	}
	mod, err := modfile.ParseLax("go.mod", []byte(text), nil)
	if err != nil {
		return append(out, unreadable("go.mod", errors.New("the file cannot be parsed")))
	}
	if mod.Go != nil {
		h := Hint{Where: at("go.mod", mod.Go.Syntax.Start.Line), Text: mod.Go.Version, Must: true, Suggest: "%s", strictFrom: firstStrictGo}
		h.accepts, h.err = atLeastGo(mod.Go.Version)
		out = append(out, h)
	}
	for _, stmt := range mod.Syntax.Stmt { // ParseLax does not read toolchain lines
		line, ok := stmt.(*modfile.Line)
		if !ok || len(line.Token) != 2 || line.Token[0] != "toolchain" || line.Token[1] == "default" {
			continue
		}
		h := Hint{Where: at("go.mod", line.Start.Line) + " (toolchain)", Text: line.Token[1]}
		h.accepts, h.err = atLeastGo(strings.TrimPrefix(line.Token[1], "go"))
		out = append(out, h)
	}
	return out
}

func goVersion(text string) (accepter, error) {
	if text == "latest" {
		return func(*semver.Version) bool { return true }, nil
	}
	return prefix(strings.TrimPrefix(text, "go"))
}

// atLeastGo accepts the version and newer ones. A release candidate counts as its
// release.
func atLeastGo(text string) (accepter, error) {
	if !goversion.IsValid("go" + text) {
		return nil, fmt.Errorf("%q is not a version of Go", short(text))
	}
	want, err := Parse(text)
	if err != nil {
		return nil, err
	}
	return func(found *semver.Version) bool { return found.Compare(want) >= 0 }, nil
}

// openJDK is the variable that configures the JRE on Cloud Foundry.
const openJDK = "JBP_CONFIG_OPEN_JDK_JRE"

// readJava reads the variable for the JRE. Cloud Foundry ignores system.properties.
func readJava(a App) []Hint {
	out := configured(a, openJDK, "jre", javaVersion)
	text, ok, err := a.read("system.properties")
	if !ok {
		return out
	}
	if err != nil {
		return append(out, unreadable("system.properties", err))
	}
	number := 0
	for line := range strings.Lines(text) {
		number++
		if m := runtimeVersion.FindStringSubmatch(strings.TrimRight(line, "\r\n")); m != nil {
			h := Hint{Where: at("system.properties", number), Text: m[1]}
			h.accepts, h.err = javaVersion(m[1])
			out = append(out, h)
		}
	}
	return out
}

var (
	runtimeVersion = regexp.MustCompile(`^\s*java\.runtime\.version\s*[=:]\s*(\S+)\s*$`)
	// javaPattern matches a version such as 17.+, 1.8.0_+, 11.0.3_7 or openjdk-17.
	javaPattern = regexp.MustCompile(`^(?:[a-z]+-)?(?:1\.)?(\d+(?:\.(?:\d+|[x*+]))*)(?:[_+](?:\d+|\+))?$`)
)

// readTomcat reads the variable for Tomcat.
func readTomcat(a App) []Hint { return configured(a, "JBP_CONFIG_TOMCAT", "tomcat", prefix) }

// configured reads the version of a component from a variable of the Java buildpack.
func configured(a App, variable, component string, parse func(string) (accepter, error)) []Hint {
	text := strings.TrimSpace(a.Env(variable))
	if text == "" {
		return nil
	}
	version, ok, err := componentVersion(text, component)
	h := Hint{Where: "Variable " + variable, Text: version, Must: true, Suggest: "%s.+", err: err}
	if err == nil && !ok {
		return nil
	}
	if err == nil {
		h.accepts, h.err = parse(version)
	}
	return []Hint{h}
}

// componentVersion finds the version of a component in the value of a variable: a
// mapping, or a list of mappings.
func componentVersion(text, component string) (version string, ok bool, err error) {
	v, err := yamlfile.Values([]byte(text))
	if err != nil {
		return "", false, errors.New("the value is not YAML")
	}
	list, isList := v.([]any)
	if !isList {
		list = []any{v}
	}
	for _, entry := range list {
		m, isMap := entry.(map[string]any)
		if !isMap {
			return "", false, fmt.Errorf("the value must be a mapping such as {%s: {version: 17.+}}", component)
		}
		settings, _ := m[component].(map[string]any)
		if found := settings["version"]; found != nil {
			return fmt.Sprint(found), true, nil
		}
	}
	return "", false, nil
}

// readNginx reads nginx.version of buildpack.yml. The names of version lines accept all
// versions.
func readNginx(a App) []Hint {
	const name = "buildpack.yml"
	text, ok, err := a.read(name)
	if !ok {
		return nil
	}
	if err != nil {
		return []Hint{unreadable(name, err)}
	}
	n, err := yamlfile.Read([]byte(text), maxFile)
	if err != nil {
		return []Hint{unreadable(name, errors.New("the file is not YAML"))}
	}
	settings := n.Get("nginx")
	if settings == nil || settings.Get("version") == nil {
		return nil
	}
	version := settings.Get("version")
	value := fmt.Sprint(version.Plain())
	if value == "mainline" || value == "stable" {
		return nil
	}
	h := Hint{Where: at(name, version.Line) + " (nginx.version)", Text: value, Must: true, Suggest: "%s.x"}
	h.accepts, h.err = npmRange(value)
	return []Hint{h}
}

// javaVersion parses a version of Java. Java 8 is also written 1.8.
func javaVersion(text string) (accepter, error) {
	if text == "+" {
		return func(*semver.Version) bool { return true }, nil
	}
	m := javaPattern.FindStringSubmatch(text)
	if m == nil || len(text) > maxRange {
		return nil, fmt.Errorf("%q is not a version of Java", short(text))
	}
	return prefix(m[1])
}
