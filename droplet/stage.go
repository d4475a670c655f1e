package droplet

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/droplet/buildcache"
	"github.com/dewrun/dew/droplet/cause"
	"github.com/dewrun/dew/droplet/inspect"
	"github.com/dewrun/dew/droplet/pool"
	"github.com/dewrun/dew/droplet/stack"
)

// Default limits of a staging, as in Cloud Foundry.
const (
	DefaultStagingMemoryMB = 1024
	DefaultStagingDiskMB   = 4096
	DefaultStagingTimeout  = 15 * time.Minute
)

const (
	// maxStagedFiles is the maximum number of files in a staging: those of the app, its
	// buildpacks and its cache together.
	maxStagedFiles = 300_000
	// maxResult limits the output of buildpacks about an app.
	maxResult = 1 << 20
)

// The exit codes of the script that runs buildpacks.
const (
	codeNoApp       = 222
	codeNoCompile   = 223
	codeNoRelease   = 224
	codeNoBuildpack = 225
)

// stageWith runs buildpacks on a package, and stores a droplet with the result. The app
// can start while the cache is stored and the container is removed.
func (b *Builds) stageWith(ctx context.Context, w Build, k Package, st stack.Stack, packs []chosen) error {
	f, done, err := b.packages.open(k.SHA256)
	if err != nil {
		return err
	}
	defer done()
	g, err := b.stagingInput(w.App)
	if err != nil {
		return err
	}
	downloaded(b, w.App, k)
	plan, err := planTar(packs, st, len(w.Buildpacks) == 0)
	if err != nil {
		return err
	}
	s := Staging{
		Build: w.GUID, App: w.App, Stack: st, Env: g.env, Services: g.bindings.Variable(), Dir: "/home/vcap",
		Command:  "exec " + st.Shell + " /tmp/buildpacks/stage.sh",
		MemoryMB: b.o.MemoryMB, DiskMB: b.o.DiskMB, MaxFiles: maxStagedFiles, Timeout: b.o.Timeout, Space: b.packages.Space,
		Layers: []Layer{
			{Path: "/tmp", Open: func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(f, 0, 1<<62)), nil }},
			{Path: "/tmp/buildpacks", Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(plan)), nil }},
		},
	}
	for i, h := range packs {
		if h.open != nil {
			s.Layers = append(s.Layers, Layer{Path: "/tmp/buildpacks/" + strconv.Itoa(i), Strip: h.strip, Open: h.open})
		}
	}
	s.Layers = append(s.Layers, helperLayers(packs)...)
	layers, err := cacheLayers(b, w.App, f, st, packs)
	if err != nil {
		return err
	}
	s.Layers = append(s.Layers, layers...)
	d := Droplet{GUID: uuid.NewString(), App: w.App, Package: w.Package, Stack: st.Name, Reuse: b.reuseKey(k, st, packs, g), Bindings: g.bindings}
	began, stored := time.Now(), false
	err = b.o.Builder.Build(ctx, s, func(ctx context.Context, code int, files Files) error {
		t := stagedFiles{code: code, files: files, packs: packs, detect: len(w.Buildpacks) == 0, version: b.o.Version, droplet: &d}
		if code != 0 {
			return b.scriptError(ctx, t, failedScript{bits: f, stack: st, began: began})
		}
		results, err := b.createDroplet(ctx, t)
		if err != nil {
			return err
		}
		if err := b.staged(w, d); err != nil {
			return err
		}
		stored = true
		storeCache(ctx, b, t, results)
		requestStartCache(b, t, st, results)
		return nil
	})
	if stored && err != nil {
		b.o.Logger.Warn("cannot clean up after a build", "app", w.App, "build", w.GUID, "err", err)
		return nil
	}
	return err
}

// cacheLayers returns a layer with the cache of an app, or with that of all new apps.
func cacheLayers(b *Builds, app string, bits io.ReadSeeker, st stack.Stack, packs []chosen) ([]Layer, error) {
	if b.caches.Has(app) {
		return []Layer{{Path: buildcache.Folder, Open: func() (io.ReadCloser, error) { return os.Open(b.caches.File(app)) }}}, nil
	}
	return startLayers(b, bits, st, packs)
}

// helperLayers returns a layer with the program that built-in buildpacks use, if there is
// one.
func helperLayers(packs []chosen) []Layer {
	i := slices.IndexFunc(packs, func(h chosen) bool { return h.helper != nil })
	if i < 0 {
		return nil
	}
	return []Layer{{Path: "/tmp/buildpacks", Open: packs[i].helper}}
}

// planTar returns a tar of the script that runs buildpacks, and its input.
func planTar(packs []chosen, st stack.Stack, detect bool) ([]byte, error) {
	script, err := scripts.ReadFile(stageScript)
	if err != nil {
		return nil, err
	}
	var plan, out bytes.Buffer
	w := tar.NewWriter(&out)
	errs := errors.Join(addFile(w, "stage.sh", script), addFile(w, "stack", []byte(st.ID+"\n")))
	for i, h := range packs {
		how := "here"
		if h.url != "" {
			if how = "git"; isZip(h.url) {
				how = "zip"
			}
			errs = errors.Join(errs, addFile(w, strconv.Itoa(i)+".url", []byte(h.url+"\n")))
		}
		fmt.Fprintf(&plan, "%d %s %s\n", i, how, strings.Join(strings.Fields(h.name), " "))
	}
	name := "plan"
	if detect {
		name = "all"
	}
	if err := errors.Join(errs, addFile(w, name, plan.Bytes()), w.Close()); err != nil {
		return nil, fmt.Errorf("cannot plan the build: %w", err)
	}
	return out.Bytes(), nil
}

// stagedFiles is the result of a build in its container.
type stagedFiles struct {
	code    int
	files   Files
	packs   []chosen
	detect  bool   // the buildpack was to be detected
	version string // of the built-in buildpacks
	droplet *Droplet
}

// createDroplet creates the droplet from the result of the buildpacks, which it returns.
func (b *Builds) createDroplet(ctx context.Context, t stagedFiles) (map[string]string, error) {
	results, err := readResult(ctx, t.files)
	if err != nil {
		return nil, err
	}
	d := t.droplet
	if err := describe(t, results); err != nil {
		return nil, err
	}
	logCommands(b.o.Say, d.App, d.Commands)
	info, err := json.Marshal(stagingFile{Buildpack: detectedOf(*d), Command: d.Commands["web"], Processes: d.Commands, Sidecars: d.Sidecars, Java: d.Java, Custom: d.Custom})
	if err != nil {
		return nil, fmt.Errorf("cannot write %s: %w", archive.StagingInfo, err)
	}
	b.o.Say(d.App, "Uploading droplet, build artifacts cache...")
	if d.Image, err = b.addPacked(ctx, *d, t.files, info); err != nil {
		return nil, err
	}
	uploaded(b, d.App, d.Image)
	if keepsCache(b, *d, results) {
		b.o.Say(d.App, "The build artifacts cache is unchanged")
	}
	b.o.Say(d.App, "Uploading complete")
	return results, nil
}

// keepsCache reports whether the build did not change the cache of the app.
func keepsCache(b *Builds, d Droplet, results map[string]string) bool {
	return results["cache-unchanged"] != "" && b.caches.Has(d.App)
}

// storeCache stores the cache of an app for its next build, if it changed.
func storeCache(ctx context.Context, b *Builds, t stagedFiles, results map[string]string) {
	if keepsCache(b, *t.droplet, results) {
		return
	}
	app := t.droplet.App
	if err := b.caches.Store(ctx, app, t.files); err != nil {
		// Not an error: at worst, the next staging runs without a cache, like the first.
		b.o.Say(app, "Cannot store the build cache: "+err.Error())
		return
	}
	if fi, err := os.Stat(b.caches.File(app)); err == nil {
		b.o.Say(app, fmt.Sprintf("Uploaded build artifacts cache (%s)", archive.Size(fi.Size())))
	}
}

// downloaded logs that a build has the files of its package, in the words of Cloud
// Foundry that tools look for.
func downloaded(b *Builds, app string, k Package) {
	b.o.Say(app, "Downloading app package...")
	b.o.Say(app, fmt.Sprintf("Downloaded app package (%s)", archive.Size(k.Size)))
}

// uploaded logs the image of a new droplet.
func uploaded(b *Builds, app, sha string) {
	b.o.Say(app, fmt.Sprintf("Created image %.12s", sha))
	if fi, err := os.Stat(b.droplets.path(sha)); err == nil {
		b.o.Say(app, fmt.Sprintf("Uploaded droplet (%s)", archive.Size(fi.Size())))
	}
}

// stagingFile is the content of staging_info.yml in an image.
type stagingFile struct {
	Buildpack string            `json:"detected_buildpack"`
	Command   string            `json:"start_command"`
	Processes map[string]string `json:"process_types,omitempty"`
	Sidecars  []FoundSidecar    `json:"sidecars,omitempty"`
	Java      bool              `json:"java,omitempty"`
	Custom    bool              `json:"custom,omitempty"`
}

// readResult reads the small files with the results of the script.
func readResult(ctx context.Context, files Files) (map[string]string, error) {
	var raw bytes.Buffer
	p := Packing{Folders: []Folder{{From: "/tmp/result"}}, MaxBytes: maxResult, MaxFiles: 1000}
	if err := files.Pack(ctx, &raw, p); err != nil {
		return nil, err
	}
	results := map[string]string{}
	for tr := tar.NewReader(&raw); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return results, nil
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read the results of the buildpacks: %w", err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		b, err := io.ReadAll(tr)
		if err != nil {
			return nil, fmt.Errorf("cannot read the results of the buildpacks: %w", err)
		}
		results[path.Clean(h.Name)] = string(b)
	}
}

// failedScript holds the information about a failed script.
type failedScript struct {
	bits  io.ReadSeeker // bits of the package
	stack stack.Stack
	began time.Time
}

// scriptError returns the error of a build whose script failed. It starts with the words
// of Cloud Foundry and ends with the cause.
func (b *Builds) scriptError(ctx context.Context, t stagedFiles, f failedScript) error {
	results, err := readResult(ctx, t.files)
	if err != nil {
		return err
	}
	why := strings.TrimSpace(results["failed"])
	switch t.code {
	case codeNoApp:
		hint, err := inspect.Hint(f.bits, pool.Top)
		if err != nil {
			return err
		}
		return &StagingError{NoAppDetected, "An app was not successfully detected by any available buildpack: " + hint}
	case codeNoCompile:
		return &StagingError{BuildpackCompileFailed, "App staging failed in the buildpack compile phase: " + b.cause(t, results, f, why)}
	case codeNoRelease:
		return &StagingError{BuildpackReleaseFailed, "App staging failed in the buildpack release phase: " + b.cause(t, results, f, why)}
	case codeNoBuildpack:
		return &StagingError{BuildpackCompileFailed, "App staging failed: " + why}
	}
	return &StagingError{StagingFailed, fmt.Sprintf("the buildpacks exited with status %d", t.code)}
}

// cause returns why a buildpack failed: a missing program, the reason of a built-in
// buildpack, the error that its tools printed, or the exit status of the script.
func (b *Builds) cause(t stagedFiles, results map[string]string, f failedScript, ended string) string {
	if missing := results["missing"]; missing != "" {
		return b.missingTool(missing, f.stack)
	}
	if reason := cause.Shorten(cause.Clean(results["reason"])); reason != "" {
		return reason
	}
	return cmp.Or(cause.Of(b.o.Printed(t.droplet.App, f.began)), ended)
}

// addPacked adds the image that buildpacks created from an app.
func (b *Builds) addPacked(ctx context.Context, d Droplet, files Files, info []byte) (string, error) {
	p := Packing{
		Folders:  []Folder{{From: "/tmp/app", As: "app"}, {From: "/tmp/deps", As: "deps"}, {From: "/tmp/profile.d", As: "profile.d"}},
		Files:    []stack.File{{Path: archive.StagingInfo, Mode: 0o644, Data: string(info)}},
		MaxBytes: int64(b.o.DiskMB) << 20, MaxFiles: maxStagedFiles,
	}
	r, w := io.Pipe()
	packed := make(chan struct{})
	go func() {
		defer close(packed)
		w.CloseWithError(files.Pack(ctx, w, p))
	}()
	sha, err := b.droplets.addImage(r, built(b, d))
	r.CloseWithError(errors.New("the image was refused")) // stops the packing
	<-packed                                              // the files exist only until this function returns
	if bad, ok := errors.AsType[*StagingError](err); ok {
		return "", bad // error of the packing
	}
	if bad, ok := errors.AsType[*archive.Error](err); ok {
		return "", &StagingError{StagingFailed, "cannot use the output of the buildpacks: " + bad.Error()}
	}
	return sha, err
}

// sweepCaches removes the caches of deleted apps.
func sweepCaches(b *Builds) error {
	return b.caches.Sweep(func(app string) (bool, error) {
		builds, berr := b.OfApp(app)
		droplets, derr := b.droplets.OfApp(app)
		return len(builds)+len(droplets) == 0, errors.Join(berr, derr)
	})
}
