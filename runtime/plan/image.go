package plan

import (
	"slices"
	"strings"

	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/runtime"
)

// applyImage adapts the processes of an image app: they run in the folder and as the
// user that the image sets. Its own program needs no shell.
func (d Desired) applyImage(ps []runtime.ProcessSpec) {
	r := d.Droplet.Run
	if r == nil {
		return
	}
	for i := range ps {
		ps[i].Dir = r.Dir
		ps[i].User = &runtime.User{UID: uint32(r.UID), GID: uint32(r.GID)}
	}
	if d.Process.Command == "" && d.Process.Type == "web" {
		ps[0].Args = slices.Clone(r.Args)
	}
}

// imageVariables returns the initial variables of an image app.
func imageVariables(r stack.RunConfig) map[string]string {
	env := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME": r.Home, "USER": r.User,
	}
	for _, kv := range r.Env {
		if name, value, ok := strings.Cut(kv, "="); ok {
			env[name] = value
		}
	}
	env["PWD"] = r.Dir
	return env
}

// isBuildpackVariable reports whether a variable describes the folders or the user of
// apps that were staged with buildpacks.
func isBuildpackVariable(name, _ string) bool {
	return slices.Contains([]string{"HOME", "PWD", "TMPDIR", "DEPS_DIR", "USER"}, name)
}
