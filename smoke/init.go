package smoke

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/dewrun/dew/app"
)

// Init writes a first smoke.yml for the manifest of a folder. It does not replace an
// existing one unless force is set.
func Init(dir string, force bool) (file string, err error) {
	file = filepath.Join(dir, File)
	if _, err := os.Stat(file); err == nil && !force {
		return file, &Failure{Status: StatusUsage, Err: fmt.Errorf("%s already exists", file), Todo: "to replace it, use --force"}
	}
	name := "manifest.yml"
	text, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		name = "manifest.yaml"
		text, err = os.ReadFile(filepath.Join(dir, name))
	}
	if err != nil {
		return file, &Failure{Status: StatusUsage, Err: fmt.Errorf("cannot read the manifest of the folder: %w", err), Todo: "pass a folder that has a manifest.yml"}
	}
	m, _, err := app.ParseManifest(text, nil)
	if err != nil {
		return file, &Failure{Status: StatusUsage, Err: fmt.Errorf("%s: %w", filepath.Join(dir, name), err)}
	}
	return file, replace(file, []byte(firstSpec(name, m)))
}

// replace writes a file atomically.
func replace(file string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), ".smoke-*")
	if err != nil {
		return err
	}
	_, werr := f.Write(text)
	if err := errors.Join(werr, f.Chmod(0o644), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), file)
}

const specHead = `# Checks of dew smoke for this folder. dew smoke pushes the manifest into a new org, waits
# until every process and sidecar runs, and then runs these checks in order.
#
# build: |                  # sh, runs before the push; uncomment it if the app needs it
#   make
`

const specTail = `# More checks, to copy:
# - log: {contains: ready, source: APP/PROC/WEB}
# - ssh: {command: pwd, contains: /home/vcap/app}
# - http: {method: POST, path: /users, body: ada, status: 201, json: {"$.name": ada}}
# - run: dew app "$APP"     # sh; must exit with status 0
`

// firstSpec returns a first smoke.yml: a request to every app with a route, and a kill
// of every sidecar.
func firstSpec(manifest string, m app.Manifest) string {
	var b strings.Builder
	b.WriteString(specHead)
	if manifest != "manifest.yml" {
		fmt.Fprintf(&b, "manifests: [%s]\n", manifest)
	}
	if services := servicesOf(m); len(services) > 0 {
		b.WriteString("services:                   # created before the push, deleted at the end\n")
		for _, s := range services {
			fmt.Fprintf(&b, "- {name: %s, offering: OFFERING, plan: PLAN}   # dew marketplace lists them\n", jsonText(s))
		}
	}
	b.WriteString("checks:\n")
	none := true
	for i := range m.Applications {
		a := &m.Applications[i]
		checks := checksOf(a, len(m.Applications) > 1)
		none = none && checks == ""
		b.WriteString(checks)
	}
	if none {
		b.WriteString("- run: dew app \"$APP\"       # no route and no sidecar to check: the app runs\n")
	}
	return b.String() + specTail
}

func servicesOf(m app.Manifest) (out []string) {
	seen := map[string]bool{}
	for i := range m.Applications {
		for _, s := range m.Applications[i].Services {
			if !seen[s.Name] {
				seen[s.Name] = true
				out = append(out, s.Name)
			}
		}
	}
	return out
}

func checksOf(a *app.ManifestApp, several bool) string {
	var b strings.Builder
	whose := ""
	if several {
		whose = "  app: " + jsonText(a.Name) + "\n"
	}
	web := a.Web()
	if !a.NoRoute && (web.Instances == nil || *web.Instances > 0) {
		fmt.Fprintf(&b, "- name: %s\n%s  http: GET /               # or another path; it can also check status, body and header\n", jsonText(a.Name+" answers"), whose)
	}
	for _, s := range a.Sidecars {
		for _, process := range s.ProcessTypes {
			source := "APP/PROC/" + strings.ToUpper(process) + "/SIDECAR/" + strings.ToUpper(s.Name)
			fmt.Fprintf(&b, "- name: %s\n%s  kill: {process: %s, sidecar: %s}\n  exit: {description: %s}\n",
				jsonText(fmt.Sprintf("%s restarts when the sidecar %s of %s exits", a.Name, s.Name, process)), whose,
				jsonText(process), jsonText(s.Name), jsonText(source+": Exited with status 137"))
		}
	}
	return b.String()
}
