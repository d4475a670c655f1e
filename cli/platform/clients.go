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
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// ClientCommands are about OAuth clients.
func ClientCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{
		g.CommandWithEnv(command.Verb{Name: "clients", Category: "Users", Usage: "list the programs that get tokens of their own", Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, w command.Env) error { return runClients(c.Context, w) }),
		g.CommandWithEnv(command.Verb{
			Name: "create-client", Args: "NAME", Category: "Users", Usage: "create a client: a program that gets tokens with a secret of its own",
			About: "The secret is asked for, or read from stdin. What the client may do stands in its authorities.\n\nExamples:\n   dew create-client mailer --authorities notifications.write,emails.write --secret-stdin < secret\n   dew create-client ci --authorities cloud_controller.read,cloud_controller.write",
			Flags: []cli.Flag{
				&cli.StringSliceFlag{Name: "authorities", Usage: "`scopes` of its tokens, with commas between"},
				command.BoolFlag("secret-stdin", "read the secret from stdin"),
			},
		}, func(c *cli.Context, w command.Env) error {
			o := clientOptions{Name: c.Args().First(), Authorities: c.StringSlice("authorities"), Stdin: c.Bool("secret-stdin")}
			return runCreateClient(c.Context, o, w)
		}),
		g.CommandWithEnv(command.Verb{
			Name: "delete-client", Args: "NAME", Category: "Users", Usage: "delete a client", Flags: []cli.Flag{command.BoolFlag("f", "do not ask")},
		}, func(c *cli.Context, w command.Env) error {
			return runDeleteClient(c.Context, command.DeleteOptions{Name: c.Args().First(), Force: c.Bool("f")}, w)
		}),
	}
}

// clientRow is a client in the list.
type clientRow struct {
	Name        string   `json:"name"`
	Grants      []string `json:"grants"`
	Authorities []string `json:"authorities"`
	Scopes      []string `json:"scopes"`
}

func runClients(ctx context.Context, w command.Env) error {
	all, err := w.Client.Users().OAuthClients(ctx)
	if err != nil {
		return err
	}
	rows := make([]clientRow, len(all))
	for i, c := range all {
		rows[i] = clientRow{Name: c.ID, Grants: console.NonNil(c.GrantTypes), Authorities: console.NonNil(c.Authorities), Scopes: console.NonNil(c.Scopes)}
	}
	slices.SortFunc(rows, func(a, b clientRow) int { return strings.Compare(a.Name, b.Name) })
	if w.Out.JSON {
		return w.Out.Encode(rows)
	}
	table := [][]string{{"name", "grants", "authorities"}}
	for _, r := range rows {
		table = append(table, []string{r.Name, strings.Join(r.Grants, ", "), strings.Join(r.Authorities, ", ")})
	}
	return w.Out.Table(table)
}

type clientOptions struct {
	Name        string
	Authorities []string
	Stdin       bool
}

// runCreateClient creates a client; one that is there already is an error,
// because its secret is another.
func runCreateClient(ctx context.Context, o clientOptions, w command.Env) error {
	if len(o.Authorities) == 0 {
		return console.UsageError("create-client needs --authorities: what the client may do, such as cloud_controller.read")
	}
	secret, err := w.Out.Password(ctx, console.SecretOptions{Stdin: o.Stdin, Prompt: "Secret of " + o.Name, New: true, Flag: "--secret-stdin"})
	if err != nil {
		return err
	}
	_, err = w.Client.Users().CreateOAuthClient(ctx, client.OAuthClient{
		ID: o.Name, Name: o.Name, Secret: secret, GrantTypes: []string{"client_credentials"}, Authorities: o.Authorities, Scopes: []string{"uaa.none"},
	})
	if e := (*client.Error)(nil); errors.As(err, &e) && e.Status == http.StatusConflict {
		return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("client %s exists already", o.Name), Advice: "dew delete-client " + o.Name + " removes it"}
	}
	if err != nil {
		return fmt.Errorf("cannot create client %s: %w", o.Name, err)
	}
	w.Out.Say("Created client %s", o.Name)
	return nil
}

// runDeleteClient deletes a client; one that is not there is fine.
func runDeleteClient(ctx context.Context, o command.DeleteOptions, w command.Env) error {
	if !o.Force {
		if yes, err := w.Out.Confirm(ctx, "Delete client "+o.Name); err != nil || !yes {
			return err
		}
	}
	err := w.Client.Users().DeleteOAuthClient(ctx, o.Name)
	if command.IsNotFound(err) {
		w.Out.Say("There is no client %s", o.Name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot delete client %s: %w", o.Name, err)
	}
	w.Out.Say("Deleted client %s", o.Name)
	return nil
}
