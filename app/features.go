package app

import (
	"slices"

	"github.com/goccy/go-yaml"

	"github.com/dewrun/dew/yamlfile"
)

// Feature is a setting of an app that is enabled or disabled.
type Feature struct {
	Name        string
	Description string
	Column      string           // its name in audit events
	Enabled     func(a App) bool // reads it
	Set         func(*App, bool) // changes it
	normal      bool             // whether new apps have it
}

// The names of the features.
const (
	FeatureSSH          = "ssh"
	FeatureRevisions    = "revisions"
	FeatureK8sBindings  = "service-binding-k8s"
	FeatureVCAPBindings = "file-based-vcap-services"
)

// OneBindingForm says that an app has both kinds of files about its services.
const OneBindingForm = "'" + FeatureVCAPBindings + "' and '" + FeatureK8sBindings + "' features cannot be enabled at the same time."

// Features returns all features, in the order of Cloud Foundry.
func Features() []Feature {
	return []Feature{
		{
			Name: FeatureSSH, Description: "Enable SSHing into the app.", Column: "enable_ssh", normal: true,
			Enabled: func(a App) bool { return !a.NoSSH }, Set: func(a *App, on bool) { a.NoSSH = !on },
		},
		{
			Name: FeatureRevisions, Description: "Enable versioning of an application", Column: "revisions_enabled", normal: true,
			Enabled: func(a App) bool { return !a.NoRevisions }, Set: func(a *App, on bool) { a.NoRevisions = !on },
		},
		{
			Name: FeatureK8sBindings, Description: "Enable k8s service bindings for the app", Column: "service_binding_k8s_enabled",
			Enabled: func(a App) bool { return a.K8sBindings }, Set: func(a *App, on bool) { a.K8sBindings = on },
		},
		{
			Name: FeatureVCAPBindings, Description: "Enable file-based VCAP service bindings for the app", Column: "file_based_vcap_services_enabled",
			Enabled: func(a App) bool { return a.VCAPBindings }, Set: func(a *App, on bool) { a.VCAPBindings = on },
		},
	}
}

// FeatureNamed returns the feature with the name.
func FeatureNamed(name string) (Feature, bool) {
	all := Features()
	i := slices.IndexFunc(all, func(f Feature) bool { return f.Name == name })
	if i < 0 {
		return Feature{}, false
	}
	return all[i], true
}

// featuresKey is the key of the manifest with the features to enable or disable.
var featuresKey = appKey{
	name: "features",
	read: func(d *decoder, key string, v *yamlfile.Node, m *ManifestApp) {
		m.Features = map[string]bool{}
		var keys []yamlfile.Key
		for _, f := range Features() {
			keys = append(keys, yamlfile.Key{Name: f.Name, Read: func(key string, v *yamlfile.Node) {
				var on bool
				d.truth(key, v, &on)
				m.Features[f.Name] = on
			}})
		}
		d.mapping(key+".", v, keys)
	},
	write: func(m *ManifestApp) any {
		var out yaml.MapSlice
		for _, f := range Features() {
			if on, given := m.Features[f.Name]; given {
				out = append(out, yaml.MapItem{Key: f.Name, Value: on})
			}
		}
		if out == nil {
			return nil
		}
		return out
	},
	apply: func(m *ManifestApp, a *App) {
		for _, f := range Features() {
			if on, given := m.Features[f.Name]; given {
				f.Set(a, on)
			}
		}
	},
	take: func(a App, m *ManifestApp) {
		for _, f := range Features() {
			if on := f.Enabled(a); on != f.normal {
				if m.Features == nil {
					m.Features = map[string]bool{}
				}
				m.Features[f.Name] = on
			}
		}
	},
	same: func(old, a App) bool {
		return !slices.ContainsFunc(Features(), func(f Feature) bool { return f.Enabled(old) != f.Enabled(a) })
	},
}
