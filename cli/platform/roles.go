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

// origin of the users that the daemon keeps itself.
const origin = client.Origin

// role is something that one may be in an org or in a space.
type role struct {
	name  string // as cf writes it
	kind  string // as the API does
	space bool
	may   string
}

// roles are all that can be given. Whoever has one of a space is a member of its
// org, too.
var roles = []role{
	{"OrgManager", "organization_manager", false, "manage spaces and members"},
	{"BillingManager", "organization_billing_manager", false, "see the org"},
	{"OrgAuditor", "organization_auditor", false, "see the org and its members"},
	{"SpaceManager", "space_manager", true, "manage the space's members"},
	{"SpaceDeveloper", "space_developer", true, "push, change and delete apps"},
	{"SpaceAuditor", "space_auditor", true, "see apps"},
	{"SpaceSupporter", "space_supporter", true, "see, start and stop apps"},
}

// memberKind is the role of everybody in an org; it is given along with others.
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

// roleName is a role as cf writes it.
func roleName(kind string) string {
	for _, r := range roles {
		if r.kind == kind {
			return r.name
		}
	}
	return "Member"
}

// parseRole reads the name of a role, as cf writes it or as the API does.
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
	what := "an org"
	if space {
		what = "a space"
	}
	text := fmt.Sprintf("there is no role %q of %s: it is one of %s", typed, what, strings.Join(names, ", "))
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
			fmt.Fprintf(&b, "   %-15s %s\n", r.name, r.may)
		}
	}
	return b.String()
}

// RoleCommands are about roles.
func RoleCommands(g *command.Set) []*cli.Command {
	clientFlag := command.BoolFlag("client", "USER is the id of a client")
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
		change(command.Verb{Name: "set-org-role", Args: "USER ORG ROLE", Usage: "give a user a role in an org", About: "Example:\n   dew set-org-role ada shop OrgManager"}, runSetRole),
		change(command.Verb{Name: "unset-org-role", Args: "USER ORG ROLE", Usage: "take a role in an org away from a user", About: "Example:\n   dew unset-org-role ada shop OrgManager"}, runUnsetRole),
		change(command.Verb{Name: "set-space-role", Args: "USER ORG SPACE ROLE", Usage: "give a user a role in a space", About: "Example:\n   dew set-space-role ada shop dev SpaceDeveloper"}, runSetRole),
		change(command.Verb{Name: "unset-space-role", Args: "USER ORG SPACE ROLE", Usage: "take a role in a space away from a user", About: "Example:\n   dew unset-space-role ada shop dev SpaceDeveloper"}, runUnsetRole),
		g.CommandWithEnv(command.Verb{Name: "org-users", Args: "ORG", Category: "Users", Usage: "list who has which role in an org", Flags: []cli.Flag{
			&cli.BoolFlag{Name: "all-users", Aliases: []string{"a"}, Usage: "those with roles in its spaces, too", DisableDefaultText: true}, command.JSONFlag(),
		}},
			func(c *cli.Context, w command.Env) error {
				return runMembers(c.Context, roleOptions{Org: c.Args().First(), All: c.Bool("all-users")}, w)
			}),
		g.CommandWithEnv(command.Verb{Name: "space-users", Args: "ORG SPACE", Category: "Users", Usage: "list who has which role in a space", Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, w command.Env) error {
				return runMembers(c.Context, roleOptions{Org: c.Args().First(), Space: c.Args().Get(1)}, w)
			}),
	}
}

type roleOptions struct {
	User, Org, Space, Role string
	Client                 bool
	All                    bool // of the spaces of the org, too
}

// where finds the org, and the space if one is named.
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
	who := v3.UserName{Username: o.User, Origin: origin}
	if o.Client {
		who = v3.UserName{GUID: o.User}
	} else if _, err := findUser(ctx, w, o.User); err != nil {
		return err
	}
	give := giveOrgRole
	if p.SpaceGUID != "" {
		give = giveSpaceRole
	}
	err = give(ctx, w, kind, who, p)
	if hasAlready(err) {
		w.Out.Say("%s is %s in %s already", o.User, roleName(kind), p)
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot make %s %s in %s: %w", o.User, roleName(kind), p, err)
	}
	w.Out.Say("%s is %s in %s now", o.User, roleName(kind), p)
	return nil
}

// giveOrgRole gives a role in an org.
func giveOrgRole(ctx context.Context, w command.Env, kind string, who v3.UserName, p command.Target) error {
	_, err := w.Client.Users().CreateRole(ctx, v3.CreateRole{
		Type: kind, Relationships: v3.CreateRoleRelationships{User: v3.ToUser{Data: &who}, Organization: v3.To(p.OrgGUID)},
	})
	return err
}

// giveSpaceRole gives a role in a space, which only a member of its org can have.
func giveSpaceRole(ctx context.Context, w command.Env, kind string, who v3.UserName, p command.Target) error {
	err := giveOrgRole(ctx, w, memberKind, who, p)
	// A manager of the space only may not make members, and need not: the answer to
	// the next request tells.
	if err != nil && !hasAlready(err) && !forbidden(err) {
		return err
	}
	_, err = w.Client.Users().CreateRole(ctx, v3.CreateRole{
		Type: kind, Relationships: v3.CreateRoleRelationships{User: v3.ToUser{Data: &who}, Space: v3.To(p.SpaceGUID)},
	})
	return err
}

// hasAlready tells whether the answer says that the role is there.
func hasAlready(err error) bool {
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
		w.Out.Say("%s is not %s in %s", o.User, roleName(kind), p)
		return nil
	}
	for _, r := range held {
		if err := w.Client.Users().DeleteRole(ctx, r.GUID); err != nil && !client.NotFound(err) {
			return fmt.Errorf("cannot take %s in %s from %s: %w", roleName(kind), p, o.User, err)
		}
	}
	w.Out.Say("%s is no %s in %s any more", o.User, roleName(kind), p)
	return nil
}

// memberRow is somebody with the roles that they have.
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
		w.Out.Say("Nobody has a role in %s", p)
		return nil
	}
	table := [][]string{{"user", "roles"}}
	for _, r := range rows {
		table = append(table, []string{r.Name, strings.Join(r.Roles, ", ")})
	}
	return w.Out.Table(table)
}

func readMembers(ctx context.Context, queries []client.RoleQuery, ask *client.Client) ([]memberRow, error) {
	var held []v3.Role
	for _, q := range queries {
		some, err := ask.Users().Roles(ctx, q)
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
	users, err := ask.Users().ByGUID(ctx, guids...)
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
		byUser[guid].Roles = slices.Compact(byUser[guid].Roles) // of several spaces
		rows = append(rows, *byUser[guid])
	}
	slices.SortFunc(rows, func(a, b memberRow) int { return strings.Compare(a.Name, b.Name) })
	return rows, nil
}
