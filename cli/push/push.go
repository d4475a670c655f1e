package push

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/cli/apps"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// Options are the arguments of dew push.
type Options struct {
	Name       string // of the app, or empty for all apps of the manifest
	Manifest   ManifestOptions
	Path       string
	Buildpacks []string
	Command    *string
	Instances  *int
	Memory     string
	Disk       string
	LogRate    string
	Timeout    *int // seconds
	Health     string
	Endpoint   string
	Stack      string
	Image      string // empty means to push files
	Username   string // of the registry
	Deploy     apps.DeployOptions

	Droplet string // file of a staged droplet, or empty to stage files

	NoStart, NoRoute, RandomRoute bool
	Task                          bool // the app only runs tasks
	Build                         bool // run the build step of smoke.yml first
}

// Commands push apps and apply manifests.
func Commands(g *command.Set) []*cli.Command {
	flags := append(manifestFlags(),
		command.BoolFlag("no-manifest", "Do not read a manifest"),
		&cli.StringFlag{Name: "m", Aliases: []string{"memory"}, Usage: "Memory limit of an instance, sidecars included: a `size` such as 256M or 1G"},
		&cli.StringFlag{Name: "k", Aliases: []string{"disk"}, Usage: "Disk limit of an instance: a `size` such as 512M"},
		&cli.StringFlag{Name: "l", Aliases: []string{"log-rate-limit"}, Usage: "Log rate limit of an instance in `bytes` per second, such as 16K; -1 for no limit"},
		&cli.StringFlag{Name: "droplet", Usage: "Run this droplet file instead of staging files: a `path` (dew download-droplet writes one)"},
		command.BoolFlag("task", "Push an app that only runs tasks: stage it without starting it, and map no route"),
		&cli.StringFlag{Name: "p", Aliases: []string{"path"}, Usage: "Files of the app: the `path` of a folder, zip, jar or war"},
		&cli.StringSliceFlag{Name: "b", Aliases: []string{"buildpack"}, Usage: "Stage with this `buildpack`: a name, a git URL, the URL of a zip, or a folder to upload; can be repeated; null to detect it"},
		&cli.StringFlag{Name: "c", Aliases: []string{"start-command"}, Usage: "Start `command` of the web process; null for the command of the droplet"},
		&cli.IntFlag{Name: "i", Aliases: []string{"instances"}, DefaultText: "unchanged", Usage: "Instance `count`"},
		&cli.IntFlag{Name: "t", Aliases: []string{"app-start-timeout"}, DefaultText: "unchanged", Usage: "Time limit in `seconds` for an instance to become healthy"},
		&cli.StringFlag{Name: "u", Aliases: []string{"health-check-type"}, Usage: "Health check type: `" + strings.Join(app.CheckTypes(), "|") + "`"},
		&cli.StringFlag{Name: "endpoint", Usage: "HTTP `path` of an http health check"},
		&cli.StringFlag{Name: "s", Aliases: []string{"stack"}, Usage: "Run on this `stack` (dew stacks lists them)"},
		&cli.StringFlag{Name: "o", Aliases: []string{"docker-image"}, Usage: "Docker `image` to run instead of files, such as host:port/repository:tag"},
		&cli.StringFlag{Name: "docker-username", Usage: "User `name` at the registry; dew reads the password from CF_DOCKER_PASSWORD, or asks for it"},
		command.BoolFlag("no-start", "Do not stage and start the app"),
		command.BoolFlag("no-route", "Remove the routes of the app and map none"),
		command.BoolFlag("random-route", "Map a route with a random name if the app has no route"),
		command.BoolFlag("build", "Before the push, run the commands under build: in the smoke.yml next to the manifest"),
		command.BoolFlag("watch", "Push again when the manifest or a file changes, until Ctrl-C"),
		command.JSONFlag(),
	)
	flags = append(flags, apps.StrategyFlags()...)
	return []*cli.Command{
		g.Command(command.Verb{
			Name: "push", Alias: "p", Args: "[APP]", Category: "Push", Usage: "Push an app: apply its manifest, upload its files, stage, start and wait until it runs", Flags: flags,
			About: "Without -f dew reads manifest.yml in this folder, if it exists. It uploads only files that dewd does not have, and stages only files that changed. CF_STAGING_TIMEOUT and CF_STARTUP_TIMEOUT are time limits in minutes (default: 15 and 5).\n\nExamples:\n   dew push\n   dew push shop -p build/libs/shop.jar -m 512M -i 2\n   dew push shop -f manifest.yml --var env=test --no-start\n   dew push --build --watch",
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			if c.Bool("watch") && c.IsSet("droplet") {
				return console.UsageError("--watch and --droplet cannot be used together: there are no files to watch")
			}
			if c.Bool("build") && (c.IsSet("droplet") || c.IsSet("o")) {
				return console.UsageError("--build cannot be used with --droplet or --docker-image: there is nothing to build")
			}
			if c.Bool("watch") {
				return watchPush(c.Context, pushOptionsOf(c), api, out)
			}
			return runPush(c.Context, pushOptionsOf(c), api, out)
		}),
		createAppCommand(g), applyManifestCommand(g),
	}
}

func pushOptionsOf(c *cli.Context) Options {
	o := Options{
		Name: c.Args().First(), Manifest: manifestOptionsOf(c), Path: c.String("p"), Buildpacks: c.StringSlice("b"),
		Memory: c.String("m"), Disk: c.String("k"), LogRate: c.String("l"), Droplet: c.String("droplet"), Task: c.Bool("task"), Health: c.String("u"), Endpoint: c.String("endpoint"),
		Stack: c.String("s"), Image: c.String("o"), Username: c.String("docker-username"), Deploy: apps.DeployOptionsOf(c),
		Build: c.Bool("build"), NoStart: c.Bool("no-start"), NoRoute: c.Bool("no-route"), RandomRoute: c.Bool("random-route"),
	}
	o.Manifest.Optional, o.Manifest.None = true, c.Bool("no-manifest")
	if c.IsSet("c") {
		command := c.String("c")
		o.Command = &command
	}
	if c.IsSet("i") {
		n := c.Int("i")
		o.Instances = &n
	}
	if c.IsSet("t") {
		n := c.Int("t")
		o.Timeout = &n
	}
	return o.withTaskDefaults()
}

// runPush pushes the apps of a manifest, or the app in the options, and waits until they
// run.
func runPush(ctx context.Context, o Options, api *client.Client, out *console.Console) error {
	if err := o.build(ctx, out); err != nil {
		return err
	}
	return pushBuilt(ctx, o, api, out)
}

// pushBuilt is runPush after the build.
func pushBuilt(ctx context.Context, o Options, api *client.Client, out *console.Console) error {
	if err := errors.Join(o.checkStrategy(), o.checkDroplet()); err != nil {
		return err
	}
	m, file, err := Manifest(o, out)
	if err != nil {
		return err
	}
	views, err := All(ctx, o, AppliedManifest{Manifest: m, File: file}, api, out)
	if err != nil {
		return err
	}
	if out.JSON {
		return out.Encode(views)
	}
	for _, v := range views {
		v.Print(out)
	}
	return nil
}

// AppliedManifest is the manifest of a push.
type AppliedManifest struct {
	Manifest    app.Manifest
	File        string // empty: made from the flags
	HideChanges bool   // do not show what changes
}

// All applies a manifest and pushes its apps, one after the other.
func All(ctx context.Context, o Options, p AppliedManifest, api *client.Client, out *console.Console) ([]apps.View, error) {
	p.Manifest.Applications = p.Manifest.StartOrder()
	// Before the manifest is applied, so that no app without files is created.
	targets, err := gatherAll(ctx, o, p.Manifest, p.File, out)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, t := range targets {
			_ = t.close() // opened only for reading
		}
	}()
	if len(targets) > 0 && targets[0].bits != nil {
		targets[0].bits.startHash(ctx) // the files of later apps can still change until their turn
	}
	if err := o.checkDependencies(ctx, targets, api); err != nil {
		return nil, err
	}
	home, err := command.SpaceGUID(ctx, api)
	if err != nil {
		return nil, err
	}
	if err := sendBuildpacks(ctx, home, targets, api, out); err != nil {
		return nil, err
	}
	if err := apply(ctx, api, out, applied{space: home, manifest: p.Manifest, file: p.File, diff: p.File != "" && !p.HideChanges}); err != nil {
		return nil, err
	}
	var views []apps.View
	for i, t := range targets {
		v, err := pushOne(ctx, o, t, api, out)
		if err != nil {
			return nil, withDependents(t, targets[i+1:], err)
		}
		views = append(views, v)
	}
	return views, nil
}

// target is one app of a push.
type target struct {
	app      *app.ManifestApp
	manifest string                   // file, or empty
	bits     *bits                    // nil: an image
	image    *v3.DockerData           // nil: files
	others   []string                 // apps that it depends on, outside this push
	folders  map[int]*buildpackFolder // by the index of the buildpack
}

func (t target) close() error {
	var errs []error
	for _, f := range t.folders {
		errs = append(errs, f.bits.close())
	}
	if t.bits != nil {
		errs = append(errs, t.bits.close())
	}
	return errors.Join(errs...)
}

// gatherAll lists the files of every app of a push.
func gatherAll(ctx context.Context, o Options, m app.Manifest, file string, out *console.Console) ([]target, error) {
	var all []target
	for i := range m.Applications {
		t := target{app: &m.Applications[i], manifest: file}
		if err := t.gather(ctx, o, out); err != nil {
			for _, before := range all {
				_ = before.close()
			}
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

func pushOne(ctx context.Context, o Options, t target, api *client.Client, out *console.Console) (apps.View, error) {
	a, err := command.FindApp(ctx, api, t.app.Name)
	if err != nil {
		return apps.View{}, err
	}
	out.Say("Pushing app %s…", a.Name)
	if o.Droplet != "" {
		if err := t.awaitDependencies(ctx, api, out); err != nil {
			return apps.View{}, err
		}
		return pushDroplet(ctx, o, a, api, out)
	}
	pkg, err := t.send(ctx, a, api, out)
	if err != nil {
		return apps.View{}, err
	}
	if o.NoStart && !o.Task {
		return stopped(ctx, a, api, out)
	}
	droplet, err := apps.Stage(ctx, a, pkg.GUID, api, out)
	if err != nil {
		return apps.View{}, err
	}
	if err := t.awaitDependencies(ctx, api, out); err != nil {
		return apps.View{}, err
	}
	return o.run(ctx, a, droplet, api, out)
}

// bitsPath is the path of the app's files: from -p, or from the manifest relative to its
// folder, or this folder.
func (t target) bitsPath(o Options) string {
	switch {
	case o.Path != "":
		return o.Path
	case t.app.Path == "":
		return "."
	case filepath.IsAbs(t.app.Path):
		return t.app.Path
	default:
		return filepath.Join(filepath.Dir(t.manifest), t.app.Path)
	}
}

// Manifest is the manifest to apply. It comes from a file or only from the flags, which
// override it.
func Manifest(o Options, out *console.Console) (app.Manifest, string, error) {
	o.Manifest.Name = o.Name
	m, file, err := loadManifest(o.Manifest, out)
	if err != nil {
		return m, "", err
	}
	if file == "" {
		if o.Name == "" {
			return m, "", console.UsageError("push needs the name of an app, such as dew push my-app, or a manifest (manifest.yml in this folder, or -f)")
		}
		m.Applications = []app.ManifestApp{{Name: o.Name}}
	}
	if m.Applications, err = selectApps(m.Applications, o.Name); err != nil {
		return m, "", err
	}
	if len(m.Applications) > 1 && o.changesOneApp() {
		return m, "", console.UsageError("these flags are for one app, but %s has %d apps: pass the name of one", file, len(m.Applications))
	}
	for i := range m.Applications {
		if err := o.override(&m.Applications[i]); err != nil {
			return m, "", err
		}
	}
	return m, file, nil
}

// selectApps are the apps to push: the one with the name, the only app under a new name,
// or all.
func selectApps(all []app.ManifestApp, name string) ([]app.ManifestApp, error) {
	if name == "" {
		return all, nil
	}
	var names []string
	for i := range all {
		if all[i].Name == name {
			return all[i : i+1], nil
		}
		names = append(names, all[i].Name)
	}
	if len(all) == 1 {
		all[0].Name = name
		return all, nil
	}
	return nil, console.UsageError("the manifest has no app %q; its apps: %s", name, strings.Join(names, ", "))
}

func (o Options) changesOneApp() bool {
	return o.Path != "" || o.Stack != "" || o.Image != "" || len(o.Buildpacks) > 0 || o.Command != nil || o.Instances != nil || o.Memory != "" || o.Disk != "" || o.LogRate != "" || o.Droplet != "" ||
		o.Timeout != nil || o.Health != "" || o.Endpoint != "" || o.NoRoute || o.RandomRoute
}

// override overrides the manifest with the flags.
func (o Options) override(a *app.ManifestApp) error {
	web := a.Web()
	if !o.Deploy.Gradual() { // otherwise the deployment sets them for the new instances
		if err := o.scale(&web.Instances, &web.MemoryMB, &web.DiskMB); err != nil {
			return err
		}
		if err := o.logRate(&web.LogRate); err != nil {
			return err
		}
	}
	if o.Command != nil {
		command := orDefault(*o.Command)
		web.Command = &command
	}
	if len(o.Buildpacks) > 0 {
		a.Buildpacks = o.Buildpacks
		if len(o.Buildpacks) == 1 && orDefault(o.Buildpacks[0]) == "" {
			a.Buildpacks = []string{}
		}
	}
	return errors.Join(o.overrideHealth(web), o.overrideRoutes(a), o.overrideStack(a))
}

// orDefault is the value, or empty for the words that mean "the default".
func orDefault(s string) string {
	if s == "null" || s == "default" {
		return ""
	}
	return s
}

func (o Options) overrideHealth(web *app.ManifestProcess) error {
	if o.Health == "none" { // the old name in cf
		o.Health = app.CheckProcess
	}
	switch {
	case o.Health == "":
	case slices.Contains(app.CheckTypes(), o.Health):
		web.HealthCheckType = &o.Health
	default:
		return console.UsageError("-u: %q is not one of %s", o.Health, strings.Join(app.CheckTypes(), ", "))
	}
	if o.Endpoint != "" {
		web.HealthCheckHTTPEndpoint = &o.Endpoint
	}
	if o.Timeout == nil {
		return nil
	}
	if *o.Timeout < 1 {
		return console.UsageError("-t: %d is less than 1 second", *o.Timeout)
	}
	d := time.Duration(*o.Timeout) * time.Second
	web.Timeout = &d
	return nil
}

func (o Options) overrideRoutes(a *app.ManifestApp) error {
	if o.NoRoute && o.RandomRoute {
		return console.UsageError("--no-route and --random-route cannot be used together")
	}
	if o.NoRoute {
		a.NoRoute, a.RandomRoute, a.Routes = true, false, nil
	}
	if o.RandomRoute {
		a.RandomRoute = true
	}
	a.DefaultRoute = !a.NoRoute && !a.RandomRoute
	return nil
}

// sendBits creates a new package of the app with these files.
func sendBits(ctx context.Context, a v3.App, b *bits, api *client.Client, out *console.Console) (v3.Package, error) {
	known, unknown, err := b.compare(ctx, api, out)
	if err != nil {
		return v3.Package{}, err
	}
	pkg, err := api.Bits().CreatePackage(ctx, a.GUID)
	if err != nil {
		return pkg, err
	}
	if pkg, err = upload(ctx, uploadRequest{pkg: pkg.GUID, known: known, unknown: unknown}, api, out); err != nil {
		return pkg, err
	}
	defer out.Wait("Waiting until dewd has stored the files of app %s", a.Name).End()
	return pkg, waitReady(ctx, &pkg, api)
}

// uploadRequest is the content of one upload.
type uploadRequest struct {
	pkg     string
	known   []v3.Resource // already on the daemon
	unknown []file
}

func upload(ctx context.Context, s uploadRequest, api *client.Client, out *console.Console) (v3.Package, error) {
	if len(s.unknown) == 0 {
		out.Say("Nothing to upload: dewd already has all %d files", len(s.known))
		return api.Bits().UploadPackage(ctx, s.pkg, s.known, nil)
	}
	var size int64
	for _, f := range s.unknown {
		size += f.size
	}
	out.Say("Uploading %d of %d files (%s)", len(s.unknown), len(s.unknown)+len(s.known), console.Bytes(size))
	progress := io.Discard
	if out.ErrTerminal && size > 0 {
		bar := progressbar.NewOptions64(size, progressbar.OptionSetWriter(out.Err), progressbar.OptionShowBytes(true),
			progressbar.OptionSetWidth(30), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
		defer bar.Finish() //nolint:errcheck // failing to draw the bar is not an error
		progress = bar
	} else {
		defer out.Wait("Uploading").End()
	}
	return api.Bits().UploadPackage(ctx, s.pkg, s.known, func(w io.Writer) error { return writeZip(w, s.unknown, progress) })
}

func waitReady(ctx context.Context, pkg *v3.Package, api *client.Client) error {
	return client.Poll(ctx, func() (bool, error) {
		switch pkg.State {
		case v3.PackageReady:
			return true, nil
		case v3.PackageFailed, v3.PackageExpired:
			why := "dewd gave no reason"
			if pkg.Data.Error != nil {
				why = *pkg.Data.Error
			}
			return false, fmt.Errorf("cannot use the uploaded files: %s", why)
		}
		next, err := api.Bits().Package(ctx, pkg.GUID)
		if err == nil {
			*pkg = next
		}
		return false, err
	})
}
