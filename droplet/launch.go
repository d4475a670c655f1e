package droplet

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/yamlfile"
)

// UsedBuildpack is a buildpack that was used to create a droplet.
type UsedBuildpack struct {
	Name     string `json:"name"`               // without secrets
	GUID     string `json:"guid,omitempty"`     // in the catalog
	Detected string `json:"detected,omitempty"` // output of its bin/detect
	Called   string `json:"called,omitempty"`   // its own name, as its files have it
	Version  string `json:"version,omitempty"`
	Custom   bool   `json:"custom,omitempty"` // named by URL or folder
}

// describe fills in the results of the buildpacks: the app's commands, its sidecars,
// and the buildpacks themselves. A Procfile has precedence over launch.yml, and
// launch.yml over bin/release.
func describe(t stagedFiles, results map[string]string) error {
	d, used := t.droplet, t.packs
	var err error
	if t.detect {
		if used, err = detectedPack(t.packs, results); err != nil {
			return err
		}
	}
	for i, h := range used {
		d.Buildpacks = append(d.Buildpacks, h.used(i, t.version, results))
		d.Java = d.Java || h.java
		d.Custom = d.Custom || h.custom
	}
	if n := len(d.Buildpacks); n > 0 && t.detect {
		d.Buildpacks[n-1].Detected = firstLine(results["detected"])
	}
	if d.Commands, err = parseRelease(results["release.yml"]); err != nil {
		return err
	}
	for i, h := range used {
		l, err := parseLaunch(results["launch-"+strconv.Itoa(i)+".yml"])
		if err != nil {
			return &StagingError{BuildpackCompileFailed, fmt.Sprintf("launch.yml of buildpack %s: %v", h.name, err)}
		}
		maps.Copy(d.Commands, l.commands)
		d.Sidecars = mergeSidecars(d.Sidecars, l.sidecars)
	}
	if text, ok := results[procfileName]; ok {
		if len(text) > maxProcfile {
			return &ProcfileError{Reason: fmt.Sprintf("must be a regular file of at most %s", archive.Size(maxProcfile))}
		}
		commands, err := parseProcfile([]byte(text))
		if err != nil {
			return err
		}
		maps.Copy(d.Commands, commands)
	}
	return nil
}

// used returns the i-th buildpack of a staging as the droplet names it. Its name and
// version are those in config.yml of its dependencies, or in its file VERSION.
func (h chosen) used(i int, builtIn string, results map[string]string) UsedBuildpack {
	out := UsedBuildpack{Name: h.name, GUID: h.guid, Custom: h.custom}
	var config struct{ Name, Version string }
	if decodeYAML([]byte(results["config-"+strconv.Itoa(i)+".yml"]), &config) == nil {
		out.Called, out.Version = firstLine(config.Name), firstLine(config.Version)
	}
	version := firstLine(results["version-"+strconv.Itoa(i)])
	if h.builtIn {
		version = builtIn
	}
	out.Version = cmp.Or(out.Version, version)
	return out
}

// detectedPack returns the buildpack that detected the app.
func detectedPack(packs []chosen, results map[string]string) ([]chosen, error) {
	n, err := strconv.Atoi(strings.TrimSpace(results["used"]))
	if err != nil || n < 0 || n >= len(packs) {
		return nil, fmt.Errorf("cannot find the buildpack that detected the app: %q", results["used"])
	}
	return packs[n : n+1], nil
}

// maxDetected is far more than any buildpack prints about an app.
const maxDetected = 512

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line[:min(len(line), maxDetected)]
}

// parseRelease parses the output of bin/release.
func parseRelease(text string) (map[string]string, error) {
	var r struct {
		Types map[string]string `json:"default_process_types"`
	}
	if err := decodeYAML([]byte(text), &r); err != nil {
		return nil, &StagingError{BuildpackReleaseFailed, "App staging failed in the buildpack release phase: cannot parse the output of bin/release: " + err.Error()}
	}
	out := map[string]string{}
	for kind, command := range r.Types {
		if !processType.MatchString(kind) {
			return nil, &StagingError{BuildpackReleaseFailed, fmt.Sprintf("App staging failed in the buildpack release phase: %q is not a valid process type", kind)}
		}
		if command = strings.TrimSpace(command); command != "" {
			out[kind] = command
		}
	}
	return out, nil
}

// decodeYAML decodes untrusted YAML into a value with tags for JSON. A few lines of
// such YAML can expand to millions of values or refer to each other.
func decodeYAML(text []byte, into any) error {
	v, err := yamlfile.Values(text)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	err = json.Unmarshal(raw, into)
	if bad, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s has the wrong type %s", bad.Field, bad.Value)
	}
	return err
}

// launched is the content of a launch.yml.
type launched struct {
	commands map[string]string
	sidecars []FoundSidecar
}

// launchFile is the format of a launch.yml.
type launchFile struct {
	Processes []struct {
		Type    string `json:"type"`
		Command string `json:"command"`
		Limits  struct {
			Memory int `json:"memory"` // MB
		} `json:"limits"`
		Platforms struct {
			CloudFoundry struct {
				SidecarFor []string `json:"sidecar_for"`
			} `json:"cloudfoundry"`
		} `json:"platforms"`
	} `json:"processes"`
}

func parseLaunch(text string) (launched, error) {
	out := launched{commands: map[string]string{}}
	var f launchFile
	if err := decodeYAML([]byte(text), &f); err != nil {
		return out, err
	}
	for i, p := range f.Processes {
		where := fmt.Sprintf("processes[%d]", i)
		command := strings.TrimSpace(p.Command)
		switch for_ := p.Platforms.CloudFoundry.SidecarFor; {
		case command == "":
			return out, fmt.Errorf("%s has no command", where)
		case p.Limits.Memory < 0:
			return out, fmt.Errorf("%s.limits.memory must not be negative", where)
		case len(for_) == 0 && !processType.MatchString(p.Type):
			return out, fmt.Errorf("%s.type: %q is not a valid process type", where, p.Type)
		case len(for_) == 0:
			out.commands[p.Type] = command
		case strings.TrimSpace(p.Type) == "":
			return out, fmt.Errorf("%s.type must name the sidecar", where)
		case slices.ContainsFunc(for_, func(s string) bool { return !processType.MatchString(s) }):
			return out, fmt.Errorf("%s.platforms.cloudfoundry.sidecar_for: %q is not a valid process type", where, for_)
		default:
			s := FoundSidecar{Name: p.Type, Command: command, ProcessTypes: for_, MemoryMB: p.Limits.Memory}
			out.sidecars = mergeSidecars(out.sidecars, []FoundSidecar{s})
		}
	}
	return out, nil
}

// mergeSidecars adds the sidecars of a later buildpack. They replace earlier ones with
// the same names.
func mergeSidecars(old, more []FoundSidecar) []FoundSidecar {
	for _, s := range more {
		old = slices.DeleteFunc(old, func(o FoundSidecar) bool { return strings.EqualFold(o.Name, s.Name) })
		old = append(old, s)
	}
	slices.SortFunc(old, func(a, b FoundSidecar) int { return cmp.Compare(a.Name, b.Name) })
	return old
}

// detectedOf returns the detected type of a droplet.
func detectedOf(d Droplet) string {
	if len(d.Buildpacks) == 0 {
		return ""
	}
	last := d.Buildpacks[len(d.Buildpacks)-1]
	return cmp.Or(last.Detected, last.Name)
}

// logCommands reports the process types with commands in a droplet. A droplet without
// commands is not an error, because the app can have its own.
func logCommands(say func(app, line string), app string, commands map[string]string) {
	if len(commands) > 0 {
		say(app, "Process types: "+strings.Join(slices.Sorted(maps.Keys(commands)), ", "))
	}
}
