package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
)

// bindOptions are the arguments and flags of commands about one binding.
type bindOptions struct {
	App, Service, Key, Name string
	Parameters              string
	Wait, Force, GUID       bool
}

func bindingCommands(g *global) []*cli.Command {
	about := func(v verb, fn func(context.Context, bindOptions, *client.Client, *console) error) *cli.Command {
		v.category = servicesCategory
		return g.command(v, func(c *cli.Context, ask *client.Client, out *console) error {
			o := bindOptions{App: c.Args().First(), Service: c.Args().Get(1), Name: c.String("binding-name"), Parameters: c.String("c"), Wait: c.Bool("wait")}
			return fn(c.Context, o, ask, out)
		})
	}
	return []*cli.Command{
		about(verb{
			name: "bind-service", alias: "bs", args: "APP SERVICE_INSTANCE", usage: "give an app the credentials of a service instance",
			about: "They come into its environment, VCAP_SERVICES, when it is staged the next time.\n\nExample:\n   dew bind-service shop db && dew restage shop",
			flags: []cli.Flag{paramsFlag(), &cli.StringFlag{Name: "binding-name", Usage: "`name` that the app finds it by"}, waitFlag()},
		}, runBind),
		about(verb{
			name: "unbind-service", alias: "us", args: "APP SERVICE_INSTANCE", usage: "take the credentials of a service instance from an app",
			about: "They stop working at once. An app that is not bound is fine.", flags: []cli.Flag{waitFlag()},
		}, runUnbind),
	}
}

func runBind(ctx context.Context, o bindOptions, ask *client.Client, out *console) error {
	params, err := readJSON("-c", o.Parameters)
	if err != nil {
		return err
	}
	i, err := findService(ctx, ask, o.Service)
	if err != nil {
		return err
	}
	a, err := findApp(ctx, ask, o.App)
	if err != nil {
		return err
	}
	n := v3.CreateCredentialBinding{Type: v3.BindingApp, Name: o.Name, Parameters: params}
	app := v3.To(a.GUID)
	n.Relationships.App, n.Relationships.ServiceInstance = &app, v3.To(i.GUID)
	job, err := ask.Bind(ctx, n)
	if answers(err, "already bound") {
		out.say("App %s is bound to %s already", o.App, o.Service)
		return nil
	}
	if err == nil {
		job, err = ask.Taken(ctx, job)
	}
	if err == nil && !job.Ended() && o.Wait {
		err = ask.Wait(ctx, job)
		job = client.Job{}
	}
	if err != nil {
		return fmt.Errorf("cannot bind %s to %s: %w", o.App, o.Service, err)
	}
	if !job.Ended() {
		out.say("Binding %s to %s is in progress: dew service %s tells how far it is", o.App, o.Service, o.Service)
		return nil
	}
	out.say("Bound %s to %s; dew restage %s brings the credentials into its environment", o.App, o.Service, o.App)
	return nil
}

func runUnbind(ctx context.Context, o bindOptions, ask *client.Client, out *console) error {
	i, err := findService(ctx, ask, o.Service)
	if err != nil {
		return err
	}
	a, err := findApp(ctx, ask, o.App)
	if err != nil {
		return err
	}
	bound, err := ask.Bindings(ctx, client.BindingQuery{Type: v3.BindingApp, App: a.GUID, Instance: i.GUID})
	if err != nil {
		return err
	}
	if len(bound) == 0 {
		out.say("App %s is not bound to %s", o.App, o.Service)
		return nil
	}
	ended := true
	for _, b := range bound {
		done, err := endBinding(ctx, b.GUID, o.Wait, ask)
		if err != nil {
			return fmt.Errorf("cannot unbind %s from %s: %w", o.App, o.Service, err)
		}
		ended = ended && done
	}
	if !ended {
		out.say("Unbinding %s from %s is in progress", o.App, o.Service)
		return nil
	}
	out.say("Unbound %s from %s", o.App, o.Service)
	return nil
}

// endBinding deletes a binding and tells whether that is done.
func endBinding(ctx context.Context, guid string, wait bool, ask *client.Client) (bool, error) {
	job, err := ask.Unbind(ctx, guid)
	if err == nil {
		job, err = ask.Taken(ctx, job)
	}
	if err != nil || job.Ended() || !wait {
		return job.Ended(), err
	}
	return true, ask.Wait(ctx, job)
}

func keyCommands(g *global) []*cli.Command {
	about := func(v verb, fn func(context.Context, bindOptions, *client.Client, *console) error) *cli.Command {
		v.category = servicesCategory
		return g.command(v, func(c *cli.Context, ask *client.Client, out *console) error {
			o := bindOptions{Service: c.Args().First(), Key: c.Args().Get(1), Parameters: c.String("c"), Wait: c.Bool("wait"), Force: c.Bool("f"), GUID: c.Bool("guid")}
			return fn(c.Context, o, ask, out)
		})
	}
	return []*cli.Command{
		about(verb{
			name: "create-service-key", alias: "csk", args: "SERVICE_INSTANCE KEY", usage: "make credentials for people and tools",
			about: "dew service-key shows them. One that is there already is fine.", flags: []cli.Flag{paramsFlag(), waitFlag()},
		}, runCreateKey),
		about(verb{name: "service-keys", alias: "sk", args: "SERVICE_INSTANCE", usage: "list the keys of a service instance", flags: []cli.Flag{jsonFlag()}}, runKeys),
		about(verb{
			name: "service-key", args: "SERVICE_INSTANCE KEY", usage: "show the credentials of a key, as JSON", flags: []cli.Flag{boolFlag("guid", "only its guid")},
		}, runKey),
		about(verb{
			name: "delete-service-key", alias: "dsk", args: "SERVICE_INSTANCE KEY", usage: "delete a key: its credentials stop working",
			about: "One that is not there is fine.", flags: []cli.Flag{forceFlag(), waitFlag()},
		}, runDeleteKey),
	}
}

func runCreateKey(ctx context.Context, o bindOptions, ask *client.Client, out *console) error {
	params, err := readJSON("-c", o.Parameters)
	if err != nil {
		return err
	}
	i, err := findService(ctx, ask, o.Service)
	if err != nil {
		return err
	}
	n := v3.CreateCredentialBinding{Type: v3.BindingKey, Name: o.Key, Parameters: params}
	n.Relationships.ServiceInstance = v3.To(i.GUID)
	job, err := ask.Bind(ctx, n)
	if answers(err, "already") || answers(err, "taken") {
		out.say("Service key %s is there already", o.Key)
		return nil
	}
	if err == nil {
		job, err = ask.Taken(ctx, job)
	}
	if err == nil && o.Wait && !job.Ended() {
		err = ask.Wait(ctx, job)
		job = client.Job{}
	}
	if err != nil {
		return fmt.Errorf("cannot create service key %s: %w", o.Key, err)
	}
	if !job.Ended() {
		out.say("Service key %s is in progress", o.Key)
		return nil
	}
	out.say("Created service key %s: dew service-key %s %s shows it", o.Key, o.Service, o.Key)
	return nil
}

// keyRow is a key in the list.
type keyRow struct {
	GUID string `json:"guid"`
	Name string `json:"name"`
	Last string `json:"last_operation"`
}

func runKeys(ctx context.Context, o bindOptions, ask *client.Client, out *console) error {
	i, err := findService(ctx, ask, o.Service)
	if err != nil {
		return err
	}
	all, err := ask.Bindings(ctx, client.BindingQuery{Type: v3.BindingKey, Instance: i.GUID})
	if err != nil {
		return err
	}
	keys, rows := []keyRow{}, [][]string{{"name", "last operation"}}
	for _, b := range all {
		k := keyRow{GUID: b.GUID, Name: bindingName(b), Last: lastOperation(b.LastOperation)}
		keys, rows = append(keys, k), append(rows, []string{k.Name, k.Last})
	}
	if out.json {
		return out.encode(keys)
	}
	if len(keys) == 0 {
		out.say("Service instance %s has no keys: dew create-service-key makes one", o.Service)
		return nil
	}
	return out.table(rows)
}

func bindingName(b v3.ServiceCredentialBinding) string {
	if b.Name == nil {
		return ""
	}
	return *b.Name
}

// findKey finds a key by name.
func findKey(ctx context.Context, o bindOptions, ask *client.Client) (v3.ServiceCredentialBinding, error) {
	i, err := findService(ctx, ask, o.Service)
	if err != nil {
		return v3.ServiceCredentialBinding{}, err
	}
	all, err := ask.Bindings(ctx, client.BindingQuery{Type: v3.BindingKey, Name: o.Key, Instance: i.GUID})
	if err != nil {
		return v3.ServiceCredentialBinding{}, err
	}
	if len(all) == 0 {
		return v3.ServiceCredentialBinding{}, &noKey{o.Service, o.Key}
	}
	return all[0], nil
}

// noKey says that a service instance has no such key.
type noKey struct{ service, key string }

func (e *noKey) Error() string {
	return fmt.Sprintf("service instance %s has no key %q (dew service-keys %s lists them)", e.service, e.key, e.service)
}

func runKey(ctx context.Context, o bindOptions, ask *client.Client, out *console) error {
	b, err := findKey(ctx, o, ask)
	if err != nil {
		return err
	}
	if o.GUID {
		_, err := fmt.Fprintln(out.out, b.GUID)
		return err
	}
	d, err := ask.BindingDetails(ctx, b.GUID)
	if err != nil {
		return fmt.Errorf("cannot read service key %s: %w", o.Key, err)
	}
	return out.encode(map[string]json.RawMessage{"credentials": d.Credentials})
}

func runDeleteKey(ctx context.Context, o bindOptions, ask *client.Client, out *console) error {
	if ok, err := (serviceOptions{Force: o.Force}).sure(ctx, out, "Really delete service key "+o.Key); err != nil || !ok {
		return err
	}
	b, err := findKey(ctx, o, ask)
	if none := (*noKey)(nil); errors.As(err, &none) {
		out.say("Service key %s is not there", o.Key)
		return nil
	}
	if err != nil {
		return err
	}
	done, err := endBinding(ctx, b.GUID, o.Wait, ask)
	if err != nil {
		return fmt.Errorf("cannot delete service key %s: %w", o.Key, err)
	}
	if !done {
		out.say("Deleting service key %s is in progress", o.Key)
		return nil
	}
	out.say("Deleted service key %s", o.Key)
	return nil
}

func providedCommands(g *global) []*cli.Command {
	flags := func() []cli.Flag {
		return []cli.Flag{
			&cli.StringFlag{Name: "p", Usage: "`credentials`: a JSON object, a file with one, or names, with commas, whose values are asked for"},
			&cli.StringFlag{Name: "l", Usage: "`URL` that the lines of bound apps are sent to: syslog://, syslog-tls:// or https://"},
			&cli.StringFlag{Name: "r", Usage: "`URL` that the requests of bound routes go through: https://"}, tagsFlag(),
		}
	}
	read := func(c *cli.Context) providedOptions {
		o := providedOptions{serviceOptions: readService(c), Credentials: c.String("p")}
		o.Plan = ""
		for name, to := range map[string]*v3.Nullable[string]{"l": &o.Drain, "r": &o.Route} {
			if c.IsSet(name) {
				*to = v3.Set(c.String(name))
			}
		}
		return o
	}
	return []*cli.Command{
		g.command(verb{
			name: "create-user-provided-service", alias: "cups", args: "SERVICE_INSTANCE", category: servicesCategory, usage: "make something that runs elsewhere a service instance",
			about: "Examples:\n   dew create-user-provided-service mail -p '{\"host\":\"mail.example.com\"}'\n   dew create-user-provided-service papers -l syslog://logs.example.com:514",
			flags: flags(),
		}, func(c *cli.Context, ask *client.Client, out *console) error {
			return runCreateProvided(c.Context, read(c), ask, out)
		}),
		g.command(verb{
			name: "update-user-provided-service", alias: "uups", args: "SERVICE_INSTANCE", category: servicesCategory, usage: "change a user-provided service instance", flags: flags(),
		}, func(c *cli.Context, ask *client.Client, out *console) error {
			return runUpdateProvided(c.Context, read(c), ask, out)
		}),
	}
}

type providedOptions struct {
	serviceOptions
	Credentials  string
	Drain, Route v3.Nullable[string]
}

// credentials reads -p: an object, a file, or names to ask for.
func (o providedOptions) credentials(ctx context.Context, out *console) (json.RawMessage, error) {
	text := strings.TrimSpace(o.Credentials)
	if text == "" || strings.HasPrefix(text, "{") || !out.asks {
		return readJSON("-p", text)
	}
	if c, err := readJSON("-p", text); err == nil {
		return c, nil // a file
	}
	values := map[string]string{}
	for _, name := range splitList(text) {
		v, err := out.secret(ctx, name+": ")
		if err != nil {
			return nil, err
		}
		values[name] = v
	}
	var b bytes.Buffer
	err := json.NewEncoder(&b).Encode(values)
	return b.Bytes(), err
}

func runCreateProvided(ctx context.Context, o providedOptions, ask *client.Client, out *console) error {
	credentials, err := o.credentials(ctx, out)
	if err != nil {
		return err
	}
	n := v3.CreateServiceInstance{Type: v3.ServiceUserProvided, Name: o.Name, Credentials: credentials, SyslogDrainURL: o.Drain.Value, RouteServiceURL: o.Route.Value}
	if o.Tags != nil {
		n.Tags = *o.Tags
	}
	_, err = ask.CreateService(ctx, n)
	if answers(err, "name is taken") {
		out.say("Service instance %s is there already", o.Name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot create service instance %s: %w", o.Name, err)
	}
	out.say("Created service instance %s", o.Name)
	return nil
}

func runUpdateProvided(ctx context.Context, o providedOptions, ask *client.Client, out *console) error {
	credentials, err := o.credentials(ctx, out)
	if err != nil {
		return err
	}
	if credentials == nil && o.Tags == nil && o.Drain.IsZero() && o.Route.IsZero() {
		return usage("update-user-provided-service needs -p, -l, -r or -t")
	}
	i, err := findService(ctx, ask, o.Name)
	if err != nil {
		return err
	}
	if i.Type != v3.ServiceUserProvided {
		return usage("%s is not user-provided: use update-service", o.Name)
	}
	_, err = ask.UpdateService(ctx, i.GUID, v3.UpdateServiceInstance{Credentials: credentials, Tags: o.Tags, SyslogDrainURL: o.Drain, RouteServiceURL: o.Route})
	if err != nil {
		return fmt.Errorf("cannot update service instance %s: %w", o.Name, err)
	}
	out.say("Updated service instance %s; dew restage brings it to apps that are bound to it", o.Name)
	return nil
}
