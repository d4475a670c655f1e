package push

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// ManifestOptions are the path of a manifest and its variables.
type ManifestOptions struct {
	File      string
	Name      string   // of the only app of the manifest, if the manifest has no name for it
	Vars      []string // name=value
	VarsFiles []string
	Given     map[string]any // variables that Vars and VarsFiles override
	Optional  bool           // a missing manifest is not an error
	None      bool           // read no manifest
}

func manifestFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "f", Aliases: []string{"manifest"}, Usage: "Manifest `path` (default: manifest.yml in this folder)"},
		&cli.StringSliceFlag{Name: "var", Usage: "Value of the variable ((name)) in the manifest, as `name=value`; can be repeated"},
		command.BoolFlag("redact-env", "No effect: values of environment variables are always hidden"),
		&cli.StringSliceFlag{Name: "vars-file", Usage: "YAML file of variables, as a `path`; can be repeated; --var overrides it"},
	}
}

func manifestOptionsOf(c *cli.Context) ManifestOptions {
	return ManifestOptions{File: c.String("f"), Vars: c.StringSlice("var"), VarsFiles: c.StringSlice("vars-file")}
}

// loadManifest reads the manifest and its variables. The file is empty if there is no
// manifest and none is needed.
func loadManifest(o ManifestOptions, out *console.Console) (m app.Manifest, file string, err error) {
	if o.None {
		if o.File != "" {
			return m, "", console.UsageError("-f and --no-manifest cannot be used together")
		}
		return m, "", nil
	}
	file, err = manifestFile(o.File)
	if err != nil {
		return m, "", err
	}
	if file == "" {
		if o.Optional {
			return m, "", nil
		}
		return m, "", console.UsageError("this folder has no manifest.yml: pass the path of the manifest with -f")
	}
	vars, err := Variables(o)
	if err != nil {
		return m, "", err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return m, "", fmt.Errorf("cannot read the manifest: %w", err)
	}
	m, warnings, err := app.ParseNamedManifest(text, vars, o.Name)
	for _, w := range warnings {
		if e, ok := app.ReadManifestError(w); ok {
			w = e.In(file)
		}
		out.Warn(w)
	}
	return m, file, inFile(file, err)
}

// inFile adds the file and the line to an error in a manifest.
func inFile(file string, err error) error {
	var lines []string
	for _, e := range app.ManifestProblems(err) {
		lines = append(lines, e.In(file))
	}
	switch {
	case err == nil:
		return nil
	case len(lines) == 0:
		return fmt.Errorf("%s: %w", file, err)
	}
	return errors.New(strings.Join(lines, "\n"))
}

// withLines adds the lines of the manifest file to an error of the daemon. file is empty
// if there is no file.
func withLines(m app.Manifest, file string, err error) error {
	e := (*client.Error)(nil)
	if !errors.As(err, &e) {
		return err
	}
	located := *e
	var lines []string
	for text := range strings.SplitSeq(e.Detail, "\n") {
		line, rest := m.Locate(text)
		if file != "" && line > 0 {
			rest = fmt.Sprintf("%s:%d: %s", file, line, rest)
		}
		lines = append(lines, rest)
	}
	located.Detail = strings.Join(lines, "\n")
	return &located
}

// manifestFile finds the manifest: the path of -f, or the manifest in that folder. Without
// -f it is the one in this folder, or empty.
func manifestFile(given string) (string, error) {
	if given != "" {
		info, err := os.Stat(given)
		if err != nil {
			return "", &console.Failure{Status: console.StatusUsage, Err: fmt.Errorf("cannot find the manifest: %w", err), Advice: "Pass its path with -f"}
		}
		if !info.IsDir() {
			return given, nil
		}
	}
	for _, name := range []string{"manifest.yml", "manifest.yaml"} {
		name = filepath.Join(given, name)
		if _, err := os.Stat(name); err == nil {
			return name, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("cannot find the manifest: %w", err)
		}
	}
	if given != "" {
		return "", &console.Failure{Status: console.StatusUsage, Err: fmt.Errorf("folder %s has no manifest.yml", given), Advice: "Pass the path of the manifest with -f"}
	}
	return "", nil
}

// Variables are the values of --var and --vars-file.
func Variables(o ManifestOptions) (map[string]any, error) {
	vars := map[string]any{}
	maps.Copy(vars, o.Given)
	for _, name := range o.VarsFiles {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, &console.Failure{Status: console.StatusUsage, Err: fmt.Errorf("cannot read the variables: %w", err)}
		}
		more, err := app.ParseVariables(text)
		if err != nil {
			return nil, inFile(name, err)
		}
		maps.Copy(vars, more)
	}
	for _, s := range o.Vars {
		name, value, err := app.ParseVariable(s)
		if err != nil {
			return nil, console.UsageError("--var: %w", err)
		}
		vars[name] = value
	}
	return vars, nil
}

// applied is a manifest to apply.
type applied struct {
	space    string
	manifest app.Manifest
	file     string // empty: made from the flags
	diff     bool   // show the changes first
}

func apply(ctx context.Context, api *client.Client, out *console.Console, a applied) error {
	text, err := a.manifest.YAML()
	if err != nil {
		return fmt.Errorf("cannot write the manifest: %w", err)
	}
	if a.diff {
		diff, err := api.Apps().DiffManifest(ctx, a.space, text)
		if err != nil {
			return withLines(a.manifest, a.file, err)
		}
		printDiff(out, redacted(diff)) // other users can read the logs of CI jobs
	}
	defer out.Wait("Applying the manifest").End()
	return withLines(a.manifest, a.file, api.Apps().ApplyManifest(ctx, a.space, text))
}

func printDiff(out *console.Console, diff []v3.Difference) {
	if len(diff) == 0 {
		out.Say("The manifest changes nothing")
		return
	}
	out.Say("The manifest changes:")
	for _, d := range diff {
		switch d.Op {
		case "add":
			out.Say("  + %s: %s", d.Path, console.CompactJSON(d.Value))
		case "remove":
			out.Say("  - %s: %s", d.Path, console.CompactJSON(d.Was))
		default:
			out.Say("  ~ %s: %s, was %s", d.Path, console.CompactJSON(d.Value), console.CompactJSON(d.Was))
		}
	}
}

func createAppCommand(g *command.Set) *cli.Command {
	return g.Command(command.Verb{
		Name: "create-app", Args: "APP", Category: "Push", Usage: "Create an app in the targeted space, without files",
		About: "If the app already exists, the command succeeds.",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "b", Aliases: []string{"buildpack"}, Usage: "Stage with this `buildpack`; can be repeated"},
			&cli.StringFlag{Name: "app-type", Usage: "Lifecycle type, `buildpack|docker`: made of files, or an image"},
		},
	}, func(c *cli.Context, api *client.Client, out *console.Console) error {
		return runCreateApp(c.Context, createAppOptions{Name: c.Args().First(), Buildpacks: c.StringSlice("b"), Type: c.String("app-type")}, api, out)
	})
}

type createAppOptions struct {
	Name       string
	Buildpacks []string
	Type       string // of the lifecycle; empty: buildpack
}

// runCreateApp creates an app. An app that already exists is not an error.
func runCreateApp(ctx context.Context, o createAppOptions, api *client.Client, out *console.Console) error {
	home, err := command.SpaceGUID(ctx, api)
	if err != nil {
		return err
	}
	body := v3.CreateApp{Name: o.Name, Relationships: v3.CreateAppRelationships{Space: v3.To(home)}}
	switch {
	case o.Type != "" && o.Type != v3.LifecycleBuildpack && o.Type != v3.LifecycleDocker:
		return console.UsageError("--app-type must be buildpack or docker, not %q", o.Type)
	case o.Type == v3.LifecycleDocker && len(o.Buildpacks) > 0:
		return console.UsageError("-b cannot be used with --app-type docker: an image is not staged")
	case o.Type == v3.LifecycleDocker:
		body.Lifecycle = &v3.Lifecycle{Type: v3.LifecycleDocker}
	}
	if len(o.Buildpacks) > 0 {
		body.Lifecycle = &v3.Lifecycle{Type: v3.LifecycleBuildpack, Data: v3.LifecycleData{Buildpacks: o.Buildpacks}}
	}
	_, err = api.Apps().Create(ctx, body)
	if e := (*client.Error)(nil); errors.As(err, &e) && command.NameTaken(e) {
		out.Say("App %s already exists", o.Name)
		return nil
	}
	if err == nil {
		out.Say("Created app %s", o.Name)
	}
	return err
}

func applyManifestCommand(g *command.Set) *cli.Command {
	return g.Command(command.Verb{
		Name: "apply-manifest", Category: "Push", Usage: "Apply a manifest: create and update apps without uploading files", Flags: manifestFlags(),
	}, func(c *cli.Context, api *client.Client, out *console.Console) error {
		return runApplyManifest(c.Context, manifestOptionsOf(c), api, out)
	})
}

func runApplyManifest(ctx context.Context, o ManifestOptions, api *client.Client, out *console.Console) error {
	m, file, err := loadManifest(o, out)
	if err != nil {
		return err
	}
	home, err := command.SpaceGUID(ctx, api)
	if err != nil {
		return err
	}
	if err := apply(ctx, api, out, applied{space: home, manifest: m, file: file, diff: true}); err != nil {
		return err
	}
	out.Say("Applied %s", file)
	return nil
}
