package app

import (
	"fmt"
	"maps"
	"slices"

	"github.com/goccy/go-yaml"

	"github.com/dewrun/dew/yamlfile"
)

// YAML writes the manifest as it is sent to the daemon: only applications, with all
// variables replaced.
func (m Manifest) YAML() ([]byte, error) {
	// JSON is YAML in which every text is quoted.
	b, err := yaml.MarshalWithOptions(m.rendered(), yaml.JSON())
	if err != nil {
		return nil, fmt.Errorf("cannot write manifest: %w", err)
	}
	return b, nil
}

func (m Manifest) rendered() yaml.MapSlice {
	apps := []yaml.MapSlice{}
	for i := range m.Applications {
		apps = append(apps, m.Applications[i].rendered())
	}
	return yaml.MapSlice{{Key: "applications", Value: apps}}
}

func (m *ManifestApp) rendered() yaml.MapSlice {
	var out yaml.MapSlice
	for _, k := range appKeys {
		if k.name == firstAfterProcess {
			out = append(out, m.ManifestProcess.Rendered()...)
		}
		if v := k.write(m); v != nil {
			out = append(out, yaml.MapItem{Key: k.name, Value: v})
		}
	}
	return out
}

func (c MetadataChange) rendered() any {
	var out yaml.MapSlice
	for _, part := range []struct {
		key   string
		texts map[string]*string
	}{{"labels", c.Labels}, {"annotations", c.Annotations}} {
		if v := renderedTexts(part.texts); v != nil {
			out = append(out, yaml.MapItem{Key: part.key, Value: v})
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func renderedList[T any](list []T, render func(v *T) yaml.MapSlice) any {
	if len(list) == 0 {
		return nil
	}
	var items []yaml.MapSlice
	for i := range list {
		items = append(items, render(&list[i]))
	}
	return items
}

func renderedTexts(texts map[string]*string) any {
	if len(texts) == 0 {
		return nil
	}
	out := yaml.MapSlice{}
	for _, k := range slices.Sorted(maps.Keys(texts)) {
		out = append(out, yaml.MapItem{Key: k, Value: texts[k]})
	}
	return out
}

// Rendered returns the process as a map of YAML, in the order of its keys.
func (m *ManifestProcess) Rendered() yaml.MapSlice {
	var out yaml.MapSlice
	if m.Type != "" {
		out = append(out, yaml.MapItem{Key: "type", Value: m.Type})
	}
	p := processOf(m)
	for _, k := range ProcessKeys {
		if k.Given(m) {
			out = append(out, yaml.MapItem{Key: k.Name, Value: k.Value(p)})
		}
	}
	return out
}

// Rendered returns the sidecar as a map of YAML, in the order of its keys.
func (m *ManifestSidecar) Rendered() yaml.MapSlice {
	out := yaml.MapSlice{
		{Key: "name", Value: m.Name},
		{Key: "process_types", Value: m.ProcessTypes},
		{Key: "command", Value: m.Command},
	}
	if m.MemoryMB != nil {
		out = append(out, yaml.MapItem{Key: "memory", Value: FormatMB(*m.MemoryMB)})
	}
	return out
}

// Rendered returns the route as a map of YAML, in the order of its keys.
func (m *ManifestRoute) Rendered() yaml.MapSlice {
	out := yaml.MapSlice{{Key: "route", Value: m.Route}}
	if m.Protocol != "" {
		out = append(out, yaml.MapItem{Key: "protocol", Value: m.Protocol})
	}
	if m.Options != nil {
		options := yaml.MapSlice{}
		for _, k := range slices.Sorted(maps.Keys(m.Options)) {
			options = append(options, yaml.MapItem{Key: k, Value: m.Options[k]})
		}
		out = append(out, yaml.MapItem{Key: "options", Value: options})
	}
	return out
}

// Described returns the manifest of an app without its routes.
func (d Desired) Described() ManifestApp {
	var m ManifestApp
	for _, k := range appKeys {
		if k.take != nil {
			k.take(d.App, &m)
		}
	}
	for _, p := range d.Processes {
		one := ManifestProcess{Type: p.Type}
		for _, k := range ProcessKeys {
			k.setManifest(p, &one)
		}
		m.Processes = append(m.Processes, one)
	}
	for _, s := range d.Sidecars {
		if s.Origin != OriginUser {
			continue // staging adds it again
		}
		one := ManifestSidecar{Name: s.Name, Command: s.Command, ProcessTypes: slices.Clone(s.ProcessTypes)}
		if s.MemoryMB != 0 {
			one.MemoryMB = &s.MemoryMB
		}
		m.Sidecars = append(m.Sidecars, one)
	}
	return m
}

func pointers(texts map[string]string) map[string]*string {
	if len(texts) == 0 {
		return nil
	}
	out := make(map[string]*string, len(texts))
	for k, v := range texts {
		out[k] = &v
	}
	return out
}

// Text writes the manifest for people: YAML in lines, with quotes around texts that YAML
// would read as another type.
func (m Manifest) Text() ([]byte, error) {
	b, err := yamlfile.Text(m.rendered())
	if err != nil {
		return b, fmt.Errorf("cannot write manifest: %w", err)
	}
	return b, nil
}

func (m *ManifestService) rendered() yaml.MapSlice {
	out := yaml.MapSlice{{Key: "name", Value: m.Name}}
	if m.BindingName != "" {
		out = append(out, yaml.MapItem{Key: "binding_name", Value: m.BindingName})
	}
	if m.Parameters != nil {
		out = append(out, yaml.MapItem{Key: "parameters", Value: yamlfile.JSON(m.Parameters)})
	}
	return out
}
