package platform

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

const (
	isolationCategory = "Isolation segments"
	segmentNote       = "dew stores and shows isolation segments, but they have no effect: all apps run on one machine."
)

// segmentOptions are the arguments of the commands for isolation segments.
type segmentOptions struct {
	Name       string
	Org, Space string // one of the two
	Force      bool
}

// IsolationCommands are the commands for isolation segments.
func IsolationCommands(g *command.Set) []*cli.Command {
	run := func(v command.Verb, fn func(context.Context, segmentOptions, command.Env) error) *cli.Command {
		v.Category = isolationCategory
		words := strings.Fields(v.Args)
		return g.CommandWithEnv(v, func(c *cli.Context, w command.Env) error {
			o := segmentOptions{Force: c.Bool("f")}
			for i, word := range words {
				switch word {
				case "ORG":
					o.Org = c.Args().Get(i)
				case "SPACE":
					o.Space = c.Args().Get(i)
				default:
					o.Name = c.Args().Get(i)
				}
			}
			return fn(c.Context, o, w)
		})
	}
	return []*cli.Command{
		run(command.Verb{Name: "isolation-segments", Usage: "List isolation segments and the orgs that can use them", Flags: []cli.Flag{command.JSONFlag()}}, runSegments),
		run(command.Verb{Name: "create-isolation-segment", Args: "NAME", Usage: "Create an isolation segment", About: segmentNote + " If the isolation segment already exists, the command succeeds."},
			func(ctx context.Context, o segmentOptions, w command.Env) error {
				return createOne(ctx, client.IsolationSegments, o.Name, v3.ChangeIsolationSegment{Name: o.Name}, w)
			}),
		run(command.Verb{Name: "delete-isolation-segment", Args: "SEGMENT", Usage: "Delete an isolation segment that no org can use", Flags: []cli.Flag{command.ForceFlag()}},
			func(ctx context.Context, o segmentOptions, w command.Env) error {
				return deleteOne(ctx, client.IsolationSegments, command.DeleteOptions{Name: o.Name, Force: o.Force}, w)
			}),
		run(command.Verb{Name: "enable-org-isolation", Args: "ORG SEGMENT", Usage: "Allow an org to use an isolation segment"}, runEntitle),
		run(command.Verb{Name: "disable-org-isolation", Args: "ORG SEGMENT", Usage: "Stop allowing an org to use an isolation segment"}, runDisentitle),
		run(command.Verb{Name: "set-org-default-isolation-segment", Args: "ORG SEGMENT", Usage: "Set the default isolation segment of an org", About: "It applies to the spaces of the org that have no isolation segment of their own. " + segmentNote}, runSetSegment),
		run(command.Verb{Name: "reset-org-default-isolation-segment", Args: "ORG", Usage: "Reset an org to the isolation segment of the platform"}, runSetSegment),
		run(command.Verb{Name: "set-space-isolation-segment", Args: "SPACE SEGMENT", Usage: "Set the isolation segment of a space", About: segmentNote}, runSetSegment),
		run(command.Verb{Name: "reset-space-isolation-segment", Args: "SPACE", Usage: "Reset a space to the isolation segment of its org"}, runSetSegment),
	}
}

// segmentRow is an isolation segment in the list.
type segmentRow struct {
	GUID string   `json:"guid"`
	Name string   `json:"name"`
	Orgs []string `json:"orgs"`
}

func runSegments(ctx context.Context, _ segmentOptions, w command.Env) error {
	all, err := client.IsolationSegments.List(ctx, w.Client)
	if err != nil {
		return err
	}
	rows, table := []segmentRow{}, [][]string{{"name", "orgs"}}
	for _, s := range all {
		orgs, err := w.Client.Orgs().SegmentOrgs(ctx, s.GUID)
		if err != nil {
			return err
		}
		r := segmentRow{GUID: s.GUID, Name: s.Name, Orgs: console.Names(orgs, func(o v3.Organization) string { return o.Name })}
		rows, table = append(rows, r), append(table, []string{r.Name, strings.Join(r.Orgs, ", ")})
	}
	return console.List{Rows: rows, Table: table, Empty: "No isolation segments are visible to you"}.Show(w.Out)
}

// segmentAt is the name of the isolation segment that is set at an API path; empty if
// there is none.
func segmentAt(ctx context.Context, path string, w command.Env) (string, error) {
	guid, err := w.Client.Orgs().Segment(ctx, path)
	if err != nil || guid == "" {
		return "", err
	}
	all, err := client.IsolationSegments.Where("guids", guid).List(ctx, w.Client)
	if err != nil || len(all) == 0 {
		return "", err
	}
	return all[0].Name, nil
}

// entitlement finds the isolation segment and the org that the options name.
func (o segmentOptions) entitlement(ctx context.Context, w command.Env) (v3.IsolationSegment, client.Relation, error) {
	s, err := findOne(ctx, client.IsolationSegments, o.Name, w.Client)
	if err != nil {
		return s, client.Relation{}, err
	}
	org, err := command.FindOrg(ctx, w, o.Org)
	return s, client.Relation{Name: "organizations", GUIDs: []string{org.GUID}}, err
}

func runEntitle(ctx context.Context, o segmentOptions, w command.Env) error {
	s, to, err := o.entitlement(ctx, w)
	if err != nil {
		return err
	}
	if err := client.IsolationSegments.Relate(ctx, w.Client, s.GUID, to); err != nil {
		return fmt.Errorf("cannot allow org %s to use isolation segment %s: %w", o.Org, o.Name, err)
	}
	w.Out.Say("Org %s can now use isolation segment %s", o.Org, o.Name)
	return nil
}

func runDisentitle(ctx context.Context, o segmentOptions, w command.Env) error {
	s, to, err := o.entitlement(ctx, w)
	if err != nil {
		return err
	}
	if err := client.IsolationSegments.Unrelate(ctx, w.Client, s.GUID, to); err != nil {
		return fmt.Errorf("cannot revoke isolation segment %s from org %s: %w", o.Name, o.Org, err)
	}
	w.Out.Say("Org %s can no longer use isolation segment %s", o.Org, o.Name)
	return nil
}

// runSetSegment sets the isolation segment of an org or of a space. Without a name it
// resets an org to the segment of the platform, and a space to the segment of its org.
func runSetSegment(ctx context.Context, o segmentOptions, w command.Env) error {
	path, owner, err := o.place(ctx, w)
	if err != nil {
		return err
	}
	guid := ""
	if o.Name != "" {
		s, err := findOne(ctx, client.IsolationSegments, o.Name, w.Client)
		if err != nil {
			return err
		}
		guid = s.GUID
	}
	err = w.Client.Orgs().SetSegment(ctx, path, guid)
	if command.ErrorContains(err, "entitled") {
		org := "the org"
		if o.Space != "" {
			org = "its org"
		}
		return &console.Failure{
			Status: console.StatusFailed, Err: fmt.Errorf("cannot set the isolation segment of %s: %s is not allowed to use isolation segment %s", owner, org, o.Name),
			Advice: "To allow it: dew enable-org-isolation ORG " + o.Name,
		}
	}
	if err != nil {
		return fmt.Errorf("cannot set the isolation segment of %s: %w", owner, err)
	}
	if o.Name == "" {
		w.Out.Say("Reset the isolation segment of %s", owner)
		return nil
	}
	w.Out.Say("Set the isolation segment of %s to %s", owner, o.Name)
	return nil
}

// place is the API path of the setting, and the org or space that it belongs to.
func (o segmentOptions) place(ctx context.Context, w command.Env) (path, owner string, err error) {
	if o.Space == "" {
		org, err := command.FindOrg(ctx, w, o.Org)
		return client.OrgSegment(org.GUID), "org " + org.Name, err
	}
	_, s, err := command.SpaceOptions{Name: o.Space}.Find(ctx, w)
	return client.SpaceSegment(s.GUID), "space " + s.Name, err
}
