package nginxconf

import (
	"bytes"
	"errors"
	"fmt"
	htmltemplate "html/template"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	texttemplate "text/template"

	"github.com/dewrun/dew/yamlfile"
)

// Main is the name of the configuration at the top of an app.
const Main = "nginx.conf"

// maxConfig is far more than a configuration needs.
const maxConfig = 4 << 20

// Options are the values for templates.
type Options struct {
	Port    string
	Env     func(name string) string
	Modules string // folder with the modules of the stack's nginx
	Home    string // folder of the app when nginx runs
	Resolv  string // path of resolv.conf
}

// Error is a fault in a configuration that the user can fix.
type Error struct {
	File   string // in the app
	Line   int    // 0: unknown
	Reason string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Reason
	}
	return fmt.Sprintf("%s line %d: %s", e.File, e.Line, e.Reason)
}

// Files are configurations by their path in the app, slash-separated.
type Files map[string]string

// Read reads nginx.conf and the files that it includes by name, as Cloud Foundry does.
// The error is an *Error if the app is at fault.
func Read(app fs.FS) (Files, error) {
	text, err := readFile(app, Main)
	if err != nil {
		return nil, err
	}
	out := Files{Main: text}
	for _, name := range included(text) {
		if out[name], err = readFile(app, name); err != nil {
			if bad := (*Error)(nil); errors.As(err, &bad) {
				return nil, &Error{Main, lineOf(text, name), fmt.Sprintf("cannot include %s: %s", name, bad.Reason)}
			}
			return nil, err
		}
	}
	return out, nil
}

// include matches the files that Cloud Foundry's buildpack renders.
var include = regexp.MustCompile(`include\s+([-.\w\/]+\.conf);`)

// included returns the files in the app that a configuration includes by name.
func included(text string) []string {
	var out []string
	for _, m := range include.FindAllStringSubmatch(text, -1) {
		name := path.Clean(m[1])
		if !path.IsAbs(m[1]) && fs.ValidPath(name) && name != Main && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

func readFile(app fs.FS, name string) (string, error) {
	fi, err := fs.Stat(app, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", &Error{File: name, Reason: "the file does not exist"}
	case err != nil:
		return "", &Error{File: name, Reason: err.Error()}
	case !fi.Mode().IsRegular():
		return "", &Error{File: name, Reason: "it is not a file"}
	case fi.Size() > maxConfig:
		return "", &Error{File: name, Reason: "the file is larger than 4 MiB"}
	}
	raw, err := fs.ReadFile(app, name)
	return string(raw), err
}

// lineOf returns the line of the first occurrence of a part of text.
func lineOf(text, part string) int {
	before, _, _ := strings.Cut(text, part)
	return 1 + strings.Count(before, "\n")
}

// Render fills in the templates of the files. local has the modules of the app, and
// plain the variables that are not escaped.
func Render(in Files, o Options, app fs.FS, plain []string) (Files, error) {
	out := Files{}
	for name, text := range in {
		rendered, err := render(text, o, app, plain)
		if err != nil {
			return nil, templateError(name, err)
		}
		out[name] = rendered
	}
	return out, nil
}

// render runs the two steps of Cloud Foundry's buildpack: plain variables first, then
// everything else with the escaping of HTML.
func render(text string, o Options, app fs.FS, plain []string) (string, error) {
	first := texttemplate.FuncMap{
		"env": func(name string) string {
			if slices.Contains(plain, name) {
				return o.Env(name)
			}
			return fmt.Sprintf("{{env %q}}", name)
		},
		"port":        func() string { return "{{port}}" },
		"module":      func(name string) string { return fmt.Sprintf("{{module %q}}", name) },
		"nameservers": func() string { return "{{nameservers}}" },
	}
	t, err := texttemplate.New("").Funcs(first).Parse(text)
	if err != nil {
		return "", err
	}
	var once bytes.Buffer
	if err := t.Execute(&once, nil); err != nil {
		return "", err
	}
	second := htmltemplate.FuncMap{
		"env":         o.Env,
		"port":        func() string { return o.Port },
		"module":      func(name string) string { return "load_module " + o.module(app, name) + ";" },
		"nameservers": o.nameServers,
	}
	h, err := htmltemplate.New("").Funcs(second).Parse(once.String())
	if err != nil {
		return "", err
	}
	var twice bytes.Buffer
	if err := h.Execute(&twice, nil); err != nil {
		return "", err
	}
	return twice.String(), nil
}

// module returns the path of a module: in the folder modules of the app, otherwise of
// the stack.
func (o Options) module(app fs.FS, name string) string {
	if _, err := fs.Stat(app, path.Join("modules", name+".so")); err == nil {
		return filepath.Join(o.Home, "modules", name+".so")
	}
	return filepath.Join(o.Modules, name+".so")
}

// nameServers returns the DNS servers. Without any, the result is that of Cloud Foundry.
func (o Options) nameServers() string {
	var servers []string
	raw, err := os.ReadFile(o.Resolv)
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); err == nil && len(f) > 1 && f[0] == "nameserver" {
			servers = append(servers, f[1])
		}
	}
	if len(servers) == 0 {
		return "169.254.0.2"
	}
	return strings.Join(servers, " ")
}

// templatePlace matches the place in an error of a template, and its reason.
var templatePlace = regexp.MustCompile(`^template: :(\d+)(?::\d+)?: (.*)$`)

// templateError names the file and line of a template that cannot be filled in.
func templateError(file string, err error) error {
	text := strings.TrimPrefix(err.Error(), "html/")
	e := &Error{File: file, Reason: "cannot fill in the template: " + text}
	if m := templatePlace.FindStringSubmatch(text); m != nil {
		_, _ = fmt.Sscan(m[1], &e.Line) // only digits
		e.Reason = "cannot fill in the template: " + m[2] + ". dew has {{port}}, {{env \"NAME\"}}, {{module \"name\"}} and {{nameservers}}"
	}
	return e
}

// PlainVariables returns nginx.plaintext_env_vars of buildpack.yml, if the app has it.
func PlainVariables(app fs.FS) ([]string, error) {
	const name = "buildpack.yml"
	if _, err := fs.Stat(app, name); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	text, err := readFile(app, name)
	if err != nil {
		return nil, err
	}
	v, err := yamlfile.Values([]byte(text))
	if err != nil {
		return nil, &Error{File: name, Reason: err.Error()}
	}
	top, _ := v.(map[string]any)
	settings, _ := top["nginx"].(map[string]any)
	list, ok := settings["plaintext_env_vars"].([]any)
	if settings["plaintext_env_vars"] != nil && !ok {
		return nil, &Error{File: name, Reason: "nginx.plaintext_env_vars must be a list of names"}
	}
	var out []string
	for _, variable := range list {
		out = append(out, fmt.Sprint(variable))
	}
	return out, nil
}
