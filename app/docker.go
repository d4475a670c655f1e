package app

import (
	"fmt"

	"github.com/dewrun/dew/yamlfile"
)

// LifecycleDocker is the lifecycle of apps that are images of a registry.
const LifecycleDocker = "docker"

// ManifestDocker is the key docker: the image that an app is. The password is
// never in a manifest.
type ManifestDocker struct {
	Image    string
	Username string
}

// Docker tells whether the app is an image, and not staged from files.
func (a App) Docker() bool { return a.Lifecycle == LifecycleDocker }

func (d *decoder) docker(key string, v *yamlfile.Node) *ManifestDocker {
	out := &ManifestDocker{}
	const missing = "is missing: name the image as host:port/repository:tag"
	given := v.Kind == yamlfile.Map && d.required(key+".", v, "image", missing)
	d.mapping(key+".", v, []yamlfile.Key{
		{Name: "image", Read: func(key string, v *yamlfile.Node) { d.text(key, v, &out.Image) }},
		{Name: "username", Read: func(key string, v *yamlfile.Node) { d.text(key, v, &out.Username) }},
		{Name: "password", Read: func(key string, v *yamlfile.Node) {
			d.fail(key, v.Line, "does not belong into a manifest: set CF_DOCKER_PASSWORD")
		}},
	})
	if given && out.Image == "" {
		d.fail(key+".image", v.Line, missing)
	}
	return out
}

// dockerConflicts refuses an app that is an image and something else as well.
func (d *decoder) dockerConflicts(a *ManifestApp) {
	if a.Docker == nil {
		if a.Lifecycle == LifecycleDocker {
			d.fail("lifecycle", a.Line("lifecycle"), "is %s: name the image with the key docker", LifecycleDocker)
		}
		return
	}
	for _, c := range []struct {
		key string
		is  bool
	}{
		{"path", a.Path != ""},
		{"buildpacks", len(a.Buildpacks) > 0},
		{"stack", a.Stack != nil && *a.Stack != ""},
		{"lifecycle", a.Lifecycle != "" && a.Lifecycle != LifecycleDocker},
	} {
		if c.is {
			d.fail(c.key, a.Line(c.key), "does not go together with docker: an app is either an image or made of files")
		}
	}
}

// lifecycleOf is how a manifest wants an app to come about.
func (m *ManifestApp) lifecycleOf(a App) string {
	if m.Docker != nil {
		return LifecycleDocker
	}
	if m.Lifecycle != "" || a.GUID == "" {
		return "" // of files
	}
	return a.Lifecycle
}

// checkLifecycle keeps an app what it once was, as the platform does.
func checkLifecycle(old, next App) error {
	if old.GUID == "" || old.Lifecycle == next.Lifecycle {
		return nil
	}
	was, is := "made of files", "an image"
	if old.Docker() {
		was, is = is, was
	}
	return &Invalid{Key: "lifecycle", Message: fmt.Sprintf("Lifecycle type cannot be changed: app '%s' is %s and cannot become %s: delete it first, or give the other one another name", old.Name, was, is)}
}
