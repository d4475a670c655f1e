package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"
)

// spaceSSHCommands say whether people may enter the instances of a space at all;
// dew enable-ssh says it of one app.
func spaceSSHCommands(g *global) []*cli.Command {
	run := func(v verb, fn func(ctx context.Context, space string, w where) error) *cli.Command {
		v.args, v.category = "SPACE", "Inside of instances"
		return g.commandAt(v, func(c *cli.Context, w where) error { return fn(c.Context, c.Args().First(), w) })
	}
	set := func(allow bool) func(context.Context, string, where) error {
		return func(ctx context.Context, space string, w where) error { return runSetSpaceSSH(ctx, space, allow, w) }
	}
	return []*cli.Command{
		run(verb{name: "allow-space-ssh", usage: "let people into the instances of a space, where the app allows it, too"}, set(true)),
		run(verb{name: "disallow-space-ssh", usage: "let nobody into the instances of a space"}, set(false)),
		run(verb{name: "space-ssh-allowed", usage: "tell whether the instances of a space may be entered", flags: []cli.Flag{jsonFlag()}}, runSpaceSSH),
	}
}

// sshState writes whether a space may be entered.
func sshState(allowed bool) string {
	if allowed {
		return "allowed"
	}
	return "not allowed"
}

func runSetSpaceSSH(ctx context.Context, space string, allow bool, w where) error {
	org, s, err := spaceOptions{Name: space}.find(ctx, w)
	if err != nil {
		return err
	}
	if err := w.ask.Orgs().SetSpaceSSH(ctx, s.GUID, allow); err != nil {
		return fmt.Errorf("cannot change ssh in space %s: %w", space, err)
	}
	w.out.Say("ssh is %s in %s", sshState(allow), placeOf(org, s))
	return nil
}

func runSpaceSSH(ctx context.Context, space string, w where) error {
	org, s, err := spaceOptions{Name: space}.find(ctx, w)
	if err != nil {
		return err
	}
	allowed, err := w.ask.Orgs().SpaceSSH(ctx, s.GUID)
	if err != nil {
		return err
	}
	if w.out.JSON {
		return w.out.Encode(map[string]bool{"allowed": allowed})
	}
	fmt.Fprintf(w.out.Out, "ssh is %s in %s\n", sshState(allowed), placeOf(org, s))
	return nil
}
