package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

const isolationCategory = "Isolation segments"

// segmentOptions are the arguments of commands about isolation segments.
type segmentOptions struct {
	Name       string
	Org, Space string // one of them
	Force      bool
}

func isolationCommands(g *global) []*cli.Command {
	run := func(v verb, fn func(context.Context, segmentOptions, where) error) *cli.Command {
		v.category = isolationCategory
		words := strings.Fields(v.args)
		return g.commandAt(v, func(c *cli.Context, w where) error {
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
		run(verb{name: "isolation-segments", usage: "list the isolation segments, and the orgs that may use them", flags: []cli.Flag{jsonFlag()}}, runSegments),
		run(verb{name: "create-isolation-segment", args: "NAME", usage: "make an isolation segment", about: aRecord + " There is one machine. A segment that is there already is fine."},
			func(ctx context.Context, o segmentOptions, w where) error {
				return createOne(ctx, client.IsolationSegments, o.Name, v3.ChangeIsolationSegment{Name: o.Name}, w)
			}),
		run(verb{name: "delete-isolation-segment", args: "SEGMENT", usage: "delete an isolation segment that no org may use", flags: []cli.Flag{forceFlag()}},
			func(ctx context.Context, o segmentOptions, w where) error {
				return deleteOne(ctx, client.IsolationSegments, deleteOptions{Name: o.Name, Force: o.Force}, w)
			}),
		run(verb{name: "enable-org-isolation", args: "ORG SEGMENT", usage: "let an org use an isolation segment"}, runEntitle),
		run(verb{name: "disable-org-isolation", args: "ORG SEGMENT", usage: "no longer let an org use an isolation segment"}, runDisentitle),
		run(verb{name: "set-org-default-isolation-segment", args: "ORG SEGMENT", usage: "say which isolation segment the spaces of an org have that name none", about: aRecord}, runSetSegment),
		run(verb{name: "reset-org-default-isolation-segment", args: "ORG", usage: "give an org back the platform's own isolation segment"}, runSetSegment),
		run(verb{name: "set-space-isolation-segment", args: "SPACE SEGMENT", usage: "say which isolation segment a space has", about: aRecord}, runSetSegment),
		run(verb{name: "reset-space-isolation-segment", args: "SPACE", usage: "give a space back the isolation segment of its org"}, runSetSegment),
	}
}

// segmentRow is an isolation segment in the list.
type segmentRow struct {
	GUID string   `json:"guid"`
	Name string   `json:"name"`
	Orgs []string `json:"orgs"`
}

func runSegments(ctx context.Context, _ segmentOptions, w where) error {
	all, err := client.IsolationSegments.List(ctx, w.ask)
	if err != nil {
		return err
	}
	rows, table := []segmentRow{}, [][]string{{"name", "orgs"}}
	for _, s := range all {
		orgs, err := w.ask.Orgs().SegmentOrgs(ctx, s.GUID)
		if err != nil {
			return err
		}
		r := segmentRow{GUID: s.GUID, Name: s.Name, Orgs: console.Names(orgs, func(o v3.Organization) string { return o.Name })}
		rows, table = append(rows, r), append(table, []string{r.Name, strings.Join(r.Orgs, ", ")})
	}
	return console.List{Rows: rows, Table: table, Empty: "There are no isolation segments that you may see"}.Show(w.out)
}

// segmentAt is the name of the segment that is set at a path; empty for none.
func segmentAt(ctx context.Context, path string, w where) (string, error) {
	guid, err := w.ask.Orgs().Segment(ctx, path)
	if err != nil || guid == "" {
		return "", err
	}
	all, err := client.IsolationSegments.Where("guids", guid).List(ctx, w.ask)
	if err != nil || len(all) == 0 {
		return "", err
	}
	return all[0].Name, nil
}

// entitlement finds the segment and the org that the options name.
func (o segmentOptions) entitlement(ctx context.Context, w where) (v3.IsolationSegment, client.Relation, error) {
	s, err := findOne(ctx, client.IsolationSegments, o.Name, w.ask)
	if err != nil {
		return s, client.Relation{}, err
	}
	org, err := findOrg(ctx, w, o.Org)
	return s, client.Relation{Name: "organizations", GUIDs: []string{org.GUID}}, err
}

func runEntitle(ctx context.Context, o segmentOptions, w where) error {
	s, to, err := o.entitlement(ctx, w)
	if err != nil {
		return err
	}
	if err := client.IsolationSegments.Relate(ctx, w.ask, s.GUID, to); err != nil {
		return fmt.Errorf("cannot let org %s use isolation segment %s: %w", o.Org, o.Name, err)
	}
	w.out.Say("Org %s may use isolation segment %s", o.Org, o.Name)
	return nil
}

func runDisentitle(ctx context.Context, o segmentOptions, w where) error {
	s, to, err := o.entitlement(ctx, w)
	if err != nil {
		return err
	}
	if err := client.IsolationSegments.Unrelate(ctx, w.ask, s.GUID, to); err != nil {
		return fmt.Errorf("cannot take isolation segment %s from org %s: %w", o.Name, o.Org, err)
	}
	w.out.Say("Org %s may not use isolation segment %s any more", o.Org, o.Name)
	return nil
}

// runSetSegment sets the segment of an org or of a space; without one it is that of
// what is around it again.
func runSetSegment(ctx context.Context, o segmentOptions, w where) error {
	path, who, err := o.place(ctx, w)
	if err != nil {
		return err
	}
	guid := ""
	if o.Name != "" {
		s, err := findOne(ctx, client.IsolationSegments, o.Name, w.ask)
		if err != nil {
			return err
		}
		guid = s.GUID
	}
	err = w.ask.Orgs().SetSegment(ctx, path, guid)
	if answers(err, "entitled") {
		org := who
		if o.Space != "" {
			org = "the org of " + who
		}
		return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("%s may not use isolation segment %s", org, o.Name), Todo: "dew enable-org-isolation ORG " + o.Name + " lets it"}
	}
	if err != nil {
		return fmt.Errorf("cannot set the isolation segment of %s: %w", who, err)
	}
	if o.Name == "" {
		w.out.Say("%s has no isolation segment of its own any more", console.Capitalize(who))
		return nil
	}
	w.out.Say("%s has isolation segment %s now", console.Capitalize(who), o.Name)
	return nil
}

// place is where the segment is set, and whose it is.
func (o segmentOptions) place(ctx context.Context, w where) (path, who string, err error) {
	if o.Space == "" {
		org, err := findOrg(ctx, w, o.Org)
		return client.OrgSegment(org.GUID), "org " + org.Name, err
	}
	_, s, err := spaceOptions{Name: o.Space}.find(ctx, w)
	return client.SpaceSegment(s.GUID), "space " + s.Name, err
}
