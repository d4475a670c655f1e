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

const isolationCategory = "Isolation segments"

// segmentOptions are the arguments of commands about isolation segments.
type segmentOptions struct {
	Name       string
	Org, Space string // one of them
	Force      bool
}

// IsolationCommands are about isolation segments.
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
		run(command.Verb{Name: "isolation-segments", Usage: "list the isolation segments, and the orgs that may use them", Flags: []cli.Flag{command.JSONFlag()}}, runSegments),
		run(command.Verb{Name: "create-isolation-segment", Args: "NAME", Usage: "make an isolation segment", About: noEffectNote + " There is one machine. A segment that is there already is fine."},
			func(ctx context.Context, o segmentOptions, w command.Env) error {
				return createOne(ctx, client.IsolationSegments, o.Name, v3.ChangeIsolationSegment{Name: o.Name}, w)
			}),
		run(command.Verb{Name: "delete-isolation-segment", Args: "SEGMENT", Usage: "delete an isolation segment that no org may use", Flags: []cli.Flag{command.ForceFlag()}},
			func(ctx context.Context, o segmentOptions, w command.Env) error {
				return deleteOne(ctx, client.IsolationSegments, command.DeleteOptions{Name: o.Name, Force: o.Force}, w)
			}),
		run(command.Verb{Name: "enable-org-isolation", Args: "ORG SEGMENT", Usage: "let an org use an isolation segment"}, runEntitle),
		run(command.Verb{Name: "disable-org-isolation", Args: "ORG SEGMENT", Usage: "no longer let an org use an isolation segment"}, runDisentitle),
		run(command.Verb{Name: "set-org-default-isolation-segment", Args: "ORG SEGMENT", Usage: "say which isolation segment the spaces of an org have that name none", About: noEffectNote}, runSetSegment),
		run(command.Verb{Name: "reset-org-default-isolation-segment", Args: "ORG", Usage: "give an org back the platform's own isolation segment"}, runSetSegment),
		run(command.Verb{Name: "set-space-isolation-segment", Args: "SPACE SEGMENT", Usage: "say which isolation segment a space has", About: noEffectNote}, runSetSegment),
		run(command.Verb{Name: "reset-space-isolation-segment", Args: "SPACE", Usage: "give a space back the isolation segment of its org"}, runSetSegment),
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
	return console.List{Rows: rows, Table: table, Empty: "There are no isolation segments that you may see"}.Show(w.Out)
}

// segmentAt is the name of the segment that is set at a path; empty for none.
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

// entitlement finds the segment and the org that the options name.
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
		return fmt.Errorf("cannot let org %s use isolation segment %s: %w", o.Org, o.Name, err)
	}
	w.Out.Say("Org %s may use isolation segment %s", o.Org, o.Name)
	return nil
}

func runDisentitle(ctx context.Context, o segmentOptions, w command.Env) error {
	s, to, err := o.entitlement(ctx, w)
	if err != nil {
		return err
	}
	if err := client.IsolationSegments.Unrelate(ctx, w.Client, s.GUID, to); err != nil {
		return fmt.Errorf("cannot take isolation segment %s from org %s: %w", o.Name, o.Org, err)
	}
	w.Out.Say("Org %s may not use isolation segment %s any more", o.Org, o.Name)
	return nil
}

// runSetSegment sets the segment of an org or of a space; without one it is that of
// what is around it again.
func runSetSegment(ctx context.Context, o segmentOptions, w command.Env) error {
	path, who, err := o.place(ctx, w)
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
		org := who
		if o.Space != "" {
			org = "the org of " + who
		}
		return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("%s may not use isolation segment %s", org, o.Name), Advice: "dew enable-org-isolation ORG " + o.Name + " lets it"}
	}
	if err != nil {
		return fmt.Errorf("cannot set the isolation segment of %s: %w", who, err)
	}
	if o.Name == "" {
		w.Out.Say("%s has no isolation segment of its own any more", console.Capitalize(who))
		return nil
	}
	w.Out.Say("%s has isolation segment %s now", console.Capitalize(who), o.Name)
	return nil
}

// place is where the segment is set, and whose it is.
func (o segmentOptions) place(ctx context.Context, w command.Env) (path, who string, err error) {
	if o.Space == "" {
		org, err := command.FindOrg(ctx, w, o.Org)
		return client.OrgSegment(org.GUID), "org " + org.Name, err
	}
	_, s, err := command.SpaceOptions{Name: o.Space}.Find(ctx, w)
	return client.SpaceSegment(s.GUID), "space " + s.Name, err
}
