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
	"github.com/dewrun/dew/cli/console"
)

func clientCommands(g *global) []*cli.Command {
	return []*cli.Command{
		g.commandAt(verb{name: "clients", category: "Users", usage: "list the programs that get tokens of their own", flags: []cli.Flag{jsonFlag()}},
			func(c *cli.Context, w where) error { return runClients(c.Context, w) }),
		g.commandAt(verb{
			name: "create-client", args: "NAME", category: "Users", usage: "create a client: a program that gets tokens with a secret of its own",
			about: "The secret is asked for, or read from stdin. What the client may do stands in its authorities.\n\nExamples:\n   dew create-client mailer --authorities notifications.write,emails.write --secret-stdin < secret\n   dew create-client ci --authorities cloud_controller.read,cloud_controller.write",
			flags: []cli.Flag{
				&cli.StringSliceFlag{Name: "authorities", Usage: "`scopes` of its tokens, with commas between"},
				boolFlag("secret-stdin", "read the secret from stdin"),
			},
		}, func(c *cli.Context, w where) error {
			o := clientOptions{Name: c.Args().First(), Authorities: c.StringSlice("authorities"), Stdin: c.Bool("secret-stdin")}
			return runCreateClient(c.Context, o, w)
		}),
		g.commandAt(verb{
			name: "delete-client", args: "NAME", category: "Users", usage: "delete a client", flags: []cli.Flag{boolFlag("f", "do not ask")},
		}, func(c *cli.Context, w where) error {
			return runDeleteClient(c.Context, deleteOptions{Name: c.Args().First(), Force: c.Bool("f")}, w)
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

func runClients(ctx context.Context, w where) error {
	all, err := w.ask.Users().OAuthClients(ctx)
	if err != nil {
		return err
	}
	rows := make([]clientRow, len(all))
	for i, c := range all {
		rows[i] = clientRow{Name: c.ID, Grants: console.NonNil(c.GrantTypes), Authorities: console.NonNil(c.Authorities), Scopes: console.NonNil(c.Scopes)}
	}
	slices.SortFunc(rows, func(a, b clientRow) int { return strings.Compare(a.Name, b.Name) })
	if w.out.JSON {
		return w.out.Encode(rows)
	}
	table := [][]string{{"name", "grants", "authorities"}}
	for _, r := range rows {
		table = append(table, []string{r.Name, strings.Join(r.Grants, ", "), strings.Join(r.Authorities, ", ")})
	}
	return w.out.Table(table)
}

type clientOptions struct {
	Name        string
	Authorities []string
	Stdin       bool
}

// runCreateClient creates a client; one that is there already is an error,
// because its secret is another.
func runCreateClient(ctx context.Context, o clientOptions, w where) error {
	if len(o.Authorities) == 0 {
		return console.UsageError("create-client needs --authorities: what the client may do, such as cloud_controller.read")
	}
	secret, err := w.out.Password(ctx, console.SecretOptions{Stdin: o.Stdin, Prompt: "Secret of " + o.Name, New: true, Flag: "--secret-stdin"})
	if err != nil {
		return err
	}
	_, err = w.ask.Users().CreateOAuthClient(ctx, client.OAuthClient{
		ID: o.Name, Name: o.Name, Secret: secret, GrantTypes: []string{"client_credentials"}, Authorities: o.Authorities, Scopes: []string{"uaa.none"},
	})
	if e := (*client.Error)(nil); errors.As(err, &e) && e.Status == http.StatusConflict {
		return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("client %s exists already", o.Name), Todo: "dew delete-client " + o.Name + " removes it"}
	}
	if err != nil {
		return fmt.Errorf("cannot create client %s: %w", o.Name, err)
	}
	w.out.Say("Created client %s", o.Name)
	return nil
}

// runDeleteClient deletes a client; one that is not there is fine.
func runDeleteClient(ctx context.Context, o deleteOptions, w where) error {
	if !o.Force {
		if yes, err := w.out.Confirm(ctx, "Delete client "+o.Name); err != nil || !yes {
			return err
		}
	}
	err := w.ask.Users().DeleteOAuthClient(ctx, o.Name)
	if gone(err) {
		w.out.Say("There is no client %s", o.Name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot delete client %s: %w", o.Name, err)
	}
	w.out.Say("Deleted client %s", o.Name)
	return nil
}
