package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A buildpack that is a local folder is uploaded, so the daemon need not be able to
// read the folder.
func TestPushUploadsABuildpack(t *testing.T) {
	root := folder(t, map[string]string{
		"app/a": "a", "my pack/bin/compile": "#!/bin/sh", "app/manifest.yml": "applications: [{name: shop, path: ., buildpacks: [../my pack, go_buildpack, /daemon/folder]}]\n",
	})
	if err := os.Chmod(filepath.Join(root, "my pack/bin/compile"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	for name, c := range map[string]struct {
		args []string
		want string // in the manifest that the daemon gets
	}{
		"by flag":      {[]string{"--no-manifest", "-p", "app", "-b", "./my pack", "-b", "go_buildpack"}, `["folder:my-pack@1234", "go_buildpack"]`},
		"absolute":     {[]string{"--no-manifest", "-p", "app", "-b", filepath.Join(root, "my pack")}, `["folder:my-pack@1234"]`},
		"by manifest":  {[]string{"-f", "app"}, `["folder:my-pack@1234", "go_buildpack", "/daemon/folder"]`},
		"the daemon's": {[]string{"--no-manifest", "-p", "app", "-b", "/daemon/folder"}, `["/daemon/folder"]`},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t)
			d.dew(append([]string{"push", "shop"}, c.args...)...).must(t, 0)
			if got := d.body("POST /v3/spaces/space-1/actions/apply_manifest"); !strings.Contains(got, `"buildpacks": `+c.want) {
				t.Errorf("the manifest is %s, want buildpacks %s", got, c.want)
			}
			want := map[string]string{"bin/compile": "-rwx------ #!/bin/sh"}
			if !strings.Contains(c.want, "my-pack") {
				want = nil
			}
			if diff := cmp.Diff(want, d.folder); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Unchanged files are not sent again.
func TestPushUploadsABuildpackOnce(t *testing.T) {
	d := newDaemon(t)
	t.Chdir(folder(t, map[string]string{"app/a": "a", "pack/bin/detect": "#!/bin/sh"}))
	push := func() result { return d.dew("push", "shop", "--no-manifest", "-p", "app", "-b", "./pack") }
	push().must(t, 0, "Uploading buildpack ./pack: 1 of 1 files")
	r := push()
	r.must(t, 0)
	if strings.Contains(r.talk, "Uploading buildpack") || d.folder["bin/detect"] != "known 644" {
		t.Errorf("sent %v, and said\n%s", d.folder, r.talk)
	}
}

func TestPushRefusesWhatIsNoBuildpack(t *testing.T) {
	d := newDaemon(t)
	t.Chdir(folder(t, map[string]string{"app/a": "a", "pack/detect": "#!/bin/sh"}))
	d.dew("push", "shop", "--no-manifest", "-p", "app", "-b", "./pack").must(t, 2, "./pack is not a buildpack: it has no bin/detect")
	d.dew("push", "shop", "--no-manifest", "-p", "app", "-b", "./none").must(t, 1, "buildpack ./none: cannot find the files: stat ./none")
	if len(d.requests) > 0 {
		t.Errorf("the daemon was asked: %v", d.requests)
	}
}
