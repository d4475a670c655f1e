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

// BuildpackCommands create, update and delete buildpacks.
func BuildpackCommands(g *command.Set) []*cli.Command {
	stack := func() cli.Flag {
		return &cli.StringFlag{Name: "s", Aliases: []string{"stack"}, Usage: "`stack` of the buildpack, where several have its name"}
	}
	return []*cli.Command{
		g.Command(command.Verb{
			Name: "create-buildpack", Args: "NAME PATH POSITION", Category: "Platform", Usage: "add a buildpack that apps may use",
			About: "PATH is a zip or a folder with bin/detect, bin/supply and bin/finalize or bin/compile, and\nbin/release. Apps that name no buildpack are shown to each in turn, by POSITION.\n\n" +
				"Example:\n   dew create-buildpack perl ./perl-buildpack 1",
			Flags: []cli.Flag{command.BoolFlag("disable", "not to be used yet")},
		}, func(c *cli.Context, ask *client.Client, out *console.Console) error {
			o := buildpackOptions{Name: c.Args().Get(0), Path: c.Args().Get(1), Position: c.Args().Get(2), Disable: c.Bool("disable")}
			return runCreateBuildpack(c.Context, o, ask, out)
		}),
		g.Command(command.Verb{
			Name: "update-buildpack", Args: "BUILDPACK", Category: "Platform", Usage: "change a buildpack: its files, its place, whether it may be used",
			About: "Example:\n   dew update-buildpack perl -p ./perl-buildpack.zip -i 1 --enable",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "p", Aliases: []string{"path"}, Usage: "`path` of a zip or folder with other files"},
				&cli.StringFlag{Name: "i", Aliases: []string{"position"}, Usage: "`position` among all"},
				&cli.StringFlag{Name: "rename", Usage: "another `name`"},
				command.BoolFlag("enable", "may be used"), command.BoolFlag("disable", "may not be used"),
				command.BoolFlag("lock", "its files cannot be replaced"), command.BoolFlag("unlock", "they can"), stack(), lifecycleFlag(),
				&cli.StringFlag{Name: "assign-stack", Usage: "`stack` of a buildpack that has none yet"},
			},
		}, func(c *cli.Context, ask *client.Client, out *console.Console) error {
			o := buildpackOptions{
				Name: c.Args().First(), Path: c.String("p"), Position: c.String("i"), Rename: c.String("rename"), Stack: c.String("s"), Lifecycle: c.String("lifecycle"), Assign: c.String("assign-stack"),
				Enable: c.Bool("enable"), Disable: c.Bool("disable"), Lock: c.Bool("lock"), Unlock: c.Bool("unlock"),
			}
			return runUpdateBuildpack(c.Context, o, ask, out)
		}),
		g.Command(command.Verb{
			Name: "delete-buildpack", Args: "BUILDPACK", Category: "Platform", Usage: "delete a buildpack; apps that were staged with it run on",
			About: "Of a buildpack that came with dew it deletes what was uploaded in its place.\n\n" +
				"Example:\n   dew delete-buildpack perl -f",
			Flags: []cli.Flag{command.ForceFlag(), stack(), lifecycleFlag()},
		}, func(c *cli.Context, ask *client.Client, out *console.Console) error {
			return runDeleteBuildpack(c.Context, buildpackOptions{Name: c.Args().First(), Force: c.Bool("f"), Stack: c.String("s"), Lifecycle: c.String("lifecycle")}, ask, out)
		}),
	}
}

func lifecycleFlag() cli.Flag {
	return &cli.StringFlag{Name: "lifecycle", Aliases: []string{"l"}, Usage: "`lifecycle` of the buildpack; there is one, buildpack"}
}

type buildpackOptions struct {
	Name, Path, Position, Rename, Stack  string
	Lifecycle                            string
	Assign                               string // stack of one that has none
	Enable, Disable, Lock, Unlock, Force bool
}

// position reads where a buildpack goes; nil: nobody says.
func (o buildpackOptions) position() (*int, error) {
	if o.Position == "" {
		return nil, nil
	}
	n, err := strconv.Atoi(o.Position)
	if err != nil || n < 1 {
		return nil, console.UsageError("%q is no position: the first is 1", o.Position)
	}
	return &n, nil
}

// onOrOff is what two flags of which one undoes the other say; nil: nothing.
func onOrOff(on, off bool, names string) (*bool, error) {
	if on && off {
		return nil, console.UsageError("%s exclude each other", names)
	}
	if !on && !off {
		return nil, nil
	}
	return &on, nil
}

func runCreateBuildpack(ctx context.Context, o buildpackOptions, ask *client.Client, out *console.Console) error {
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
	made, err := ask.Bits().CreateBuildpack(ctx, v3.CreateBuildpack{Name: o.Name, Position: at, Enabled: &enabled})
	if err != nil {
		return fmt.Errorf("cannot create buildpack %s: %w", o.Name, err)
	}
	if err := sendBuildpack(ctx, made, o.Path, b, ask); err != nil {
		return fmt.Errorf("buildpack %s is there, but has no files: %w", o.Name, err)
	}
	out.Say("Created buildpack %s at position %d", made.Name, made.Position)
	return nil
}

func sendBuildpack(ctx context.Context, to v3.Buildpack, path string, b *bits, ask *client.Client) error {
	name := strings.TrimSuffix(filepath.Base(path), ".zip") + ".zip"
	return ask.Bits().UploadBuildpack(ctx, to.GUID, name, func(w io.Writer) error { return writeZip(w, b.files, io.Discard) })
}

// findBuildpack finds a buildpack by name, and by stack where there are several.
func findBuildpack(ctx context.Context, o buildpackOptions, ask *client.Client) (v3.Buildpack, error) {
	all, err := ask.Bits().Buildpacks(ctx)
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
	return v3.Buildpack{}, console.UsageError("several buildpacks are called %s: say which with -s STACK", o.Name)
}

func runUpdateBuildpack(ctx context.Context, o buildpackOptions, ask *client.Client, out *console.Console) error {
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
	b, err := findBuildpack(ctx, o, ask)
	if err != nil {
		return err
	}
	// Unlocked before its files come, locked after.
	lock := body.Locked
	if lock != nil && *lock {
		body.Locked = nil
	}
	if _, err := ask.Bits().UpdateBuildpack(ctx, b.GUID, body); err != nil {
		return fmt.Errorf("cannot change buildpack %s: %w", o.Name, err)
	}
	if o.Path != "" {
		files, err := gather(o.Path, out)
		if err != nil {
			return err
		}
		defer files.close() //nolint:errcheck // only read
		if err := sendBuildpack(ctx, b, o.Path, files, ask); err != nil {
			return fmt.Errorf("cannot send the files of buildpack %s: %w", o.Name, err)
		}
	}
	if lock != nil && *lock {
		if _, err := ask.Bits().UpdateBuildpack(ctx, b.GUID, v3.UpdateBuildpack{Locked: lock}); err != nil {
			return fmt.Errorf("cannot lock buildpack %s: %w", o.Name, err)
		}
	}
	out.Say("Changed buildpack %s", o.Name)
	return nil
}

// runDeleteBuildpack deletes a buildpack; one that is not there is fine.
func runDeleteBuildpack(ctx context.Context, o buildpackOptions, ask *client.Client, out *console.Console) error {
	if !o.Force {
		if yes, err := out.Confirm(ctx, "Delete buildpack "+o.Name); err != nil || !yes {
			return err
		}
	}
	b, err := findBuildpack(ctx, o, ask)
	if command.IsMissing(err) {
		out.Say("There is no buildpack %s", o.Name)
		return nil
	}
	if err != nil {
		return err
	}
	defer out.Wait("Deleting buildpack %s", o.Name).End()
	if err := ask.Bits().DeleteBuildpack(ctx, b.GUID); err != nil {
		return fmt.Errorf("cannot delete buildpack %s: %w", o.Name, err)
	}
	if left, err := findBuildpack(ctx, o, ask); err == nil && left.GUID == b.GUID {
		out.Say("Buildpack %s is again what came with dew", o.Name)
		return nil
	}
	out.Say("Deleted buildpack %s", o.Name)
	return nil
}
