package platform

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/cli/command"
)

// SpaceSSHCommands say whether people may enter the instances of a space at all;
// dew enable-ssh says it of one app.
func SpaceSSHCommands(g *command.Set) []*cli.Command {
	run := func(v command.Verb, fn func(ctx context.Context, space string, w command.Env) error) *cli.Command {
		v.Args, v.Category = "SPACE", "Inside of instances"
		return g.CommandWithEnv(v, func(c *cli.Context, w command.Env) error { return fn(c.Context, c.Args().First(), w) })
	}
	set := func(allow bool) func(context.Context, string, command.Env) error {
		return func(ctx context.Context, space string, w command.Env) error {
			return runSetSpaceSSH(ctx, space, allow, w)
		}
	}
	return []*cli.Command{
		run(command.Verb{Name: "allow-space-ssh", Usage: "let people into the instances of a space, where the app allows it, too"}, set(true)),
		run(command.Verb{Name: "disallow-space-ssh", Usage: "let nobody into the instances of a space"}, set(false)),
		run(command.Verb{Name: "space-ssh-allowed", Usage: "tell whether the instances of a space may be entered", Flags: []cli.Flag{command.JSONFlag()}}, runSpaceSSH),
	}
}

// sshState writes whether a space may be entered.
func sshState(allowed bool) string {
	if allowed {
		return "allowed"
	}
	return "not allowed"
}

func runSetSpaceSSH(ctx context.Context, space string, allow bool, w command.Env) error {
	org, s, err := command.SpaceOptions{Name: space}.Find(ctx, w)
	if err != nil {
		return err
	}
	if err := w.Client.Orgs().SetSpaceSSH(ctx, s.GUID, allow); err != nil {
		return fmt.Errorf("cannot change ssh in space %s: %w", space, err)
	}
	w.Out.Say("ssh is %s in %s", sshState(allow), command.TargetOf(org, s))
	return nil
}

func runSpaceSSH(ctx context.Context, space string, w command.Env) error {
	org, s, err := command.SpaceOptions{Name: space}.Find(ctx, w)
	if err != nil {
		return err
	}
	allowed, err := w.Client.Orgs().SpaceSSH(ctx, s.GUID)
	if err != nil {
		return err
	}
	if w.Out.JSON {
		return w.Out.Encode(map[string]bool{"allowed": allowed})
	}
	fmt.Fprintf(w.Out.Out, "ssh is %s in %s\n", sshState(allowed), command.TargetOf(org, s))
	return nil
}
