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

// StackCommands are about stacks.
func StackCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{
		g.Command(command.Verb{Name: "stacks", Category: "Platform", Usage: "list the root file systems that apps run on, and who may use them", Labels: stacksPath, Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, ask *client.Client, out *console.Console) error {
				return runStacks(c.Context, c.IsSet("labels"), ask, out)
			}),
		g.Command(command.Verb{
			Name: "stack", Args: "ACTION [NAME] [FILE]", Category: "Platform", Usage: "add, build, remove or show a root file system that apps run on",
			About: "ACTION is add, build or remove, or the name of the stack to show. add takes FILE, a tar of a root file system or an image as docker saves it, either of them also compressed with gzip or zstd; or with --image it fetches an image from a registry. build installs a Debian from this machine's apt sources (it needs mmdebstrap). Apps choose a stack with the key stack of their manifest.\n\n" +
				"Examples:\n   dew stack build debian --include default-jre-headless,ruby\n   dew stack add alpine alpine-minirootfs.tar.gz\n   dew stack add shop --image 127.0.0.1:5000/shop:1 --username clerk --password-stdin\n   dew stack remove alpine",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "image", Usage: "`reference` of the image to fetch, such as host:port/repository:tag"},
				&cli.StringFlag{Name: "username", Usage: "`name` of a user of the registry; the password comes from stdin, CF_DOCKER_PASSWORD or the terminal"},
				command.PasswordFlag(),
				&cli.StringSliceFlag{Name: "include", Usage: "Debian `packages` to build with, separated by commas; may be repeated"},
				&cli.StringFlag{Name: "name", Usage: "`name` of the stack to build, where it is not called debian"},
				command.BoolFlag("f", "remove without asking"), command.BoolFlag("guid", "print its guid and no more"), command.JSONFlag(),
			},
		}, func(c *cli.Context, ask *client.Client, out *console.Console) error {
			o := stackOptions{
				Action: c.Args().Get(0), Name: c.Args().Get(1), File: c.Args().Get(2), Image: c.String("image"), Username: c.String("username"),
				Stdin: c.Bool("password-stdin"), Include: c.StringSlice("include"), Called: c.String("name"), Force: c.Bool("f"), GUID: c.Bool("guid"),
			}
			return runStack(c.Context, o, ask, out)
		}),
		g.Command(command.Verb{
			Name: "update-stack", Args: "STACK", Category: "Platform", Usage: "say who may use a stack",
			About: "active: everybody. deprecated: everybody, with a warning. restricted: apps that have it already. disabled: nobody can be staged with it. Apps that run go on.\n\n" +
				"Example:\n   dew update-stack alpine --state deprecated --reason \"its time is over: use debian\"",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "state", Usage: "`active|restricted|deprecated|disabled`"},
				&cli.StringFlag{Name: "reason", Usage: "`text` that says why"},
			},
		}, func(c *cli.Context, ask *client.Client, out *console.Console) error {
			var body v3.UpdateStack
			if state := strings.ToUpper(c.String("state")); state != "" {
				body.State = &state
			}
			if reason := c.String("reason"); c.IsSet("reason") {
				body.StateReason = &reason
			}
			return runUpdateStack(c.Context, c.Args().First(), body, ask, out)
		}),
	}
}

// stackStates are who may use a stack.
var stackStates = []string{"ACTIVE", "RESTRICTED", "DEPRECATED", "DISABLED"}

func runUpdateStack(ctx context.Context, name string, body v3.UpdateStack, ask *client.Client, out *console.Console) error {
	switch {
	case body.State == nil && body.StateReason == nil:
		return console.UsageError("update-stack needs --state or --reason")
	case body.State != nil && !slices.Contains(stackStates, *body.State):
		return console.UsageError("--state must be one of %s, not %q", strings.ToLower(strings.Join(stackStates, ", ")), strings.ToLower(*body.State))
	}
	s, err := findStack(ctx, name, ask)
	if err != nil {
		return err
	}
	now, err := ask.Bits().UpdateStack(ctx, s.GUID, body)
	if err != nil {
		return fmt.Errorf("cannot change stack %s: %w", name, err)
	}
	out.Say("Stack %s is %s", name, strings.ToLower(now.State))
	return nil
}

type stackOptions struct {
	Action, Name, File, Image, Username, Called string
	Include                                     []string
	Stdin, Force, GUID                          bool
}

// stacksPath is where stacks are that can be used.
const stacksPath = "/v3/stacks"

// stackRow is a stack in the list.
type stackRow struct {
	v3.StackDetails
	Use    string `json:"use,omitempty"` // who may use it; empty: nobody yet
	Reason string `json:"use_reason,omitempty"`
}

// readStacks reads the stacks with who may use them. Those that labels chose are
// among those that can be used.
func readStacks(ctx context.Context, chosen bool, ask *client.Client) ([]stackRow, error) {
	all, err := ask.Bits().StackDetails(ctx)
	if err != nil {
		return nil, err
	}
	usable, err := ask.Bits().Stacks(ctx)
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

func runStacks(ctx context.Context, chosen bool, ask *client.Client, out *console.Console) error {
	all, err := readStacks(ctx, chosen, ask)
	if err != nil {
		return err
	}
	table := [][]string{{"name", "kind", "state", "use", "id", "size", "created", "description"}}
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

// stackNote is what there is to say about a stack.
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

func runStack(ctx context.Context, o stackOptions, ask *client.Client, out *console.Console) error {
	switch o.Action {
	case "add":
		return runAddStack(ctx, o, ask, out)
	case "build":
		return runBuildStack(ctx, o, ask, out)
	case "remove", "delete":
		return runRemoveStack(ctx, o, ask, out)
	}
	if o.Name != "" {
		return console.UsageError("stack: there is no action %q, there are add, build and remove", o.Action)
	}
	s, err := findStack(ctx, o.Action, ask)
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
		{"use", strings.ToLower(s.Use)},
		{"id", s.ID},
		{"size", console.Bytes(s.Size)},
		{"source", s.Source},
		{"description", stackNote(s)},
	}, Rows: s}.Show(out)
}

func findStack(ctx context.Context, name string, ask *client.Client) (stackRow, error) {
	all, err := readStacks(ctx, false, ask)
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

func runAddStack(ctx context.Context, o stackOptions, ask *client.Client, out *console.Console) error {
	switch {
	case o.Name == "":
		return console.UsageError("stack add needs the NAME of the stack")
	case (o.File == "") == (o.Image == ""):
		return console.UsageError("stack add needs either a FILE or --image")
	case o.Image == "":
		return addStackFile(ctx, o, ask, out)
	}
	body := v3.MakeStack{Name: o.Name, Image: &v3.DockerData{Image: o.Image, Username: o.Username}}
	if o.Username != "" {
		var err error
		body.Image.Password, err = out.Password(ctx, console.SecretOptions{
			Stdin: o.Stdin, Env: dockerPassword, Prompt: "Password of " + o.Username, Flag: "--password-stdin",
		})
		if err != nil {
			return err
		}
	}
	return followStack(ctx, body, ask, out)
}

func addStackFile(ctx context.Context, o stackOptions, ask *client.Client, out *console.Console) error {
	f, err := os.Open(o.File)
	if err != nil {
		return &console.Failure{Status: console.StatusUsage, Err: fmt.Errorf("cannot read the stack: %w", err)}
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() {
		return console.UsageError("%s is no file: pack the root file system with tar", o.File)
	}
	var r io.Reader = f
	out.Say("Uploading %s, %s", o.File, console.Bytes(fi.Size()))
	if out.ErrTerminal && fi.Size() > 0 {
		bar := progressbar.NewOptions64(fi.Size(), progressbar.OptionSetWriter(out.Err), progressbar.OptionShowBytes(true),
			progressbar.OptionSetWidth(30), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
		defer bar.Finish() //nolint:errcheck // a bar that cannot be drawn is nobody's error
		r = io.TeeReader(f, bar)
	}
	s, err := ask.Bits().UploadStack(ctx, o.Name, r)
	if err != nil {
		return fmt.Errorf("cannot add stack %s: %w", o.Name, err)
	}
	return stackDone(s, out)
}

func runBuildStack(ctx context.Context, o stackOptions, ask *client.Client, out *console.Console) error {
	if o.Name != "debian" || o.File != "" {
		return console.UsageError("stack build knows debian alone: dew stack build debian [--include PACKAGES] [--name NAME]")
	}
	if o.Called != "" {
		o.Name = o.Called
	}
	body := v3.MakeStack{Name: o.Name, Debian: &v3.MakeDebian{}}
	for _, list := range o.Include {
		body.Debian.Include = append(body.Debian.Include, strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })...)
	}
	return followStack(ctx, body, ask, out)
}

// followStack shows what the daemon tells while it makes a stack. Who leaves does
// not end it.
func followStack(ctx context.Context, body v3.MakeStack, ask *client.Client, out *console.Console) error {
	s, err := ask.Bits().MakeStack(ctx, body)
	if err != nil {
		return fmt.Errorf("cannot make stack %s: %w", body.Name, err)
	}
	wait := out.Wait("Making stack %s", s.Name)
	defer wait.End()
	told := ""
	err = client.Poll(ctx, func() (bool, error) {
		if s.State != v3.StackProcessing {
			return true, nil
		}
		if s.Progress != "" && s.Progress != told {
			told = s.Progress
			wait.Note("%s", told)
			out.Say("   %s", console.AppendPrintable(nil, []byte(told), out.Color))
		}
		next, err := ask.Bits().StackDetail(ctx, s.GUID)
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
		return &console.Failure{Status: console.StatusStaging, Err: fmt.Errorf("cannot make stack %s: %w", s.Name, errors.New(s.Error))}
	}
	return stackDone(s, out)
}

func stackDone(s v3.StackDetails, out *console.Console) error {
	if out.JSON {
		return out.Encode(s)
	}
	out.Say("Added stack %s, %s: apps choose it with 'stack: %s'", s.Name, console.Bytes(s.Size), s.Name)
	return nil
}

func runRemoveStack(ctx context.Context, o stackOptions, ask *client.Client, out *console.Console) error {
	if o.Name == "" {
		return console.UsageError("stack remove needs the NAME of the stack")
	}
	if !o.Force {
		if yes, err := out.Confirm(ctx, "Remove stack "+o.Name); err != nil || !yes {
			return err
		}
	}
	s, err := findStack(ctx, o.Name, ask)
	if command.IsMissing(err) {
		out.Say("There is no stack %s", o.Name)
		return nil
	}
	if err != nil {
		return err
	}
	defer out.Wait("Removing stack %s", o.Name).End()
	if err := ask.Bits().RemoveStack(ctx, s.GUID); err != nil {
		return fmt.Errorf("cannot remove stack %s: %w", o.Name, err)
	}
	out.Say("Removed stack %s", o.Name)
	return nil
}
