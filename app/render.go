package app

import (
	"fmt"
	"maps"
	"slices"

	"github.com/goccy/go-yaml"
)

// YAML writes the manifest as it is sent to the daemon: applications alone, with
// nothing left to be replaced.
func (m Manifest) YAML() ([]byte, error) {
	apps := []yaml.MapSlice{}
	for i := range m.Applications {
		apps = append(apps, m.Applications[i].rendered())
	}
	// JSON is YAML in which no text can be taken for anything else.
	b, err := yaml.MarshalWithOptions(yaml.MapSlice{{Key: "applications", Value: apps}}, yaml.JSON())
	if err != nil {
		return nil, fmt.Errorf("cannot write manifest: %w", err)
	}
	return b, nil
}

func (m *ManifestApp) rendered() yaml.MapSlice {
	out := yaml.MapSlice{{Key: "name", Value: m.Name}}
	add := func(key string, value any) { out = append(out, yaml.MapItem{Key: key, Value: value}) }
	if m.Path != "" {
		add("path", m.Path)
	}
	if m.Stack != nil {
		add("stack", *m.Stack)
	}
	if m.Buildpacks != nil {
		add("buildpacks", m.Buildpacks)
	}
	if m.Lifecycle != "" {
		add("lifecycle", m.Lifecycle)
	}
	if m.Docker != nil {
		image := yaml.MapSlice{{Key: "image", Value: m.Docker.Image}}
		if m.Docker.Username != "" {
			image = append(image, yaml.MapItem{Key: "username", Value: m.Docker.Username})
		}
		add("docker", image)
	}
	out = append(out, m.ManifestProcess.Rendered()...)
	if len(m.Env) > 0 {
		add("env", renderedTexts(m.Env))
	}
	if notes := m.Metadata.rendered(); len(notes) > 0 {
		add("metadata", notes)
	}
	addList(&out, "processes", m.Processes, (*ManifestProcess).Rendered)
	addList(&out, "sidecars", m.Sidecars, (*ManifestSidecar).Rendered)
	addList(&out, "routes", m.Routes, (*ManifestRoute).Rendered)
	addList(&out, "services", m.Services, (*ManifestService).rendered)
	for _, b := range []struct {
		key string
		on  bool
	}{
		{"no-route", m.NoRoute}, {"random-route", m.RandomRoute}, {"default-route", m.DefaultRoute},
	} {
		if b.on {
			add(b.key, true)
		}
	}
	return out
}

func (c MetadataChange) rendered() (out yaml.MapSlice) {
	for _, part := range []struct {
		key   string
		texts map[string]*string
	}{{"labels", c.Labels}, {"annotations", c.Annotations}} {
		if len(part.texts) > 0 {
			out = append(out, yaml.MapItem{Key: part.key, Value: renderedTexts(part.texts)})
		}
	}
	return out
}

func renderedTexts(texts map[string]*string) yaml.MapSlice {
	out := yaml.MapSlice{}
	for _, k := range slices.Sorted(maps.Keys(texts)) {
		out = append(out, yaml.MapItem{Key: k, Value: texts[k]})
	}
	return out
}

func addList[T any](out *yaml.MapSlice, key string, list []T, render func(v *T) yaml.MapSlice) {
	if len(list) == 0 {
		return
	}
	var items []yaml.MapSlice
	for i := range list {
		items = append(items, render(&list[i]))
	}
	*out = append(*out, yaml.MapItem{Key: key, Value: items})
}

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
