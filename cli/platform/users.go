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

// UserCommands are the commands for users.
func UserCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{
		g.CommandWithEnv(command.Verb{Name: "users", Category: "Users", Usage: "List users", Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, w command.Env) error { return runUsers(c.Context, w) }),
		g.CommandWithEnv(command.Verb{
			Name: "create-user", Args: "NAME [PASSWORD]", Category: "Users", Usage: "Create a user",
			About: "dew asks for the password, or reads it from stdin. Avoid the PASSWORD argument: all users of this machine can see it. A user without a role cannot see anything: assign a role with dew set-space-role.\n\nExamples:\n   dew create-user ada --email ada@example.com\n   dew create-user ci --password-stdin < secret",
			Flags: []cli.Flag{&cli.StringFlag{Name: "email", Usage: "Email `address` for notifications (default: NAME, if it is an email address)"}, command.PasswordFlag(), command.BoolFlag("password-prompt", "Ask for the password (the default)")},
		}, func(c *cli.Context, w command.Env) error {
			if c.Bool("password-prompt") && c.NArg() > 1 {
				return console.UsageError("create-user takes PASSWORD or --password-prompt, not both")
			}
			return runCreateUser(c.Context, userOptions{Name: c.Args().First(), Password: c.Args().Get(1), Email: c.String("email"), Stdin: c.Bool("password-stdin")}, w)
		}),
		g.CommandWithEnv(command.Verb{
			Name: "delete-user", Args: "USER", Category: "Users", Usage: "Delete a user and all their roles", Flags: []cli.Flag{command.BoolFlag("f", "Do not ask for confirmation")},
		}, func(c *cli.Context, w command.Env) error {
			return runDeleteUser(c.Context, command.DeleteOptions{Name: c.Args().First(), Force: c.Bool("f")}, w)
		}),
		g.CommandWithEnv(command.Verb{
			Name: "passwd", Alias: "pw", Args: "[USER]", Category: "Users", Usage: "Change your password, or as an administrator the password of another user",
			About: "With --password-stdin, dew reads the new password from stdin. To change your own password, put the old password on the line before it.\n\nExamples:\n   dew passwd\n   dew passwd ada",
			Flags: []cli.Flag{command.PasswordFlag()},
		}, func(c *cli.Context, w command.Env) error {
			return runPasswd(c.Context, g, userOptions{Name: c.Args().First(), Stdin: c.Bool("password-stdin")}, w)
		}),
	}
}

// userName is the name of a user. A client has none: then it is the presentation name.
func userName(u v3.User) string {
	if u.Username != nil && *u.Username != "" {
		return *u.Username
	}
	return u.PresentationName
}

// findUser finds a user by name. If there is none, the error suggests the nearest name.
func findUser(ctx context.Context, w command.Env, name string) (v3.User, error) {
	u, err := w.Client.Users().ByName(ctx, name)
	if !command.IsMissing(err) {
		return u, err
	}
	all, lerr := w.Client.Users().List(ctx)
	if lerr != nil {
		return u, lerr
	}
	return u, command.SuggestNearest(err, name, all, userName)
}

// userRow is a user in the list.
type userRow struct {
	GUID   string `json:"guid"`
	Name   string `json:"name"`
	Origin string `json:"origin"`
}

func runUsers(ctx context.Context, w command.Env) error {
	users, err := w.Client.Users().List(ctx)
	if err != nil {
		return err
	}
	rows := make([]userRow, len(users))
	for i, u := range users {
		rows[i] = userRow{GUID: u.GUID, Name: userName(u), Origin: "client"}
		if u.Origin != nil && *u.Origin != "" {
			rows[i].Origin = *u.Origin
		}
	}
	slices.SortFunc(rows, func(a, b userRow) int { return strings.Compare(a.Name, b.Name) })
	if w.Out.JSON {
		return w.Out.Encode(rows)
	}
	table := [][]string{{"name", "origin", "guid"}}
	for _, r := range rows {
		table = append(table, []string{r.Name, r.Origin, r.GUID})
	}
	return w.Out.Table(table)
}

type userOptions struct {
	Name, Password, Email string
	Stdin                 bool
}

// runCreateUser creates a user. It succeeds if the user already exists.
func runCreateUser(ctx context.Context, o userOptions, w command.Env) error {
	password, err := w.Out.Password(ctx, console.SecretOptions{Given: o.Password, Stdin: o.Stdin, Prompt: "Password for " + o.Name, New: true, Flag: "--password-stdin"})
	if err != nil {
		return err
	}
	if o.Email == "" {
		o.Email = o.Name
	}
	_, err = w.Client.Users().CreateAccount(ctx, client.NewAccount{Name: o.Name, Password: password, Email: o.Email})
	if e := (*client.Error)(nil); errors.As(err, &e) && e.Status == http.StatusConflict {
		w.Out.Say("User %s already exists", o.Name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot create user %s: %w", o.Name, err)
	}
	w.Out.Say("Created user %s. To assign a role: dew set-space-role %s ORG SPACE SpaceDeveloper", o.Name, o.Name)
	return nil
}

// runDeleteUser deletes a user. It succeeds if the user does not exist.
func runDeleteUser(ctx context.Context, o command.DeleteOptions, w command.Env) error {
	if !o.Force {
		if yes, err := w.Out.Confirm(ctx, "Delete user "+o.Name); err != nil || !yes {
			return err
		}
	}
	u, err := w.Client.Users().ByName(ctx, o.Name)
	if command.IsMissing(err) {
		w.Out.Say("User %s does not exist", o.Name)
		return nil
	}
	if err != nil {
		return err
	}
	// The roles first: they cannot be deleted once the account is gone.
	defer w.Out.Wait("Deleting user %s", o.Name).End()
	if err := w.Client.Users().Delete(ctx, u.GUID); err != nil && !client.NotFound(err) {
		return fmt.Errorf("cannot delete user %s: %w", o.Name, err)
	}
	if err := w.Client.Users().DeleteAccount(ctx, u.GUID); err != nil && !command.IsNotFound(err) {
		return fmt.Errorf("cannot delete the account of user %s: %w", o.Name, err)
	}
	w.Out.Say("Deleted user %s", o.Name)
	return nil
}

// runPasswd changes a password.
func runPasswd(ctx context.Context, g *command.Set, o userOptions, w command.Env) error {
	own := command.ReadClaims(w.Session.Access)
	if o.Name != "" && o.Name != w.Session.User {
		return setPassword(ctx, o, w)
	}
	if w.URL == "" || own.UserID == "" {
		return console.UsageError("passwd needs USER, because no user is logged in")
	}
	old, err := w.Out.Password(ctx, console.SecretOptions{Stdin: o.Stdin, Prompt: "Old password", Flag: "--password-stdin"})
	if err != nil {
		return err
	}
	newPassword, err := w.Out.Password(ctx, console.SecretOptions{Stdin: o.Stdin, Prompt: "New password", New: true, Flag: "--password-stdin"})
	if err != nil {
		return err
	}
	if err := w.Client.Users().SetPassword(ctx, own.UserID, old, newPassword); err != nil {
		return fmt.Errorf("cannot change the password: %w", err)
	}
	w.Out.Say("Changed the password of %s", w.Session.User)
	return loginAgain(ctx, g, w, newPassword)
}

// loginAgain logs in with the new password, because the daemon can have revoked the
// session that was created with the old one.
func loginAgain(ctx context.Context, g *command.Set, w command.Env, password string) error {
	plain, err := g.AnonymousClient(w.Endpoint)
	if err != nil {
		return err
	}
	token, err := plain.Users().Login(ctx, client.Grant{User: w.Session.User, Password: password})
	if err != nil {
		return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("cannot log in with the new password: %w", err), Advice: w.Session.LoginCommand(w.URL)}
	}
	return w.ConfigFile.Update(ctx, func(c *command.Config) error {
		s := c.Sessions[w.URL]
		s.SetToken(token)
		c.Sessions[w.URL] = s
		return nil
	})
}

func setPassword(ctx context.Context, o userOptions, w command.Env) error {
	u, err := findUser(ctx, w, o.Name)
	if err != nil {
		return err
	}
	newPassword, err := w.Out.Password(ctx, console.SecretOptions{Stdin: o.Stdin, Prompt: "New password for " + o.Name, New: true, Flag: "--password-stdin"})
	if err != nil {
		return err
	}
	if err := w.Client.Users().SetPassword(ctx, u.GUID, "", newPassword); err != nil {
		return fmt.Errorf("cannot change the password of %s: %w", o.Name, err)
	}
	w.Out.Say("Changed the password of %s", o.Name)
	return nil
}
