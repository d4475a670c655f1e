package main

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
	"github.com/dewrun/dew/cli/console"
)

func userCommands(g *global) []*cli.Command {
	return []*cli.Command{
		g.commandAt(verb{name: "users", category: "Users", usage: "list the users", flags: []cli.Flag{jsonFlag()}},
			func(c *cli.Context, w where) error { return runUsers(c.Context, w) }),
		g.commandAt(verb{
			name: "create-user", args: "NAME [PASSWORD]", category: "Users", usage: "create a user",
			about: "The password is asked for, or read from stdin; as an argument it is seen by everybody on the machine. A user who has no role sees nothing: dew set-space-role gives one.\n\nExamples:\n   dew create-user ada --email ada@example.com\n   dew create-user ci --password-stdin < secret",
			flags: []cli.Flag{&cli.StringFlag{Name: "email", Usage: "`address` that notifications go to (default: the name, if it is one)"}, passwordFlag(), boolFlag("password-prompt", "ask for the password, as without it")},
		}, func(c *cli.Context, w where) error {
			if c.Bool("password-prompt") && c.NArg() > 1 {
				return console.UsageError("create-user takes PASSWORD or --password-prompt")
			}
			return runCreateUser(c.Context, userOptions{Name: c.Args().First(), Password: c.Args().Get(1), Email: c.String("email"), Stdin: c.Bool("password-stdin")}, w)
		}),
		g.commandAt(verb{
			name: "delete-user", args: "USER", category: "Users", usage: "delete a user with all their roles", flags: []cli.Flag{boolFlag("f", "do not ask")},
		}, func(c *cli.Context, w where) error {
			return runDeleteUser(c.Context, deleteOptions{Name: c.Args().First(), Force: c.Bool("f")}, w)
		}),
		g.commandAt(verb{
			name: "passwd", alias: "pw", args: "[USER]", category: "Users", usage: "change your password, or as an administrator that of a user",
			about: "With --password-stdin the new password is read from stdin; of one's own the old one stands on the line before it.\n\nExamples:\n   dew passwd\n   dew passwd ada",
			flags: []cli.Flag{passwordFlag()},
		}, func(c *cli.Context, w where) error {
			return runPasswd(c.Context, g, userOptions{Name: c.Args().First(), Stdin: c.Bool("password-stdin")}, w)
		}),
	}
}

// userName is a user's name; a client has none.
func userName(u v3.User) string {
	if u.Username != nil && *u.Username != "" {
		return *u.Username
	}
	return u.PresentationName
}

// findUser finds a user by name; the error offers a name that is near.
func findUser(ctx context.Context, w where, name string) (v3.User, error) {
	u, err := w.ask.Users().ByName(ctx, name)
	if !isMissing(err) {
		return u, err
	}
	all, lerr := w.ask.Users().List(ctx)
	if lerr != nil {
		return u, lerr
	}
	return u, hint(err, name, all, userName)
}

// userRow is a user in the list.
type userRow struct {
	GUID   string `json:"guid"`
	Name   string `json:"name"`
	Origin string `json:"origin"`
}

func runUsers(ctx context.Context, w where) error {
	users, err := w.ask.Users().List(ctx)
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
	if w.out.JSON {
		return w.out.Encode(rows)
	}
	table := [][]string{{"name", "origin", "guid"}}
	for _, r := range rows {
		table = append(table, []string{r.Name, r.Origin, r.GUID})
	}
	return w.out.Table(table)
}

type userOptions struct {
	Name, Password, Email string
	Stdin                 bool
}

// runCreateUser creates a user; one that is there already is fine.
func runCreateUser(ctx context.Context, o userOptions, w where) error {
	password, err := w.out.Password(ctx, console.SecretOptions{Given: o.Password, Stdin: o.Stdin, Prompt: "Password of " + o.Name, New: true, Flag: "--password-stdin"})
	if err != nil {
		return err
	}
	if o.Email == "" {
		o.Email = o.Name
	}
	_, err = w.ask.Users().CreateAccount(ctx, client.NewAccount{Name: o.Name, Password: password, Email: o.Email})
	if e := (*client.Error)(nil); errors.As(err, &e) && e.Status == http.StatusConflict {
		w.out.Say("User %s exists already", o.Name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot create user %s: %w", o.Name, err)
	}
	w.out.Say("Created user %s; dew set-space-role %s ORG SPACE SpaceDeveloper lets them work", o.Name, o.Name)
	return nil
}

// runDeleteUser deletes a user; one that is not there is fine.
func runDeleteUser(ctx context.Context, o deleteOptions, w where) error {
	if !o.Force {
		if yes, err := w.out.Confirm(ctx, "Delete user "+o.Name); err != nil || !yes {
			return err
		}
	}
	u, err := w.ask.Users().ByName(ctx, o.Name)
	if isMissing(err) {
		w.out.Say("There is no user %s", o.Name)
		return nil
	}
	if err != nil {
		return err
	}
	// First the roles: an account that is gone takes nothing away any more.
	defer w.out.Wait("Deleting user %s", o.Name).End()
	if err := w.ask.Users().Delete(ctx, u.GUID); err != nil && !client.NotFound(err) {
		return fmt.Errorf("cannot delete user %s: %w", o.Name, err)
	}
	if err := w.ask.Users().DeleteAccount(ctx, u.GUID); err != nil && !gone(err) {
		return fmt.Errorf("cannot delete the account of user %s: %w", o.Name, err)
	}
	w.out.Say("Deleted user %s", o.Name)
	return nil
}

// gone is an answer that says that it is not there.
func gone(err error) bool {
	e := (*client.Error)(nil)
	return errors.As(err, &e) && e.Status == http.StatusNotFound
}

// runPasswd changes a password.
func runPasswd(ctx context.Context, g *global, o userOptions, w where) error {
	own := readClaims(w.past.Access)
	if o.Name != "" && o.Name != w.past.User {
		return setPassword(ctx, o, w)
	}
	if w.url == "" || own.UserID == "" {
		return console.UsageError("passwd needs USER where no user is logged in")
	}
	old, err := w.out.Password(ctx, console.SecretOptions{Stdin: o.Stdin, Prompt: "Old password", Flag: "--password-stdin"})
	if err != nil {
		return err
	}
	fresh, err := w.out.Password(ctx, console.SecretOptions{Stdin: o.Stdin, Prompt: "New password", New: true, Flag: "--password-stdin"})
	if err != nil {
		return err
	}
	if err := w.ask.Users().SetPassword(ctx, own.UserID, old, fresh); err != nil {
		return fmt.Errorf("cannot change the password: %w", err)
	}
	w.out.Say("Changed the password of %s", w.past.User)
	return loginAgain(ctx, g, w, fresh)
}

// loginAgain logs in with the new password: the daemon may have ended what was
// begun with the old one.
func loginAgain(ctx context.Context, g *global, w where, password string) error {
	plain, err := g.anonymous(w.door)
	if err != nil {
		return err
	}
	token, err := plain.Users().Login(ctx, client.Grant{User: w.past.User, Password: password})
	if err != nil {
		return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("cannot log in with the new password: %w", err), Todo: w.past.again(w.url)}
	}
	return w.memory.update(ctx, func(c *config) error {
		s := c.Sessions[w.url]
		s.take(token)
		c.Sessions[w.url] = s
		return nil
	})
}

func setPassword(ctx context.Context, o userOptions, w where) error {
	u, err := findUser(ctx, w, o.Name)
	if err != nil {
		return err
	}
	fresh, err := w.out.Password(ctx, console.SecretOptions{Stdin: o.Stdin, Prompt: "New password of " + o.Name, New: true, Flag: "--password-stdin"})
	if err != nil {
		return err
	}
	if err := w.ask.Users().SetPassword(ctx, u.GUID, "", fresh); err != nil {
		return fmt.Errorf("cannot change the password of %s: %w", o.Name, err)
	}
	w.out.Say("Changed the password of %s", o.Name)
	return nil
}
