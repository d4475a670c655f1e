package push

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// StackCommands list, add, build, remove and update stacks.
func StackCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{
		g.Command(command.Verb{Name: "stacks", Category: categoryBuildpacks, Usage: "List stacks (the root file systems of apps) and their states", Labels: stacksPath, Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, api *client.Client, out *console.Console) error {
				return runStacks(c.Context, c.IsSet("labels"), api, out)
			}),
		g.Command(command.Verb{
			Name: "stack", Args: "ACTION [NAME] [FILE]", Category: categoryBuildpacks, Usage: "Add, build, remove or show a stack (the root file system of apps)",
			About: "ACTION is add, build or remove, or the name of the stack to show.\n\nadd reads FILE: a tar of a root file system, or an image from docker save. Both can be compressed with gzip or zstd. With --image it pulls an image from a registry. build installs Debian from the apt sources of this machine (it needs mmdebstrap).\n\nTo run an app on a stack, set stack: in its manifest.\n\n" +
				"Examples:\n   dew stack build debian --include default-jre-headless,ruby\n   dew stack add alpine alpine-minirootfs.tar.gz\n   dew stack add shop --image 127.0.0.1:5000/shop:1 --username clerk --password-stdin\n   dew stack remove alpine",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "image", Usage: "Docker `image` to pull, such as host:port/repository:tag"},
				&cli.StringFlag{Name: "username", Usage: "User `name` at the registry; dew reads the password from stdin, CF_DOCKER_PASSWORD or the terminal"},
				command.PasswordFlag(),
				&cli.StringSliceFlag{Name: "include", Usage: "Debian `packages` to install, separated by commas; can be repeated"},
				&cli.StringFlag{Name: "name", Usage: "Give the new stack this `name` (default: debian)"},
				command.BoolFlag("f", "Remove without asking for confirmation"), command.BoolFlag("guid", "Print only the guid of the stack"), command.JSONFlag(),
			},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			o := stackOptions{
				Action: c.Args().Get(0), Name: c.Args().Get(1), File: c.Args().Get(2), Image: c.String("image"), Username: c.String("username"),
				Stdin: c.Bool("password-stdin"), Include: c.StringSlice("include"), Called: c.String("name"), Force: c.Bool("f"), GUID: c.Bool("guid"),
			}
			return runStack(c.Context, o, api, out)
		}),
		g.Command(command.Verb{
			Name: "update-stack", Args: "STACK", Category: categoryBuildpacks, Usage: "Set the state of a stack",
			About: "The state decides which apps can be staged with the stack:\n   active      all apps\n   deprecated  all apps, with a warning\n   restricted  only apps that already use it\n   disabled    no apps\nRunning apps are not affected.\n\n" +
				"Example:\n   dew update-stack alpine --state deprecated --reason \"use debian instead\"",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "state", Usage: "New state: `active|restricted|deprecated|disabled`"},
				&cli.StringFlag{Name: "reason", Usage: "Reason for the state: a `text` that users see"},
			},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			var body v3.UpdateStack
			if state := strings.ToUpper(c.String("state")); state != "" {
				body.State = &state
			}
			if reason := c.String("reason"); c.IsSet("reason") {
				body.StateReason = &reason
			}
			return runUpdateStack(c.Context, c.Args().First(), body, api, out)
		}),
	}
}

// stackStates are the states that decide which apps can use a stack.
var stackStates = []string{"ACTIVE", "RESTRICTED", "DEPRECATED", "DISABLED"}

func runUpdateStack(ctx context.Context, name string, body v3.UpdateStack, api *client.Client, out *console.Console) error {
	switch {
	case body.State == nil && body.StateReason == nil:
		return console.UsageError("update-stack needs --state or --reason")
	case body.State != nil && !slices.Contains(stackStates, *body.State):
		return console.UsageError("--state must be one of %s, not %q", strings.ToLower(strings.Join(stackStates, ", ")), strings.ToLower(*body.State))
	}
	s, err := findStack(ctx, name, api)
	if err != nil {
		return err
	}
	now, err := api.Bits().UpdateStack(ctx, s.GUID, body)
	if err != nil {
		return fmt.Errorf("cannot update stack %s: %w", name, err)
	}
	out.Say("Stack %s is %s", name, strings.ToLower(now.State))
	return nil
}

type stackOptions struct {
	Action, Name, File, Image, Username, Called string
	Include                                     []string
	Stdin, Force, GUID                          bool
}

// stacksPath is the API path of usable stacks.
const stacksPath = "/v3/stacks"

// stackRow is a stack in the list.
type stackRow struct {
	v3.StackDetails
	Use    string `json:"use,omitempty"` // state of the stack for apps; empty: not usable yet
	Reason string `json:"use_reason,omitempty"`
}

// readStacks reads the stacks with their states. With chosen it returns only those that
// match --labels.
func readStacks(ctx context.Context, chosen bool, api *client.Client) ([]stackRow, error) {
	all, err := api.Bits().StackDetails(ctx)
	if err != nil {
		return nil, err
	}
	usable, err := api.Bits().Stacks(ctx)
	if err != nil {
		return nil, err
	}
	rows := []stackRow{}
	for _, s := range all {
		r := stackRow{StackDetails: s}
		i := slices.IndexFunc(usable, func(u v3.Stack) bool { return u.GUID == s.GUID })
		if i >= 0 {
			r.Use, r.Reason = usable[i].State, console.FirstSet(usable[i].StateReason)
		}
		if i >= 0 || !chosen {
			rows = append(rows, r)
		}
	}
	return rows, nil
}

func runStacks(ctx context.Context, chosen bool, api *client.Client, out *console.Console) error {
	all, err := readStacks(ctx, chosen, api)
	if err != nil {
		return err
	}
	table := [][]string{{"name", "kind", "state", "availability", "id", "size", "created", "description"}}
	for _, s := range all {
		created, size := "", ""
		if !s.CreatedAt.IsZero() {
			created = s.CreatedAt.Local().Format(time.DateTime)
		}
		if s.Size > 0 {
			size = console.Bytes(s.Size)
		}
		table = append(table, []string{s.Name, s.Kind, strings.ToLower(s.State), strings.ToLower(s.Use), s.ID, size, created, stackNote(s)})
	}
	return console.List{Rows: all, Table: table, Empty: "There are no stacks"}.Show(out)
}

// stackNote is the description column of a stack.
func stackNote(s stackRow) string {
	switch {
	case s.Error != "":
		return s.Error
	case s.Progress != "":
		return s.Progress
	case s.Reason != "":
		return s.Description + " (" + s.Reason + ")"
	}
	return s.Description
}

func runStack(ctx context.Context, o stackOptions, api *client.Client, out *console.Console) error {
	switch o.Action {
	case "add":
		return runAddStack(ctx, o, api, out)
	case "build":
		return runBuildStack(ctx, o, api, out)
	case "remove", "delete":
		return runRemoveStack(ctx, o, api, out)
	}
	if o.Name != "" {
		return console.UsageError("stack: %q is not an action: use add, build or remove", o.Action)
	}
	s, err := findStack(ctx, o.Action, api)
	if err != nil {
		return err
	}
	if o.GUID {
		fmt.Fprintln(out.Out, s.GUID)
		return nil
	}
	if out.JSON {
		return out.Encode(s)
	}
	return console.List{Table: [][]string{
		{"name", s.Name},
		{"kind", s.Kind},
		{"state", strings.ToLower(s.State)},
		{"availability", strings.ToLower(s.Use)},
		{"id", s.ID},
		{"size", console.Bytes(s.Size)},
		{"source", s.Source},
		{"description", stackNote(s)},
	}, Rows: s}.Show(out)
}

func findStack(ctx context.Context, name string, api *client.Client) (stackRow, error) {
	all, err := readStacks(ctx, false, api)
	if err != nil {
		return stackRow{}, err
	}
	for _, s := range all {
		if s.Name == name {
			return s, nil
		}
	}
	return stackRow{}, command.SuggestNearest(&client.Missing{Kind: "stack", Name: name}, name, all, func(s stackRow) string { return s.Name })
}

func runAddStack(ctx context.Context, o stackOptions, api *client.Client, out *console.Console) error {
	switch {
	case o.Name == "":
		return console.UsageError("stack add needs the NAME of the stack")
	case (o.File == "") == (o.Image == ""):
		return console.UsageError("stack add needs either a FILE or --image")
	case o.Image == "":
		return addStackFile(ctx, o, api, out)
	}
	body := v3.MakeStack{Name: o.Name, Image: &v3.DockerData{Image: o.Image, Username: o.Username}}
	if o.Username != "" {
		var err error
		body.Image.Password, err = out.Password(ctx, console.SecretOptions{
			Stdin: o.Stdin, Env: dockerPassword, Prompt: "Password for " + o.Username, Flag: "--password-stdin",
		})
		if err != nil {
			return err
		}
	}
	return followStack(ctx, body, api, out)
}

func addStackFile(ctx context.Context, o stackOptions, api *client.Client, out *console.Console) error {
	f, err := os.Open(o.File)
	if err != nil {
		return &console.Failure{Status: console.StatusUsage, Err: fmt.Errorf("cannot read the stack: %w", err)}
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() {
		return console.UsageError("%s is not a file: pack the root file system with tar", o.File)
	}
	var r io.Reader = f
	out.Say("Uploading %s, %s", o.File, console.Bytes(fi.Size()))
	if out.ErrTerminal && fi.Size() > 0 {
		bar := progressbar.NewOptions64(fi.Size(), progressbar.OptionSetWriter(out.Err), progressbar.OptionShowBytes(true),
			progressbar.OptionSetWidth(30), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
		defer bar.Finish() //nolint:errcheck // failing to draw the bar is not an error
		r = io.TeeReader(f, bar)
	}
	s, err := api.Bits().UploadStack(ctx, o.Name, r)
	if err != nil {
		return fmt.Errorf("cannot add stack %s: %w", o.Name, err)
	}
	return stackDone(s, out)
}

func runBuildStack(ctx context.Context, o stackOptions, api *client.Client, out *console.Console) error {
	if o.Name != "debian" || o.File != "" {
		return console.UsageError("stack build can build only debian: dew stack build debian [--include PACKAGES] [--name NAME]")
	}
	if o.Called != "" {
		o.Name = o.Called
	}
	body := v3.MakeStack{Name: o.Name, Debian: &v3.MakeDebian{}}
	for _, list := range o.Include {
		body.Debian.Include = append(body.Debian.Include, strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })...)
	}
	return followStack(ctx, body, api, out)
}

// followStack shows the progress of a stack that the daemon creates. The daemon continues
// if the command is interrupted.
func followStack(ctx context.Context, body v3.MakeStack, api *client.Client, out *console.Console) error {
	s, err := api.Bits().MakeStack(ctx, body)
	if err != nil {
		return fmt.Errorf("cannot create stack %s: %w", body.Name, err)
	}
	wait := out.Wait("Creating stack %s", s.Name)
	defer wait.End()
	progress := ""
	err = client.Poll(ctx, func() (bool, error) {
		if s.State != v3.StackProcessing {
			return true, nil
		}
		if s.Progress != "" && s.Progress != progress {
			progress = s.Progress
			wait.Note("%s", progress)
			out.Say("   %s", console.AppendPrintable(nil, []byte(progress), out.Color))
		}
		next, err := api.Bits().StackDetail(ctx, s.GUID)
		if err == nil {
			s = next
		}
		return false, err
	})
	if err != nil {
		return err
	}
	wait.End()
	if s.State == v3.StackFailed {
		return &console.Failure{Status: console.StatusStaging, Err: fmt.Errorf("cannot create stack %s: %w", s.Name, errors.New(s.Error))}
	}
	return stackDone(s, out)
}

func stackDone(s v3.StackDetails, out *console.Console) error {
	if out.JSON {
		return out.Encode(s)
	}
	out.Say("Added stack %s (%s). To use it, set stack: %s in a manifest", s.Name, console.Bytes(s.Size), s.Name)
	return nil
}

func runRemoveStack(ctx context.Context, o stackOptions, api *client.Client, out *console.Console) error {
	if o.Name == "" {
		return console.UsageError("stack remove needs the NAME of the stack")
	}
	if !o.Force {
		if yes, err := out.Confirm(ctx, "Remove stack "+o.Name); err != nil || !yes {
			return err
		}
	}
	s, err := findStack(ctx, o.Name, api)
	if command.IsMissing(err) {
		out.Say("Stack %s does not exist", o.Name)
		return nil
	}
	if err != nil {
		return err
	}
	defer out.Wait("Removing stack %s", o.Name).End()
	if err := api.Bits().RemoveStack(ctx, s.GUID); err != nil {
		return fmt.Errorf("cannot remove stack %s: %w", o.Name, err)
	}
	out.Say("Removed stack %s", o.Name)
	return nil
}
