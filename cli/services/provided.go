package services

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

func providedCommands(g *command.Set) []*cli.Command {
	flags := func() []cli.Flag {
		return []cli.Flag{
			&cli.StringFlag{Name: "p", Usage: "JSON object with the `credentials`, a file that contains one, or comma-separated names whose values dew asks for"},
			&cli.StringFlag{Name: "l", Usage: "`URL` that receives the logs of bound apps: syslog://, syslog-tls:// or https://"},
			&cli.StringFlag{Name: "r", Usage: "`URL` of the route service that receives the requests of bound routes: https://"}, tagsFlag(),
		}
	}
	read := func(c *cli.Context) providedOptions {
		o := providedOptions{Options: readService(c), Credentials: c.String("p")}
		o.Plan = ""
		for name, to := range map[string]*v3.Nullable[string]{"l": &o.Drain, "r": &o.Route} {
			if c.IsSet(name) {
				*to = v3.Set(c.String(name))
			}
		}
		return o
	}
	return []*cli.Command{
		g.Command(command.Verb{
			Name: "create-user-provided-service", Alias: "cups", Args: "SERVICE_INSTANCE", Category: Category, Usage: "Create a user-provided service instance",
			About: "Examples:\n   dew create-user-provided-service mail -p '{\"host\":\"mail.example.com\"}'\n   dew create-user-provided-service papers -l syslog://logs.example.com:514",
			Flags: flags(),
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			return runCreateProvided(c.Context, read(c), api, out)
		}),
		g.Command(command.Verb{
			Name: "update-user-provided-service", Alias: "uups", Args: "SERVICE_INSTANCE", Category: Category, Usage: "Update a user-provided service instance", Flags: flags(),
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			return runUpdateProvided(c.Context, read(c), api, out)
		}),
	}
}

type providedOptions struct {
	Options
	Credentials  string
	Drain, Route v3.Nullable[string]
}

// credentials reads -p: a JSON object, a file, or names whose values it asks for.
func (o providedOptions) credentials(ctx context.Context, out *console.Console) (json.RawMessage, error) {
	c, err := command.ReadJSONObject("-p", o.Credentials)
	if !errors.Is(err, fs.ErrNotExist) || !out.Interactive {
		return c, err
	}
	names := splitList(o.Credentials)
	if slices.ContainsFunc(names, noCredentialName) {
		return nil, err
	}
	values := map[string]string{}
	for _, name := range names {
		if values[name], err = out.Secret(ctx, name+": "); err != nil {
			return nil, err
		}
	}
	return json.Marshal(values)
}

// noCredentialName reports whether a word is the name of a missing file or incomplete
// JSON rather than the name of a credential.
func noCredentialName(word string) bool {
	return strings.ContainsAny(word, "/[]{}\":=") || strings.HasSuffix(word, ".json")
}

func runCreateProvided(ctx context.Context, o providedOptions, api *client.Client, out *console.Console) error {
	credentials, err := o.credentials(ctx, out)
	if err != nil {
		return err
	}
	n := v3.CreateServiceInstance{Type: v3.ServiceUserProvided, Name: o.Name, Credentials: credentials, SyslogDrainURL: o.Drain.Value, RouteServiceURL: o.Route.Value}
	if o.Tags != nil {
		n.Tags = *o.Tags
	}
	_, err = api.Services().Create(ctx, n)
	if command.ErrorContains(err, "name is taken") {
		out.Say("Service instance %s already exists", o.Name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot create service instance %s: %w", o.Name, err)
	}
	out.Say("Created service instance %s", o.Name)
	return nil
}

func runUpdateProvided(ctx context.Context, o providedOptions, api *client.Client, out *console.Console) error {
	credentials, err := o.credentials(ctx, out)
	if err != nil {
		return err
	}
	if credentials == nil && o.Tags == nil && o.Drain.IsZero() && o.Route.IsZero() {
		return console.UsageError("update-user-provided-service needs -p, -l, -r or -t")
	}
	i, err := command.FindService(ctx, api, o.Name)
	if err != nil {
		return err
	}
	if i.Type != v3.ServiceUserProvided {
		return console.UsageError("%s is not user-provided: use dew update-service", o.Name)
	}
	_, err = api.Services().Update(ctx, i.GUID, v3.UpdateServiceInstance{Credentials: credentials, Tags: o.Tags, SyslogDrainURL: o.Drain, RouteServiceURL: o.Route})
	if err != nil {
		return fmt.Errorf("cannot update service instance %s: %w", o.Name, err)
	}
	out.Say("Updated service instance %s. To pass the change to bound apps: dew restage APP", o.Name)
	return nil
}
