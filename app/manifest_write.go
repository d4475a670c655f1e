package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// YAML writes the manifest as it is sent to the daemon: only applications, with all
// variables replaced.
func (m Manifest) YAML() ([]byte, error) {
	apps := []yaml.MapSlice{}
	for i := range m.Applications {
		apps = append(apps, m.Applications[i].rendered())
	}
	// JSON is YAML in which every text is quoted.
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
	m := ManifestApp{
		Name: d.App.Name, Env: pointers(d.App.Env),
		Metadata: MetadataChange{Labels: pointers(d.App.Metadata.Labels), Annotations: pointers(d.App.Metadata.Annotations)},
	}
	if len(d.App.Buildpacks) > 0 {
		m.Buildpacks = slices.Clone(d.App.Buildpacks)
	}
	if d.App.Stack != "" {
		m.Stack = &d.App.Stack
	}
	for _, p := range d.Processes {
		one := ManifestProcess{Type: p.Type}
		for _, k := range ProcessKeys {
			k.take(p, &one)
		}
		m.Processes = append(m.Processes, one)
	}
	for _, s := range d.Sidecars {
		if s.Origin != OriginUser {
			continue // staging brings it again
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
	apps := []yaml.MapSlice{}
	for i := range m.Applications {
		apps = append(apps, m.Applications[i].rendered())
	}
	w := textWriter{}
	w.out.WriteString("---\n")
	w.mapping(0, yaml.MapSlice{{Key: "applications", Value: apps}})
	return w.out.Bytes(), w.err
}

// textWriter writes rendered maps line by line.
type textWriter struct {
	out bytes.Buffer
	err error
}

func (w *textWriter) line(indent int, text string) {
	w.out.WriteString(strings.Repeat(" ", indent) + text + "\n")
}

func (w *textWriter) mapping(indent int, items yaml.MapSlice) {
	for _, item := range items {
		key := w.scalar(item.Key) + ":"
		switch v := item.Value.(type) {
		case yaml.MapSlice:
			if len(v) == 0 {
				w.line(indent, key+" {}")
				continue
			}
			w.line(indent, key)
			w.mapping(indent+2, v)
		case []yaml.MapSlice:
			w.line(indent, key)
			for _, entry := range v {
				w.entry(indent, entry)
			}
		case []string:
			w.texts(indent, key, v)
		case inline:
			w.line(indent, key+" "+string(v))
		default:
			w.line(indent, key+" "+w.scalar(v))
		}
	}
}

// entry writes a map that is an entry of a list: its first line has the dash.
func (w *textWriter) entry(indent int, m yaml.MapSlice) {
	from := w.out.Len()
	w.mapping(indent+2, m)
	if w.out.Len() > from {
		w.out.Bytes()[from+indent] = '-'
	}
}

func (w *textWriter) texts(indent int, key string, list []string) {
	if len(list) == 0 {
		w.line(indent, key+" []")
		return
	}
	w.line(indent, key)
	for _, s := range list {
		w.line(indent, "- "+w.scalar(s))
	}
}

// plainText needs no quotes, unless it is a word of YAML.
var (
	plainText = regexp.MustCompile(`^([A-Za-z/][A-Za-z0-9_./-]*|[0-9]+M)$`)
	yamlWord  = regexp.MustCompile(`(?i)^(true|false|yes|no|on|off|y|n|null|nan|inf)$`)
)

func (w *textWriter) scalar(v any) string {
	if p, ok := v.(*string); ok {
		if p == nil {
			return "null"
		}
		v = *p
	}
	s, ok := v.(string)
	if !ok {
		return fmt.Sprint(v) // a number or a truth value
	}
	if plainText.MatchString(s) && !yamlWord.MatchString(s) {
		return s
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil && w.err == nil {
		w.err = fmt.Errorf("cannot write manifest: %w", err)
	}
	return strings.TrimSpace(b.String())
}

// inline is JSON in a manifest, which is valid YAML.
type inline json.RawMessage

// MarshalYAML returns the JSON unchanged.
func (j inline) MarshalYAML() ([]byte, error) { return j, nil }

func (m *ManifestService) rendered() yaml.MapSlice {
	out := yaml.MapSlice{{Key: "name", Value: m.Name}}
	if m.BindingName != "" {
		out = append(out, yaml.MapItem{Key: "binding_name", Value: m.BindingName})
	}
	if m.Parameters != nil {
		out = append(out, yaml.MapItem{Key: "parameters", Value: inline(m.Parameters)})
	}
	return out
}
