package push

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/cli/console"
)

// buildpackFolder is a local folder with a buildpack.
type buildpackFolder struct {
	path  string
	bits  *bits
	given string // its name on the daemon
}

// buildpackScript matches the scripts of a buildpack. A buildpack needs at least one of
// them, in its root folder or one folder below.
var buildpackScript = regexp.MustCompile(`^([^/]+/)?bin/(detect|compile|supply|finalize)$`)

// localFolder is the local folder that a buildpack names, or empty. In a manifest only
// a path that starts with a dot is local, relative to the manifest's folder. An
// absolute path is on the daemon's machine.
func (t target) localFolder(o Options, name string) string {
	dotted := name == "." || name == ".." || strings.HasPrefix(name, "./") || strings.HasPrefix(name, "../")
	switch byFlag := slices.Contains(o.Buildpacks, name); {
	case dotted && byFlag:
		return name
	case dotted:
		return filepath.Join(filepath.Dir(t.manifest), name)
	case byFlag && filepath.IsAbs(name):
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			return name
		}
	}
	return ""
}

// gatherBuildpacks lists the files of buildpacks that are local folders.
func (t *target) gatherBuildpacks(o Options, out *console.Console) error {
	for i, name := range t.app.Buildpacks {
		folder := t.localFolder(o, name)
		if folder == "" {
			continue
		}
		b, err := gather(folder, out)
		if err != nil {
			return fmt.Errorf("buildpack %s: %w", name, err)
		}
		if !slices.ContainsFunc(b.files, func(f file) bool { return buildpackScript.MatchString(f.path) }) {
			return errors.Join(&console.Failure{
				Status: console.StatusUsage, Err: fmt.Errorf("%s is not a buildpack: it has no bin/detect, bin/supply, bin/finalize or bin/compile", folder),
				Advice: "Pass the folder that contains bin/ with -b, and the files of the app with -p",
			}, b.close())
		}
		if t.folders == nil {
			t.folders = map[int]*buildpackFolder{}
		}
		t.folders[i] = &buildpackFolder{path: folder, bits: b}
	}
	return nil
}

// sendBuildpacks uploads the folders of all apps and sets the names that the daemon gave
// them.
func sendBuildpacks(ctx context.Context, space string, targets []target, api *client.Client, out *console.Console) error {
	for _, t := range targets {
		if len(t.folders) == 0 {
			continue
		}
		t.app.Buildpacks = slices.Clone(t.app.Buildpacks)
		for i, f := range t.folders {
			if err := f.send(ctx, space, api, out); err != nil {
				return fmt.Errorf("cannot upload buildpack %s: %w", f.path, err)
			}
			t.app.Buildpacks[i] = f.given
		}
	}
	return nil
}

func (f *buildpackFolder) send(ctx context.Context, space string, api *client.Client, out *console.Console) error {
	known, unknown, err := f.bits.compare(ctx, api, out)
	if err != nil {
		return err
	}
	abs, err := filepath.Abs(f.path)
	if err != nil {
		return err
	}
	var bits func(io.Writer) error
	if len(unknown) > 0 {
		out.Say("Uploading buildpack %s: %d of %d files", f.path, len(unknown), len(known)+len(unknown))
		bits = func(w io.Writer) error { return writeZip(w, unknown, io.Discard) }
	}
	defer out.Wait("Uploading buildpack %s", f.path).End()
	f.given, err = api.Bits().UploadFolder(ctx, space, folderName(filepath.Base(abs)), known, bits)
	return err
}

// folderName is the name of a folder in the characters that the name of an uploaded
// buildpack can have.
func folderName(name string) string {
	word := strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '.' || r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
			return r
		}
		return '-'
	}, name)
	return word[:min(len(word), 100)]
}

// compare separates the files that the daemon has from those to upload.
func (b *bits) compare(ctx context.Context, api *client.Client, out *console.Console) (known []v3.Resource, unknown []file, err error) {
	if err := b.hash(ctx); err != nil {
		return nil, nil, err
	}
	var named []v3.Resource
	for _, f := range b.files {
		if f.named() {
			named = append(named, f.resource())
		}
	}
	defer out.Wait("Looking for files that dewd already has").End()
	matched, err := api.Bits().MatchResources(ctx, named)
	if err != nil {
		return nil, nil, err
	}
	known, unknown = b.parts(matched)
	return known, unknown, nil
}

// localFolders are the buildpacks of apps that are local folders.
func localFolders(apps []app.ManifestApp, o Options, manifest string) []string {
	var all []string
	for i := range apps {
		t := target{app: &apps[i], manifest: manifest}
		for _, name := range apps[i].Buildpacks {
			if folder := t.localFolder(o, name); folder != "" {
				all = append(all, folder)
			}
		}
	}
	return all
}
