package push

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

const categoryBuildpacks = "Buildpacks and stacks"

// BuildpackCommands create, update and delete buildpacks.
func BuildpackCommands(g *command.Set) []*cli.Command {
	stack := func() cli.Flag {
		return &cli.StringFlag{Name: "s", Aliases: []string{"stack"}, Usage: "Use the buildpack for this `stack` if several have the same name"}
	}
	return []*cli.Command{
		g.Command(command.Verb{
			Name: "create-buildpack", Args: "NAME PATH POSITION", Category: categoryBuildpacks, Usage: "Create a buildpack",
			About: "PATH is a zip or a folder with bin/detect, bin/supply and bin/finalize (or bin/compile), and bin/release. For apps that name no buildpack, dew tries the buildpacks in the order of their POSITION.\n\n" +
				"Example:\n   dew create-buildpack perl ./perl-buildpack 1",
			Flags: []cli.Flag{command.BoolFlag("disable", "Do not allow apps to use the buildpack yet")},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			o := buildpackOptions{Name: c.Args().Get(0), Path: c.Args().Get(1), Position: c.Args().Get(2), Disable: c.Bool("disable")}
			return runCreateBuildpack(c.Context, o, api, out)
		}),
		g.Command(command.Verb{
			Name: "update-buildpack", Args: "BUILDPACK", Category: categoryBuildpacks, Usage: "Update a buildpack: files, position, name, enabled or disabled",
			About: "Example:\n   dew update-buildpack perl -p ./perl-buildpack.zip -i 1 --enable",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "p", Aliases: []string{"path"}, Usage: "New files: the `path` of a zip or folder"},
				&cli.StringFlag{Name: "i", Aliases: []string{"position"}, Usage: "New `position` among all buildpacks"},
				&cli.StringFlag{Name: "rename", Usage: "New `name`"},
				command.BoolFlag("enable", "Enable the buildpack for staging"), command.BoolFlag("disable", "Disable the buildpack for staging"),
				command.BoolFlag("lock", "Lock the buildpack: its files cannot be replaced"), command.BoolFlag("unlock", "Unlock the buildpack"), stack(), lifecycleFlag(),
				&cli.StringFlag{Name: "assign-stack", Usage: "Assign this `stack` to a buildpack without a stack"},
			},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			o := buildpackOptions{
				Name: c.Args().First(), Path: c.String("p"), Position: c.String("i"), Rename: c.String("rename"), Stack: c.String("s"), Lifecycle: c.String("lifecycle"), Assign: c.String("assign-stack"),
				Enable: c.Bool("enable"), Disable: c.Bool("disable"), Lock: c.Bool("lock"), Unlock: c.Bool("unlock"),
			}
			return runUpdateBuildpack(c.Context, o, api, out)
		}),
		g.Command(command.Verb{
			Name: "delete-buildpack", Args: "BUILDPACK", Category: categoryBuildpacks, Usage: "Delete a buildpack",
			About: "Apps that were staged with the buildpack keep running. If it replaced a buildpack that came with dew, dew uses that one again.\n\n" +
				"Example:\n   dew delete-buildpack perl -f",
			Flags: []cli.Flag{command.ForceFlag(), stack(), lifecycleFlag()},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			return runDeleteBuildpack(c.Context, buildpackOptions{Name: c.Args().First(), Force: c.Bool("f"), Stack: c.String("s"), Lifecycle: c.String("lifecycle")}, api, out)
		}),
	}
}

func lifecycleFlag() cli.Flag {
	return &cli.StringFlag{Name: "lifecycle", Aliases: []string{"l"}, Usage: "Only buildpacks with this `lifecycle`; the only one is buildpack"}
}

type buildpackOptions struct {
	Name, Path, Position, Rename, Stack  string
	Lifecycle                            string
	Assign                               string // stack for a buildpack without one
	Enable, Disable, Lock, Unlock, Force bool
}

// position reads the position of a buildpack; nil: none given.
func (o buildpackOptions) position() (*int, error) {
	if o.Position == "" {
		return nil, nil
	}
	n, err := strconv.Atoi(o.Position)
	if err != nil || n < 1 {
		return nil, console.UsageError("%q is not a position: the first is 1", o.Position)
	}
	return &n, nil
}

// onOrOff is the value of two opposite flags; nil: none given.
func onOrOff(on, off bool, names string) (*bool, error) {
	if on && off {
		return nil, console.UsageError("%s cannot be used together", names)
	}
	if !on && !off {
		return nil, nil
	}
	return &on, nil
}

func runCreateBuildpack(ctx context.Context, o buildpackOptions, api *client.Client, out *console.Console) error {
	at, err := o.position()
	if err != nil {
		return err
	}
	b, err := gather(o.Path, out)
	if err != nil {
		return err
	}
	defer b.close() //nolint:errcheck // only read
	enabled := !o.Disable
	made, err := api.Bits().CreateBuildpack(ctx, v3.CreateBuildpack{Name: o.Name, Position: at, Enabled: &enabled})
	if err != nil {
		return fmt.Errorf("cannot create buildpack %s: %w", o.Name, err)
	}
	if err := sendBuildpack(ctx, made, o.Path, b, api); err != nil {
		return fmt.Errorf("created buildpack %s, but cannot upload its files: %w", o.Name, err)
	}
	out.Say("Created buildpack %s at position %d", made.Name, made.Position)
	return nil
}

func sendBuildpack(ctx context.Context, to v3.Buildpack, path string, b *bits, api *client.Client) error {
	name := strings.TrimSuffix(filepath.Base(path), ".zip") + ".zip"
	return api.Bits().UploadBuildpack(ctx, to.GUID, name, func(w io.Writer) error { return writeZip(w, b.files, io.Discard) })
}

// findBuildpack finds a buildpack by name, and by stack if several have the name.
func findBuildpack(ctx context.Context, o buildpackOptions, api *client.Client) (v3.Buildpack, error) {
	all, err := api.Bits().Buildpacks(ctx)
	if err != nil {
		return v3.Buildpack{}, err
	}
	var found []v3.Buildpack
	for _, b := range all {
		if b.Name == o.Name && (o.Stack == "" || b.Stack != nil && *b.Stack == o.Stack) && (o.Lifecycle == "" || b.Lifecycle == o.Lifecycle) {
			found = append(found, b)
		}
	}
	switch len(found) {
	case 0:
		return v3.Buildpack{}, command.SuggestNearest(&client.Missing{Kind: "buildpack", Name: o.Name}, o.Name, all, func(b v3.Buildpack) string { return b.Name })
	case 1:
		return found[0], nil
	}
	return v3.Buildpack{}, console.UsageError("several buildpacks are named %s: choose one with -s STACK", o.Name)
}

func runUpdateBuildpack(ctx context.Context, o buildpackOptions, api *client.Client, out *console.Console) error {
	body := v3.UpdateBuildpack{}
	var err error
	if body.Position, err = o.position(); err != nil {
		return err
	}
	if body.Enabled, err = onOrOff(o.Enable, o.Disable, "--enable and --disable"); err != nil {
		return err
	}
	if body.Locked, err = onOrOff(o.Lock, o.Unlock, "--lock and --unlock"); err != nil {
		return err
	}
	if o.Rename != "" {
		body.Name = &o.Rename
	}
	if o.Assign != "" {
		body.Stack = &o.Assign
	}
	b, err := findBuildpack(ctx, o, api)
	if err != nil {
		return err
	}
	// Unlock before the upload, lock after it.
	lock := body.Locked
	if lock != nil && *lock {
		body.Locked = nil
	}
	if _, err := api.Bits().UpdateBuildpack(ctx, b.GUID, body); err != nil {
		return fmt.Errorf("cannot update buildpack %s: %w", o.Name, err)
	}
	if o.Path != "" {
		files, err := gather(o.Path, out)
		if err != nil {
			return err
		}
		defer files.close() //nolint:errcheck // only read
		if err := sendBuildpack(ctx, b, o.Path, files, api); err != nil {
			return fmt.Errorf("cannot upload the files of buildpack %s: %w", o.Name, err)
		}
	}
	if lock != nil && *lock {
		if _, err := api.Bits().UpdateBuildpack(ctx, b.GUID, v3.UpdateBuildpack{Locked: lock}); err != nil {
			return fmt.Errorf("cannot lock buildpack %s: %w", o.Name, err)
		}
	}
	out.Say("Updated buildpack %s", o.Name)
	return nil
}

// runDeleteBuildpack deletes a buildpack. A buildpack that does not exist is not an error.
func runDeleteBuildpack(ctx context.Context, o buildpackOptions, api *client.Client, out *console.Console) error {
	if !o.Force {
		if yes, err := out.Confirm(ctx, "Delete buildpack "+o.Name); err != nil || !yes {
			return err
		}
	}
	b, err := findBuildpack(ctx, o, api)
	if command.IsMissing(err) {
		out.Say("Buildpack %s does not exist", o.Name)
		return nil
	}
	if err != nil {
		return err
	}
	defer out.Wait("Deleting buildpack %s", o.Name).End()
	if err := api.Bits().DeleteBuildpack(ctx, b.GUID); err != nil {
		return fmt.Errorf("cannot delete buildpack %s: %w", o.Name, err)
	}
	if left, err := findBuildpack(ctx, o, api); err == nil && left.GUID == b.GUID {
		out.Say("Deleted the uploaded files. Buildpack %s is the one that came with dew again", o.Name)
		return nil
	}
	out.Say("Deleted buildpack %s", o.Name)
	return nil
}
