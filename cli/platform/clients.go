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
	"github.com/dewrun/dew/spelling"
)

// ClientCommands are the commands for OAuth clients.
func ClientCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{
		g.CommandWithEnv(command.Verb{Name: "clients", Category: "Users", Usage: "List OAuth clients", Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, w command.Env) error { return runClients(c.Context, w) }),
		g.CommandWithEnv(command.Verb{
			Name: "create-client", Args: "NAME", Category: "Users", Usage: "Create an OAuth client: a program that gets tokens with its own secret",
			About: "dew asks for the secret, or reads it from stdin with --secret-stdin. The authorities decide what the client is allowed to do.\n\nExamples:\n   dew create-client mailer --authorities notifications.write,emails.write --secret-stdin < secret\n   dew create-client ci --authorities cloud_controller.read,cloud_controller.write",
			Flags: []cli.Flag{
				&cli.StringSliceFlag{Name: "authorities", Usage: "Comma-separated `scopes` of the tokens of the client (required)"},
				command.BoolFlag("secret-stdin", "Read the secret from stdin"),
			},
		}, func(c *cli.Context, w command.Env) error {
			o := clientOptions{Name: c.Args().First(), Authorities: c.StringSlice("authorities"), Stdin: c.Bool("secret-stdin")}
			return runCreateClient(c.Context, o, w)
		}),
		g.CommandWithEnv(command.Verb{
			Name: "delete-client", Args: "NAME", Category: "Users", Usage: "Delete an OAuth client", Flags: []cli.Flag{command.BoolFlag("f", "Do not ask for confirmation")},
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

// runCreateClient creates a client. It fails if the client already exists, because
// the secret of that client can be different.
func runCreateClient(ctx context.Context, o clientOptions, w command.Env) error {
	if len(o.Authorities) == 0 {
		return console.UsageError("create-client needs --authorities: the scopes of the tokens of the client, such as cloud_controller.read")
	}
	secret, err := w.Out.Password(ctx, console.SecretOptions{Stdin: o.Stdin, Prompt: "Secret for " + o.Name, New: true, Flag: "--secret-stdin"})
	if err != nil {
		return err
	}
	_, err = w.Client.Users().CreateOAuthClient(ctx, client.OAuthClient{
		ID: o.Name, Name: o.Name, Secret: secret, GrantTypes: []string{"client_credentials"}, Authorities: o.Authorities, Scopes: []string{"uaa.none"},
	})
	if e := (*client.Error)(nil); errors.As(err, &e) && e.Status == http.StatusConflict {
		return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("client %s already exists", o.Name), Advice: "Choose another name. To list the clients: dew clients"}
	}
	if err != nil {
		return fmt.Errorf("cannot create client %s: %w", o.Name, err)
	}
	w.Out.Say("Created client %s", o.Name)
	for _, scope := range o.Authorities {
		if warning := unusedScope(scope); warning != "" {
			w.Out.Say("%s", warning)
		}
	}
	return nil
}

// usedScopes are the scopes that dew checks.
var usedScopes = []string{
	"cloud_controller.admin", "cloud_controller.admin_read_only", "cloud_controller.global_auditor", "cloud_controller.read", "cloud_controller.write", "cloud_controller_service_permissions.read", "doppler.firehose", "logs.admin",
	"clients.admin", "clients.read", "clients.secret", "clients.write", "scim.read", "scim.write", "tokens.revoke", "uaa.admin", "uaa.none", "uaa.resource", "uaa.user", "password.write",
	"critical_notifications.write", "emails.write", "notification_preferences.admin", "notification_preferences.read", "notification_preferences.write",
	"notification_templates.read", "notification_templates.write", "notifications.admin", "notifications.manage", "notifications.write",
	"notifications_templates.read", "notifications_templates.write", "notifications_write",
}

// unusedScope returns a warning about a scope that dew does not check, or "". Apps can
// check scopes of their own, so it is not an error.
func unusedScope(scope string) string {
	if slices.Contains(usedScopes, scope) {
		return ""
	}
	warning := fmt.Sprintf("Warning: dew does not use the scope %s. Only your own programs can check it.", scope)
	if near := spelling.Nearest(scope, usedScopes); near != "" {
		warning += fmt.Sprintf(" Did you mean %s?", near)
	}
	return warning
}

// runDeleteClient deletes a client. It succeeds if the client does not exist.
func runDeleteClient(ctx context.Context, o command.DeleteOptions, w command.Env) error {
	if !o.Force {
		if yes, err := w.Out.Confirm(ctx, "Delete client "+o.Name); err != nil || !yes {
			return err
		}
	}
	err := w.Client.Users().DeleteOAuthClient(ctx, o.Name)
	if command.IsNotFound(err) {
		w.Out.Say("Client %s does not exist", o.Name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot delete client %s: %w", o.Name, err)
	}
	w.Out.Say("Deleted client %s", o.Name)
	return nil
}
