package app

import (
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/dewrun/dew/yamlfile"
)

// appKey is a key of an app in a manifest, except the keys of its web process. Reading,
// writing, applying and comparing manifests all use the one table appKeys.
type appKey struct {
	name  string
	read  func(d *decoder, key string, v *yamlfile.Node, m *ManifestApp)
	write func(m *ManifestApp) any // the value in the manifest; nil: the key is not given

	// The key is a value of App if these are set.
	apply func(m *ManifestApp, a *App)
	take  func(a App, m *ManifestApp)        // nil: another key describes it
	same  func(old, a App) bool              // whether two apps have the same value
	diff  func(m *ManifestApp, c *appChange) // nil: Cloud Foundry reports no difference
}

// firstAfterProcess is the key that the keys of the web process are written before.
const firstAfterProcess = "env"

// appKeys is the table of the keys of an app, in the order in which they are written.
var appKeys = []appKey{
	{
		name:  "name",
		read:  func(d *decoder, key string, v *yamlfile.Node, m *ManifestApp) { d.text(key, v, &m.Name) },
		write: func(m *ManifestApp) any { return m.Name },
		apply: func(m *ManifestApp, a *App) { a.Name = m.Name },
		take:  func(a App, m *ManifestApp) { m.Name = a.Name },
		same:  func(old, a App) bool { return old.Name == a.Name },
		diff: func(m *ManifestApp, c *appChange) {
			if c.old.GUID == "" {
				c.note("/name", nil, m.Name)
			}
		},
	},
	{
		name:  "path",
		read:  func(d *decoder, key string, v *yamlfile.Node, m *ManifestApp) { d.text(key, v, &m.Path) },
		write: func(m *ManifestApp) any { return textOrNil(m.Path) },
	},
	{
		name: "stack",
		read: func(d *decoder, key string, v *yamlfile.Node, m *ManifestApp) {
			var s string
			if d.text(key, v, &s) {
				m.Stack = &s
			}
		},
		write: func(m *ManifestApp) any {
			if m.Stack == nil {
				return nil
			}
			return *m.Stack
		},
		apply: func(m *ManifestApp, a *App) {
			if m.Stack != nil {
				a.Stack = *m.Stack
			}
		},
		take: func(a App, m *ManifestApp) {
			if a.Stack != "" {
				m.Stack = &a.Stack
			}
		},
		same: func(old, a App) bool { return old.Stack == a.Stack },
		diff: func(m *ManifestApp, c *appChange) {
			if m.Stack != nil {
				c.note("/stack", textOrNil(c.old.Stack), textOrNil(c.next.Stack))
			}
		},
	},
	{
		name: "buildpacks",
		read: func(d *decoder, key string, v *yamlfile.Node, m *ManifestApp) { m.Buildpacks = d.texts(key, v) },
		write: func(m *ManifestApp) any {
			if m.Buildpacks == nil {
				return nil
			}
			return m.Buildpacks
		},
		apply: func(m *ManifestApp, a *App) {
			if m.Buildpacks != nil {
				a.Buildpacks = slices.Clone(m.Buildpacks)
			}
		},
		take: func(a App, m *ManifestApp) {
			if len(a.Buildpacks) > 0 {
				m.Buildpacks = slices.Clone(a.Buildpacks)
			}
		},
		same: func(old, a App) bool { return slices.Equal(old.Buildpacks, a.Buildpacks) },
		diff: func(m *ManifestApp, c *appChange) {
			if m.Buildpacks != nil {
				c.note("/buildpacks", textsOrNil(c.old.Buildpacks), textsOrNil(c.next.Buildpacks))
			}
		},
	},
	{
		name:  "lifecycle",
		read:  func(d *decoder, key string, v *yamlfile.Node, m *ManifestApp) { d.lifecycle(key, v, &m.Lifecycle) },
		write: func(m *ManifestApp) any { return textOrNil(m.Lifecycle) },
		apply: func(m *ManifestApp, a *App) { a.Lifecycle = m.lifecycleOf(*a) },
		same:  func(old, a App) bool { return old.Lifecycle == a.Lifecycle },
	},
	{
		name:  "docker",
		read:  func(d *decoder, key string, v *yamlfile.Node, m *ManifestApp) { m.Docker = d.docker(key, v) },
		write: func(m *ManifestApp) any { return m.Docker.rendered() },
	},
	{
		name:  firstAfterProcess,
		read:  func(d *decoder, key string, v *yamlfile.Node, m *ManifestApp) { m.Env = d.env(key, v) },
		write: func(m *ManifestApp) any { return renderedTexts(m.Env) },
		apply: func(m *ManifestApp, a *App) { a.Env = MergeTexts(a.Env, m.Env) },
		take:  func(a App, m *ManifestApp) { m.Env = pointers(a.Env) },
		same:  func(old, a App) bool { return maps.Equal(old.Env, a.Env) },
		diff:  func(m *ManifestApp, c *appChange) { c.noteTexts("/env/", m.Env, c.old.Env, c.next.Env) },
	},
	{
		name:  "metadata",
		read:  func(d *decoder, key string, v *yamlfile.Node, m *ManifestApp) { m.Metadata = d.metadata(key, v) },
		write: func(m *ManifestApp) any { return m.Metadata.rendered() },
		apply: func(m *ManifestApp, a *App) { a.Metadata = a.Metadata.Merge(m.Metadata) },
		take: func(a App, m *ManifestApp) {
			m.Metadata = MetadataChange{Labels: pointers(a.Metadata.Labels), Annotations: pointers(a.Metadata.Annotations)}
		},
		same: func(old, a App) bool { return old.Metadata.Equal(a.Metadata) },
		diff: func(m *ManifestApp, c *appChange) {
			c.noteTexts("/metadata/labels/", m.Metadata.Labels, c.old.Metadata.Labels, c.next.Metadata.Labels)
			c.noteTexts("/metadata/annotations/", m.Metadata.Annotations, c.old.Metadata.Annotations, c.next.Metadata.Annotations)
		},
	},
	{
		name:  "processes",
		read:  func(d *decoder, key string, v *yamlfile.Node, m *ManifestApp) { m.Processes = d.processes(key, v) },
		write: func(m *ManifestApp) any { return renderedList(m.Processes, (*ManifestProcess).Rendered) },
	},
	{
		name:  "sidecars",
		read:  func(d *decoder, key string, v *yamlfile.Node, m *ManifestApp) { m.Sidecars = d.sidecars(key, v) },
		write: func(m *ManifestApp) any { return renderedList(m.Sidecars, (*ManifestSidecar).Rendered) },
	},
	{
		name:  "routes",
		read:  func(d *decoder, key string, v *yamlfile.Node, m *ManifestApp) { m.Routes = d.routes(key, v) },
		write: func(m *ManifestApp) any { return renderedList(m.Routes, (*ManifestRoute).Rendered) },
	},
	{
		name:  "services",
		read:  func(d *decoder, key string, v *yamlfile.Node, m *ManifestApp) { m.Services = d.services(key, v) },
		write: func(m *ManifestApp) any { return renderedList(m.Services, (*ManifestService).rendered) },
	},
	featuresKey,
	{
		name:  keyDependsOn,
		read:  func(d *decoder, key string, v *yamlfile.Node, m *ManifestApp) { m.DependsOn = d.dependsOn(key, v) },
		write: func(*ManifestApp) any { return nil }, // dew push orders the apps
	},
	switchKey("no-route", func(m *ManifestApp) *bool { return &m.NoRoute }),
	switchKey("random-route", func(m *ManifestApp) *bool { return &m.RandomRoute }),
	switchKey("default-route", func(m *ManifestApp) *bool { return &m.DefaultRoute }),
}

// switchKey is a key that is true or false.
func switchKey(name string, in func(m *ManifestApp) *bool) appKey {
	return appKey{
		name: name,
		read: func(d *decoder, key string, v *yamlfile.Node, m *ManifestApp) { d.truth(key, v, in(m)) },
		write: func(m *ManifestApp) any {
			if *in(m) {
				return true
			}
			return nil
		},
	}
}

// SameByManifest compares the values of two apps that a manifest can change.
func SameByManifest(old, a App) bool {
	return !slices.ContainsFunc(appKeys, func(k appKey) bool { return k.same != nil && !k.same(old, a) })
}

// appChange is the change of an app by a manifest.
type appChange struct {
	old, next App
	note      func(path string, was, value any)
}

// DiffApp notes the values of the manifest that are different in next and in old. was
// and value are nil for none.
func (m *ManifestApp) DiffApp(old, next App, note func(path string, was, value any)) {
	c := &appChange{old: old, next: next, note: note}
	for _, k := range appKeys {
		if k.diff != nil {
			k.diff(m, c)
		}
	}
}

// noteTexts notes the texts that the manifest names.
func (c *appChange) noteTexts(path string, given map[string]*string, old, next map[string]string) {
	value := func(texts map[string]string, k string) any {
		if v, ok := texts[k]; ok {
			return v
		}
		return nil
	}
	for _, k := range slices.Sorted(maps.Keys(given)) {
		c.note(path+jsonPointer.Replace(k), value(old, k), value(next, k))
	}
}

// jsonPointer escapes a part of a JSON pointer.
var jsonPointer = strings.NewReplacer("~", "~0", "/", "~1")

func textOrNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func textsOrNil(list []string) any {
	if len(list) == 0 {
		return nil
	}
	return list
}

func (m *ManifestDocker) rendered() any {
	if m == nil {
		return nil
	}
	image := yaml.MapSlice{{Key: "image", Value: m.Image}}
	if m.Username != "" {
		image = append(image, yaml.MapItem{Key: "username", Value: m.Username})
	}
	return image
}
