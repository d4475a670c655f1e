package platform

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

type targetOptions struct{ Org, Space string }

// TargetCommands are the commands that show and set the targeted org and space.
func TargetCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{g.CommandWithEnv(command.Verb{
		Name: "target", Alias: "t", Category: "Login", Usage: "Set or show the targeted org and space",
		About: "dew stores a target for each daemon, including the one of this machine. Without a target, dew uses org local and space dev, which a daemon creates when it first starts.\n\nExamples:\n   dew target\n   dew target -o shop -s dev\n   dew target -s test",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "o", Usage: "Target `org`; if it has only one space, dew targets that space"},
			&cli.StringFlag{Name: "s", Usage: "Target `space`; without -o, a space of the targeted org"},
			command.JSONFlag(),
		},
	}, func(c *cli.Context, w command.Env) error {
		return runTarget(c.Context, targetOptions{Org: c.String("o"), Space: c.String("s")}, w)
	})}
}

// targetView is the output of `dew target`.
type targetView struct {
	API   string `json:"api"` // URL, or path of the socket
	User  string `json:"user,omitempty"`
	Org   string `json:"org,omitempty"`
	Space string `json:"space,omitempty"`
}

func runTarget(ctx context.Context, o targetOptions, w command.Env) error {
	if o == (targetOptions{}) {
		return showTarget(ctx, w)
	}
	org, err := command.FindOrg(ctx, w, o.Org)
	if err != nil {
		return err
	}
	p := command.Target{OrgGUID: org.GUID, Org: org.Name}
	if p, err = withSpace(ctx, p, o.Space, w); err != nil {
		return err
	}
	if err := w.SaveTarget(ctx, p); err != nil {
		return err
	}
	w.Target = p
	return showTarget(ctx, w)
}

func showTarget(ctx context.Context, w command.Env) error {
	v := targetView{API: w.Client.Address(), Org: w.Target.Org, Space: w.Target.Space}
	if w.URL != "" {
		v.User = w.Session.LoggedInAs()
	}
	p, err := command.ResolveTarget(ctx, w.Client, w.Target)
	if err != nil && w.Target.OrgGUID != "" {
		return err
	}
	if err == nil {
		v.Org, v.Space = p.Org, p.Space
	}
	if w.Out.JSON {
		return w.Out.Encode(v)
	}
	rows := [][]string{{"api:", v.API}}
	for _, r := range [][]string{{"user:", v.User}, {"org:", v.Org}, {"space:", v.Space}} {
		if r[1] != "" {
			rows = append(rows, r)
		}
	}
	if err := w.Out.Table(rows); err != nil {
		return err
	}
	if v.Space == "" {
		w.Out.Say("No space is targeted. To choose one: dew target -o ORG -s SPACE")
	}
	return nil
}

// withSpace adds a space to the target: the one with the name, or without a name the
// only space of the org.
func withSpace(ctx context.Context, p command.Target, name string, w command.Env) (command.Target, error) {
	if name != "" {
		s, err := command.FindSpace(ctx, w, v3.Organization{GUID: p.OrgGUID, Name: p.Org}, name)
		p.SpaceGUID, p.Space = s.GUID, s.Name
		return p, err
	}
	spaces, err := w.Client.Orgs().SpacesOf(ctx, p.OrgGUID)
	if err == nil && len(spaces) == 1 {
		p.SpaceGUID, p.Space = spaces[0].GUID, spaces[0].Name
	}
	return p, err
}

// chooseTarget sets the target after a login. It uses the org and space of the options.
// Without them it uses the only ones, or the ones that the user picks.
func chooseTarget(ctx context.Context, o targetOptions, w command.Env) error {
	if o.Org == "" {
		orgs, err := w.Client.Orgs().List(ctx)
		if err != nil {
			return err
		}
		names := console.Names(orgs, func(o v3.Organization) string { return o.Name })
		if o.Org, err = chooseName(ctx, "Org", names, w.Out); err != nil {
			return err
		}
		if o.Org == "" {
			return runTarget(ctx, targetOptions{}, w)
		}
	}
	org, err := command.FindOrg(ctx, w, o.Org)
	if err != nil {
		return err
	}
	if o.Space == "" {
		spaces, err := w.Client.Orgs().SpacesOf(ctx, org.GUID)
		if err != nil {
			return err
		}
		if o.Space, err = chooseName(ctx, "Space", console.Names(spaces, func(s v3.Space) string { return s.Name }), w.Out); err != nil {
			return err
		}
	}
	return runTarget(ctx, o, w)
}

// chooseName is the only name, or the name that the user picks; empty if there is none.
func chooseName(ctx context.Context, kind string, names []string, out *console.Console) (string, error) {
	switch len(names) {
	case 0:
		return "", nil
	case 1:
		return names[0], nil
	default:
		return out.Pick(ctx, kind, names)
	}
}
