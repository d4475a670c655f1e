package platform

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/cli/command"
)

// SpaceSSHCommands are the commands that allow or disallow SSH access to the instances
// of a space. dew enable-ssh does the same for one app.
func SpaceSSHCommands(g *command.Set) []*cli.Command {
	run := func(v command.Verb, fn func(ctx context.Context, space string, w command.Env) error) *cli.Command {
		v.Args, v.Category = "SPACE", "SSH"
		return g.CommandWithEnv(v, func(c *cli.Context, w command.Env) error { return fn(c.Context, c.Args().First(), w) })
	}
	set := func(allow bool) func(context.Context, string, command.Env) error {
		return func(ctx context.Context, space string, w command.Env) error {
			return runSetSpaceSSH(ctx, space, allow, w)
		}
	}
	return []*cli.Command{
		run(command.Verb{Name: "allow-space-ssh", Usage: "Allow SSH access to instances in a space, for apps that have SSH enabled"}, set(true)),
		run(command.Verb{Name: "disallow-space-ssh", Usage: "Disallow SSH access to all instances in a space"}, set(false)),
		run(command.Verb{Name: "space-ssh-allowed", Usage: "Show whether SSH access is allowed in a space", Flags: []cli.Flag{command.JSONFlag()}}, runSpaceSSH),
	}
}

// sshState is the text for whether SSH access is allowed.
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
		return fmt.Errorf("cannot change SSH access in space %s: %w", space, err)
	}
	w.Out.Say("SSH access is %s in %s", sshState(allow), command.TargetOf(org, s))
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
	fmt.Fprintf(w.Out.Out, "SSH access is %s in %s\n", sshState(allowed), command.TargetOf(org, s))
	return nil
}
