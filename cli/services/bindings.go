package services

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// bindOptions are the arguments and flags of the commands for service bindings and keys.
type bindOptions struct {
	App, Service, Key, Name string
	Parameters              string
	Strategy                string // single (the default) or multiple
	Only                    string // guid of a binding, or empty for all bindings
	Keep                    int    // number of bindings to keep per service instance
	Wait, Force, GUID       bool
}

func bindingCommands(g *command.Set) []*cli.Command {
	about := func(v command.Verb, fn func(context.Context, bindOptions, *client.Client, *console.Console) error) *cli.Command {
		v.Category = Category
		return g.Command(v, func(c *cli.Context, api *client.Client, out *console.Console) error {
			o := bindOptions{
				App: c.Args().First(), Service: c.Args().Get(1), Name: c.String("binding-name"), Parameters: c.String("c"), Strategy: c.String("strategy"),
				Only: c.String("guid"), Keep: c.Int("keep-last"), Wait: c.Bool("wait"), Force: c.Bool("f"),
			}
			if c.IsSet("service-instance") {
				o.Service = c.String("service-instance")
			}
			return fn(c.Context, o, api, out)
		})
	}
	return []*cli.Command{
		about(command.Verb{
			Name: "bind-service", Alias: "bs", Args: "APP SERVICE_INSTANCE", Usage: "Bind a service instance to an app",
			About: "The app gets the credentials in VCAP_SERVICES the next time it is staged.\n\nExample:\n   dew bind-service shop db && dew restage shop",
			Flags: []cli.Flag{
				paramsFlag(), &cli.StringFlag{Name: "binding-name", Usage: "Binding `name` that the app sees in VCAP_SERVICES"},
				&cli.StringFlag{Name: "strategy", Usage: "Binding `strategy`: single for one binding, or multiple to add a binding to the existing ones", DefaultText: v3.StrategySingle}, waitFlag(),
			},
		}, runBind),
		about(command.Verb{
			Name: "unbind-service", Alias: "us", Args: "APP SERVICE_INSTANCE", Usage: "Unbind a service instance from an app",
			About: "The credentials stop working at once. If the app is not bound, the command succeeds.",
			Flags: []cli.Flag{&cli.StringFlag{Name: "guid", Usage: "Delete only the binding with this `guid` (shown by dew service)"}, waitFlag()},
		}, runUnbind),
		about(command.Verb{
			Name: "cleanup-outdated-service-bindings", Args: "APP", Usage: "Delete service bindings that newer ones replaced",
			About: "For bindings created with --strategy multiple. Restage the app first: it must use the newest binding.",
			Flags: []cli.Flag{
				&cli.IntFlag{Name: "keep-last", Value: 1, Usage: "Keep the newest `count` bindings of each service instance"},
				&cli.StringFlag{Name: "service-instance", Usage: "Delete only bindings of the service instance with this `name`"}, command.ForceFlag(), waitFlag(),
			},
		}, runCleanup),
	}
}

func runBind(ctx context.Context, o bindOptions, api *client.Client, out *console.Console) error {
	if o.Strategy != "" && o.Strategy != v3.StrategySingle && o.Strategy != v3.StrategyMultiple {
		return console.UsageError("--strategy must be single or multiple, not %q", o.Strategy)
	}
	params, err := command.ReadJSONObject("-c", o.Parameters)
	if err != nil {
		return err
	}
	i, err := command.FindService(ctx, api, o.Service)
	if err != nil {
		return err
	}
	a, err := command.FindApp(ctx, api, o.App)
	if err != nil {
		return err
	}
	n := v3.CreateCredentialBinding{Type: v3.BindingApp, Name: o.Name, Strategy: o.Strategy, Parameters: params}
	app := v3.To(a.GUID)
	n.Relationships.App, n.Relationships.ServiceInstance = &app, v3.To(i.GUID)
	defer out.Wait("Binding app %s to service instance %s", o.App, o.Service).End()
	job, err := api.Services().Bind(ctx, n)
	if command.ErrorContains(err, "app is already bound") {
		out.Say("App %s is already bound to %s", o.App, o.Service)
		return nil
	}
	done := false
	if err == nil {
		done, err = finished(ctx, job, o.Wait, api)
	}
	if err != nil {
		return fmt.Errorf("cannot bind %s to %s: %w", o.App, o.Service, err)
	}
	if !done {
		out.Say("Binding %s to %s is in progress. To check its status: dew service %s", o.App, o.Service, o.Service)
		return nil
	}
	if _, err := api.Bits().Droplet(ctx, a.GUID); client.NotFound(err) {
		out.Say("Bound %s to %s. To stage and start the app with the credentials: dew start %s", o.App, o.Service, o.App)
		return nil
	}
	out.Say("Bound %s to %s. To pass the credentials to the app: dew restage %s", o.App, o.Service, o.App)
	return nil
}

func runUnbind(ctx context.Context, o bindOptions, api *client.Client, out *console.Console) error {
	i, err := command.FindService(ctx, api, o.Service)
	if err != nil {
		return err
	}
	a, err := command.FindApp(ctx, api, o.App)
	if err != nil {
		return err
	}
	bound, err := api.Services().Bindings(ctx, client.BindingQuery{Type: v3.BindingApp, App: a.GUID, Instance: i.GUID})
	if err != nil {
		return err
	}
	if o.Only != "" {
		bound = slices.DeleteFunc(bound, func(b v3.ServiceCredentialBinding) bool { return b.GUID != o.Only })
		if len(bound) == 0 {
			return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("app %s has no binding to %s with guid %q", o.App, o.Service, o.Only), Advice: "To show the guids of its bindings: dew service " + o.Service + " --json"}
		}
	}
	if len(bound) == 0 {
		out.Say("App %s is not bound to %s", o.App, o.Service)
		return nil
	}
	defer out.Wait("Unbinding app %s from service instance %s", o.App, o.Service).End()
	ended, err := deleteBindings(ctx, bound, o.Wait, api)
	if err != nil {
		return fmt.Errorf("cannot unbind %s from %s: %w", o.App, o.Service, err)
	}
	if !ended {
		out.Say("Unbinding %s from %s is in progress", o.App, o.Service)
		return nil
	}
	out.Say("Unbound %s from %s", o.App, o.Service)
	return nil
}

func runCleanup(ctx context.Context, o bindOptions, api *client.Client, out *console.Console) error {
	if o.Keep < 1 {
		return console.UsageError("--keep-last must be at least 1, not %d (dew unbind-service deletes all bindings)", o.Keep)
	}
	a, err := command.FindApp(ctx, api, o.App)
	if err != nil {
		return err
	}
	q := client.BindingQuery{Type: v3.BindingApp, App: a.GUID}
	if o.Service != "" {
		i, err := command.FindService(ctx, api, o.Service)
		if err != nil {
			return err
		}
		q.Instance = i.GUID
	}
	all, err := api.Services().Bindings(ctx, q)
	if err != nil {
		return err
	}
	old := outdated(all, o.Keep)
	if len(old) == 0 {
		out.Say("App %s has no outdated service bindings", o.App)
		return nil
	}
	if ok, err := console.ConfirmUnless(ctx, out, o.Force, fmt.Sprintf("Delete %s of app %s", countOutdated(len(old)), o.App)); err != nil || !ok {
		return err
	}
	defer out.Wait("Deleting service bindings").End()
	ended, err := deleteBindings(ctx, old, o.Wait, api)
	if err != nil {
		return fmt.Errorf("cannot delete outdated service bindings of %s: %w", o.App, err)
	}
	if !ended {
		out.Say("Deleting %s of app %s is in progress", countOutdated(len(old)), o.App)
		return nil
	}
	out.Say("Deleted %s of app %s", countOutdated(len(old)), o.App)
	return nil
}

// countOutdated is a number of outdated service bindings, in words.
func countOutdated(n int) string {
	if n == 1 {
		return "1 outdated service binding"
	}
	return fmt.Sprintf("%d outdated service bindings", n)
}

// outdated are all bindings except the newest ones of each service instance.
func outdated(all []v3.ServiceCredentialBinding, keep int) []v3.ServiceCredentialBinding {
	all = slices.Clone(all)
	slices.Reverse(all) // of two bindings with the same time, the later in the list is newer
	slices.SortStableFunc(all, func(a, b v3.ServiceCredentialBinding) int { return b.CreatedAt.Compare(a.CreatedAt.Time) })
	seen := map[string]int{}
	return slices.DeleteFunc(all, func(b v3.ServiceCredentialBinding) bool {
		i := b.Relationships.ServiceInstance.ID()
		seen[i]++
		return seen[i] <= keep
	})
}

// deleteBindings deletes bindings and reports whether all operations are complete.
func deleteBindings(ctx context.Context, all []v3.ServiceCredentialBinding, wait bool, api *client.Client) (bool, error) {
	ended := true
	for _, b := range all {
		done, err := deleteBinding(ctx, b.GUID, wait, api)
		if err != nil {
			return false, err
		}
		ended = ended && done
	}
	return ended, nil
}

// deleteBinding deletes a binding and reports whether the operation is complete.
func deleteBinding(ctx context.Context, guid string, wait bool, api *client.Client) (bool, error) {
	job, err := api.Services().Unbind(ctx, guid)
	if err != nil {
		return false, err
	}
	return finished(ctx, job, wait, api)
}

func keyCommands(g *command.Set) []*cli.Command {
	about := func(v command.Verb, fn func(context.Context, bindOptions, *client.Client, *console.Console) error) *cli.Command {
		v.Category = Category
		return g.Command(v, func(c *cli.Context, api *client.Client, out *console.Console) error {
			o := bindOptions{Service: c.Args().First(), Key: c.Args().Get(1), Parameters: c.String("c"), Wait: c.Bool("wait"), Force: c.Bool("f"), GUID: c.Bool("guid")}
			return fn(c.Context, o, api, out)
		})
	}
	return []*cli.Command{
		about(command.Verb{
			Name: "create-service-key", Alias: "csk", Args: "SERVICE_INSTANCE KEY", Usage: "Create a service key: credentials for people and tools",
			About: "dew service-key shows the credentials. If the service key already exists, the command succeeds.", Flags: []cli.Flag{paramsFlag(), waitFlag()},
		}, runCreateKey),
		about(command.Verb{Name: "service-keys", Alias: "sk", Args: "SERVICE_INSTANCE", Usage: "List the service keys of a service instance", Flags: []cli.Flag{command.JSONFlag()}}, runKeys),
		about(command.Verb{
			Name: "service-key", Args: "SERVICE_INSTANCE KEY", Usage: "Show the credentials of a service key as JSON", Flags: []cli.Flag{command.BoolFlag("guid", "Print only the guid of the service key"), command.BoolFlag("json", "Write the data as JSON to stdout (the default)")},
		}, runKey),
		about(command.Verb{
			Name: "delete-service-key", Alias: "dsk", Args: "SERVICE_INSTANCE KEY", Usage: "Delete a service key",
			About: "The credentials stop working at once. If the service key does not exist, the command succeeds.", Flags: []cli.Flag{command.ForceFlag(), waitFlag()},
		}, runDeleteKey),
	}
}

func runCreateKey(ctx context.Context, o bindOptions, api *client.Client, out *console.Console) error {
	params, err := command.ReadJSONObject("-c", o.Parameters)
	if err != nil {
		return err
	}
	i, err := command.FindService(ctx, api, o.Service)
	if err != nil {
		return err
	}
	n := v3.CreateCredentialBinding{Type: v3.BindingKey, Name: o.Key, Parameters: params}
	n.Relationships.ServiceInstance = v3.To(i.GUID)
	defer out.Wait("Creating service key %s", o.Key).End()
	job, err := api.Services().Bind(ctx, n)
	if command.ErrorContains(err, "already has a key binding with name") {
		out.Say("Service key %s already exists", o.Key)
		return nil
	}
	done := false
	if err == nil {
		done, err = finished(ctx, job, o.Wait, api)
	}
	if err != nil {
		return fmt.Errorf("cannot create service key %s: %w", o.Key, err)
	}
	if !done {
		out.Say("Creating service key %s is in progress", o.Key)
		return nil
	}
	out.Say("Created service key %s. To show it: dew service-key %s %s", o.Key, o.Service, o.Key)
	return nil
}

// KeyRow is a key in the list.
type KeyRow struct {
	GUID string `json:"guid"`
	Name string `json:"name"`
	Last string `json:"last_operation"`
}

func runKeys(ctx context.Context, o bindOptions, api *client.Client, out *console.Console) error {
	i, err := command.FindService(ctx, api, o.Service)
	if err != nil {
		return err
	}
	all, err := api.Services().Bindings(ctx, client.BindingQuery{Type: v3.BindingKey, Instance: i.GUID})
	if err != nil {
		return err
	}
	keys, rows := []KeyRow{}, [][]string{{"name", "last operation"}}
	for _, b := range all {
		k := KeyRow{GUID: b.GUID, Name: BindingName(b), Last: lastOperation(b.LastOperation)}
		keys, rows = append(keys, k), append(rows, []string{k.Name, k.Last})
	}
	if out.JSON {
		return out.Encode(keys)
	}
	if len(keys) == 0 {
		out.Say("Service instance %s has no service keys. To create one: dew create-service-key %s KEY", o.Service, o.Service)
		return nil
	}
	return out.Table(rows)
}

// BindingName is the name of a service binding; empty if it has none.
func BindingName(b v3.ServiceCredentialBinding) string {
	if b.Name == nil {
		return ""
	}
	return *b.Name
}

// findKey finds a service key by name.
func findKey(ctx context.Context, o bindOptions, api *client.Client) (v3.ServiceCredentialBinding, error) {
	i, err := command.FindService(ctx, api, o.Service)
	if err != nil {
		return v3.ServiceCredentialBinding{}, err
	}
	all, err := api.Services().Bindings(ctx, client.BindingQuery{Type: v3.BindingKey, Name: o.Key, Instance: i.GUID})
	if err != nil {
		return v3.ServiceCredentialBinding{}, err
	}
	if len(all) == 0 {
		return v3.ServiceCredentialBinding{}, &noKey{o.Service, o.Key}
	}
	return all[0], nil
}

// noKey is the error for a service key that does not exist.
type noKey struct{ service, key string }

func (e *noKey) Error() string {
	return fmt.Sprintf("service instance %s has no service key %q (dew service-keys %s lists its keys)", e.service, e.key, e.service)
}

func runKey(ctx context.Context, o bindOptions, api *client.Client, out *console.Console) error {
	b, err := findKey(ctx, o, api)
	if err != nil {
		return err
	}
	if o.GUID {
		_, err := fmt.Fprintln(out.Out, b.GUID)
		return err
	}
	d, err := api.Services().BindingDetails(ctx, b.GUID)
	if err != nil {
		return fmt.Errorf("cannot read service key %s: %w", o.Key, err)
	}
	return out.Encode(map[string]json.RawMessage{"credentials": d.Credentials})
}

func runDeleteKey(ctx context.Context, o bindOptions, api *client.Client, out *console.Console) error {
	if ok, err := console.ConfirmUnless(ctx, out, o.Force, "Delete service key "+o.Key); err != nil || !ok {
		return err
	}
	b, err := findKey(ctx, o, api)
	if none := (*noKey)(nil); errors.As(err, &none) {
		out.Say("Service key %s does not exist", o.Key)
		return nil
	}
	if err != nil {
		return err
	}
	defer out.Wait("Deleting service key %s", o.Key).End()
	done, err := deleteBinding(ctx, b.GUID, o.Wait, api)
	if err != nil {
		return fmt.Errorf("cannot delete service key %s: %w", o.Key, err)
	}
	if !done {
		out.Say("Deleting service key %s is in progress", o.Key)
		return nil
	}
	out.Say("Deleted service key %s", o.Key)
	return nil
}
