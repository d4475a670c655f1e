package platform

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// origin is the identity provider of the users that the daemon stores.
const origin = client.Origin

// role is a role of a user in an org or in a space.
type role struct {
	name  string // in cf
	kind  string // in the API
	space bool   // of a space, not of an org
	about string // what users with the role can do
}

// roles are all roles that can be assigned. A user with a role in a space is always a
// member of its org.
var roles = []role{
	{"OrgManager", "organization_manager", false, "Manage the spaces and users of the org"},
	{"BillingManager", "organization_billing_manager", false, "View the org"},
	{"OrgAuditor", "organization_auditor", false, "View the org and its users"},
	{"SpaceManager", "space_manager", true, "Manage the users of the space"},
	{"SpaceDeveloper", "space_developer", true, "Push, change and delete apps"},
	{"SpaceAuditor", "space_auditor", true, "View apps"},
	{"SpaceSupporter", "space_supporter", true, "View, start and stop apps"},
}

// memberKind is the role that every user of an org has. dew assigns it together with
// other roles.
const memberKind = "organization_user"

// RoleNames are the names of the roles in orgs, or in spaces.
func RoleNames(space bool) []string {
	var out []string
	for _, r := range roles {
		if r.space == space {
			out = append(out, r.name)
		}
	}
	return out
}

// roleName is the name of a role in cf.
func roleName(kind string) string {
	for _, r := range roles {
		if r.kind == kind {
			return r.name
		}
	}
	return "Member"
}

// parseRole reads the name of a role, in the form of cf or of the API.
func parseRole(typed string, space bool) (string, error) {
	var names []string
	for _, r := range roles {
		if r.space != space {
			continue
		}
		if strings.EqualFold(typed, r.name) || strings.EqualFold(typed, r.kind) {
			return r.kind, nil
		}
		names = append(names, r.name)
	}
	place := "an org"
	if space {
		place = "a space"
	}
	text := fmt.Sprintf("%q is not a role in %s: choose one of %s", typed, place, strings.Join(names, ", "))
	if near := command.Nearest(strings.ToLower(typed), console.Names(names, strings.ToLower)); near != "" {
		text += fmt.Sprintf("; did you mean %s?", names[slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, near) })])
	}
	return "", console.UsageError("%s", text)
}

// rolesHelp lists the roles of an org or of a space.
func rolesHelp(space bool) string {
	b := strings.Builder{}
	b.WriteString("Roles:\n")
	for _, r := range roles {
		if r.space == space {
			fmt.Fprintf(&b, "   %-15s %s\n", r.name, r.about)
		}
	}
	return b.String()
}

// RoleCommands are the commands for roles.
func RoleCommands(g *command.Set) []*cli.Command {
	clientFlag := command.BoolFlag("client", "USER is the ID of an OAuth client")
	change := func(v command.Verb, run func(context.Context, roleOptions, command.Env) error) *cli.Command {
		space := strings.Contains(v.Args, "SPACE")
		v.Category, v.Flags = "Users", []cli.Flag{clientFlag}
		v.About = rolesHelp(space) + "\n" + v.About
		return g.CommandWithEnv(v, func(c *cli.Context, w command.Env) error {
			o := roleOptions{User: c.Args().Get(0), Org: c.Args().Get(1), Role: c.Args().Get(2), Client: c.Bool("client")}
			if space {
				o.Space, o.Role = c.Args().Get(2), c.Args().Get(3)
			}
			return run(c.Context, o, w)
		})
	}
	return []*cli.Command{
		change(command.Verb{Name: "set-org-role", Args: "USER ORG ROLE", Usage: "Assign an org role to a user", About: "Example:\n   dew set-org-role ada shop OrgManager"}, runSetRole),
		change(command.Verb{Name: "unset-org-role", Args: "USER ORG ROLE", Usage: "Remove an org role from a user", About: "Example:\n   dew unset-org-role ada shop OrgManager"}, runUnsetRole),
		change(command.Verb{Name: "set-space-role", Args: "USER ORG SPACE ROLE", Usage: "Assign a space role to a user", About: "Example:\n   dew set-space-role ada shop dev SpaceDeveloper"}, runSetRole),
		change(command.Verb{Name: "unset-space-role", Args: "USER ORG SPACE ROLE", Usage: "Remove a space role from a user", About: "Example:\n   dew unset-space-role ada shop dev SpaceDeveloper"}, runUnsetRole),
		g.CommandWithEnv(command.Verb{Name: "org-users", Args: "ORG", Category: "Users", Usage: "List the users of an org with their roles", Flags: []cli.Flag{
			&cli.BoolFlag{Name: "all-users", Aliases: []string{"a"}, Usage: "Include users who have roles only in spaces of the org", DisableDefaultText: true}, command.JSONFlag(),
		}},
			func(c *cli.Context, w command.Env) error {
				return runMembers(c.Context, roleOptions{Org: c.Args().First(), All: c.Bool("all-users")}, w)
			}),
		g.CommandWithEnv(command.Verb{Name: "space-users", Args: "ORG SPACE", Category: "Users", Usage: "List the users of a space with their roles", Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, w command.Env) error {
				return runMembers(c.Context, roleOptions{Org: c.Args().First(), Space: c.Args().Get(1)}, w)
			}),
	}
}

type roleOptions struct {
	User, Org, Space, Role string
	Client                 bool
	All                    bool // include the spaces of the org
}

// place finds the org, and the space if the options name one.
func (o roleOptions) place(ctx context.Context, w command.Env) (command.Target, error) {
	org, err := command.FindOrg(ctx, w, o.Org)
	if err != nil || o.Space == "" {
		return command.Target{OrgGUID: org.GUID, Org: org.Name}, err
	}
	s, err := command.FindSpace(ctx, w, org, o.Space)
	return command.TargetOf(org, s), err
}

func runSetRole(ctx context.Context, o roleOptions, w command.Env) error {
	kind, err := parseRole(o.Role, o.Space != "")
	if err != nil {
		return err
	}
	p, err := o.place(ctx, w)
	if err != nil {
		return err
	}
	user := v3.UserName{Username: o.User, Origin: origin}
	if o.Client {
		user = v3.UserName{GUID: o.User}
	} else if _, err := findUser(ctx, w, o.User); err != nil {
		return err
	}
	assign := assignOrgRole
	if p.SpaceGUID != "" {
		assign = assignSpaceRole
	}
	err = assign(ctx, w, kind, user, p)
	if alreadyHasRole(err) {
		w.Out.Say("%s already has role %s in %s", o.User, roleName(kind), p)
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot assign role %s in %s to %s: %w", roleName(kind), p, o.User, err)
	}
	w.Out.Say("Assigned role %s in %s to %s", roleName(kind), p, o.User)
	return nil
}

// assignOrgRole assigns a role in an org.
func assignOrgRole(ctx context.Context, w command.Env, kind string, user v3.UserName, p command.Target) error {
	_, err := w.Client.Users().CreateRole(ctx, v3.CreateRole{
		Type: kind, Relationships: v3.CreateRoleRelationships{User: v3.ToUser{Data: &user}, Organization: v3.To(p.OrgGUID)},
	})
	return err
}

// assignSpaceRole assigns a role in a space, and the membership of its org, which the
// role requires.
func assignSpaceRole(ctx context.Context, w command.Env, kind string, user v3.UserName, p command.Target) error {
	err := assignOrgRole(ctx, w, memberKind, user, p)
	// A user who manages only the space cannot add members to the org. If the user is
	// not a member yet, the next request fails.
	if err != nil && !alreadyHasRole(err) && !forbidden(err) {
		return err
	}
	_, err = w.Client.Users().CreateRole(ctx, v3.CreateRole{
		Type: kind, Relationships: v3.CreateRoleRelationships{User: v3.ToUser{Data: &user}, Space: v3.To(p.SpaceGUID)},
	})
	return err
}

// alreadyHasRole reports whether the API answered that the user already has the role.
func alreadyHasRole(err error) bool {
	e := (*client.Error)(nil)
	return errors.As(err, &e) && e.Status == http.StatusUnprocessableEntity && strings.Contains(e.Detail, "already has")
}

func forbidden(err error) bool {
	e := (*client.Error)(nil)
	return errors.As(err, &e) && e.Status == http.StatusForbidden
}

func runUnsetRole(ctx context.Context, o roleOptions, w command.Env) error {
	kind, err := parseRole(o.Role, o.Space != "")
	if err != nil {
		return err
	}
	p, err := o.place(ctx, w)
	if err != nil {
		return err
	}
	guid := o.User
	if !o.Client {
		u, err := findUser(ctx, w, o.User)
		if err != nil {
			return err
		}
		guid = u.GUID
	}
	q := client.RoleQuery{Type: kind, User: guid, Space: p.SpaceGUID}
	if p.SpaceGUID == "" {
		q.Org = p.OrgGUID
	}
	held, err := w.Client.Users().Roles(ctx, q)
	if err != nil {
		return err
	}
	if len(held) == 0 {
		w.Out.Say("%s does not have role %s in %s", o.User, roleName(kind), p)
		return nil
	}
	for _, r := range held {
		if err := w.Client.Users().DeleteRole(ctx, r.GUID); err != nil && !client.NotFound(err) {
			return fmt.Errorf("cannot remove role %s in %s from %s: %w", roleName(kind), p, o.User, err)
		}
	}
	w.Out.Say("Removed role %s in %s from %s", roleName(kind), p, o.User)
	return nil
}

// memberRow is a user with their roles.
type memberRow struct {
	GUID  string   `json:"guid"`
	Name  string   `json:"name"`
	Roles []string `json:"roles"`
}

func runMembers(ctx context.Context, o roleOptions, w command.Env) error {
	p, err := o.place(ctx, w)
	if err != nil {
		return err
	}
	q := []client.RoleQuery{{Space: p.SpaceGUID}}
	if p.SpaceGUID == "" {
		q[0].Org = p.OrgGUID
	}
	if o.All {
		spaces, err := w.Client.Orgs().SpacesOf(ctx, p.OrgGUID)
		if err != nil {
			return err
		}
		for _, s := range spaces {
			q = append(q, client.RoleQuery{Space: s.GUID})
		}
	}
	rows, err := readMembers(ctx, q, w.Client)
	if err != nil {
		return err
	}
	if w.Out.JSON {
		return w.Out.Encode(rows)
	}
	if len(rows) == 0 {
		w.Out.Say("No users have a role in %s", p)
		return nil
	}
	table := [][]string{{"user", "roles"}}
	for _, r := range rows {
		table = append(table, []string{r.Name, strings.Join(r.Roles, ", ")})
	}
	return w.Out.Table(table)
}

func readMembers(ctx context.Context, queries []client.RoleQuery, api *client.Client) ([]memberRow, error) {
	var held []v3.Role
	for _, q := range queries {
		some, err := api.Users().Roles(ctx, q)
		if err != nil {
			return nil, err
		}
		held = append(held, some...)
	}
	byUser := map[string]*memberRow{}
	var guids []string
	for _, r := range held {
		guid := r.Relationships.User.ID()
		if byUser[guid] == nil {
			byUser[guid] = &memberRow{GUID: guid, Name: guid, Roles: []string{}}
			guids = append(guids, guid)
		}
		byUser[guid].Roles = append(byUser[guid].Roles, roleName(r.Type))
	}
	users, err := api.Users().ByGUID(ctx, guids...)
	if err != nil {
		return nil, err
	}
	for _, u := range users {
		if m := byUser[u.GUID]; m != nil && userName(u) != "" {
			m.Name = userName(u)
		}
	}
	rows := make([]memberRow, 0, len(guids))
	for _, guid := range guids {
		slices.Sort(byUser[guid].Roles)
		byUser[guid].Roles = slices.Compact(byUser[guid].Roles) // the same role in several spaces
		rows = append(rows, *byUser[guid])
	}
	slices.SortFunc(rows, func(a, b memberRow) int { return strings.Compare(a.Name, b.Name) })
	return rows, nil
}
