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

// bindOptions are the arguments and flags of commands about one binding.
type bindOptions struct {
	App, Service, Key, Name string
	Parameters              string
	Strategy                string // how often the app may be bound; empty: once
	Only                    string // guid of the one binding that is meant
	Keep                    int    // bindings per service instance
	Wait, Force, GUID       bool
}

func bindingCommands(g *command.Set) []*cli.Command {
	about := func(v command.Verb, fn func(context.Context, bindOptions, *client.Client, *console.Console) error) *cli.Command {
		v.Category = Category
		return g.Command(v, func(c *cli.Context, ask *client.Client, out *console.Console) error {
			o := bindOptions{
				App: c.Args().First(), Service: c.Args().Get(1), Name: c.String("binding-name"), Parameters: c.String("c"), Strategy: c.String("strategy"),
				Only: c.String("guid"), Keep: c.Int("keep-last"), Wait: c.Bool("wait"), Force: c.Bool("f"),
			}
			if c.IsSet("service-instance") {
				o.Service = c.String("service-instance")
			}
			return fn(c.Context, o, ask, out)
		})
	}
	return []*cli.Command{
		about(command.Verb{
			Name: "bind-service", Alias: "bs", Args: "APP SERVICE_INSTANCE", Usage: "give an app the credentials of a service instance",
			About: "They come into its environment, VCAP_SERVICES, when it is staged the next time.\n\nExample:\n   dew bind-service shop db && dew restage shop",
			Flags: []cli.Flag{
				paramsFlag(), &cli.StringFlag{Name: "binding-name", Usage: "`name` that the app finds it by"},
				&cli.StringFlag{Name: "strategy", Usage: "single, or multiple: new credentials beside those that the app has", DefaultText: v3.StrategySingle}, waitFlag(),
			},
		}, runBind),
		about(command.Verb{
			Name: "unbind-service", Alias: "us", Args: "APP SERVICE_INSTANCE", Usage: "take the credentials of a service instance from an app",
			About: "They stop working at once. An app that is not bound is fine.",
			Flags: []cli.Flag{&cli.StringFlag{Name: "guid", Usage: "only the binding with the `guid`; dew service shows them"}, waitFlag()},
		}, runUnbind),
		about(command.Verb{
			Name: "cleanup-outdated-service-bindings", Args: "APP", Usage: "unbind what newer bindings of an app took the place of",
			About: "For bindings of --strategy multiple: restage the app first, so that it uses the newest.",
			Flags: []cli.Flag{
				&cli.IntFlag{Name: "keep-last", Value: 1, Usage: "`count` of the newest that stay, of each service instance"},
				&cli.StringFlag{Name: "service-instance", Usage: "only those of the service instance with the `name`"}, command.ForceFlag(), waitFlag(),
			},
		}, runCleanup),
	}
}

func runBind(ctx context.Context, o bindOptions, ask *client.Client, out *console.Console) error {
	if o.Strategy != "" && o.Strategy != v3.StrategySingle && o.Strategy != v3.StrategyMultiple {
		return console.UsageError("--strategy: %q is neither single nor multiple", o.Strategy)
	}
	params, err := command.ReadJSONObject("-c", o.Parameters)
	if err != nil {
		return err
	}
	i, err := command.FindService(ctx, ask, o.Service)
	if err != nil {
		return err
	}
	a, err := command.FindApp(ctx, ask, o.App)
	if err != nil {
		return err
	}
	n := v3.CreateCredentialBinding{Type: v3.BindingApp, Name: o.Name, Strategy: o.Strategy, Parameters: params}
	app := v3.To(a.GUID)
	n.Relationships.App, n.Relationships.ServiceInstance = &app, v3.To(i.GUID)
	defer out.Wait("Binding app %s to service instance %s", o.App, o.Service).End()
	job, err := ask.Services().Bind(ctx, n)
	if command.ErrorContains(err, "app is already bound") {
		out.Say("App %s is bound to %s already", o.App, o.Service)
		return nil
	}
	done := false
	if err == nil {
		done, err = finished(ctx, job, o.Wait, ask)
	}
	if err != nil {
		return fmt.Errorf("cannot bind %s to %s: %w", o.App, o.Service, err)
	}
	if !done {
		out.Say("Binding %s to %s is in progress: dew service %s tells how far it is", o.App, o.Service, o.Service)
		return nil
	}
	if _, err := ask.Bits().Droplet(ctx, a.GUID); client.NotFound(err) {
		out.Say("Bound %s to %s; dew start %s stages and starts it with the credentials", o.App, o.Service, o.App)
		return nil
	}
	out.Say("Bound %s to %s; dew restage %s brings the credentials into its environment", o.App, o.Service, o.App)
	return nil
}

func runUnbind(ctx context.Context, o bindOptions, ask *client.Client, out *console.Console) error {
	i, err := command.FindService(ctx, ask, o.Service)
	if err != nil {
		return err
	}
	a, err := command.FindApp(ctx, ask, o.App)
	if err != nil {
		return err
	}
	bound, err := ask.Services().Bindings(ctx, client.BindingQuery{Type: v3.BindingApp, App: a.GUID, Instance: i.GUID})
	if err != nil {
		return err
	}
	if o.Only != "" {
		bound = slices.DeleteFunc(bound, func(b v3.ServiceCredentialBinding) bool { return b.GUID != o.Only })
		if len(bound) == 0 {
			return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("app %s has no binding to %s with guid %q", o.App, o.Service, o.Only), Advice: "dew service " + o.Service + " --json has the guids"}
		}
	}
	if len(bound) == 0 {
		out.Say("App %s is not bound to %s", o.App, o.Service)
		return nil
	}
	defer out.Wait("Unbinding app %s from service instance %s", o.App, o.Service).End()
	ended, err := deleteBindings(ctx, bound, o.Wait, ask)
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

func runCleanup(ctx context.Context, o bindOptions, ask *client.Client, out *console.Console) error {
	if o.Keep < 1 {
		return console.UsageError("--keep-last: %d is less than 1; dew unbind-service takes all", o.Keep)
	}
	a, err := command.FindApp(ctx, ask, o.App)
	if err != nil {
		return err
	}
	q := client.BindingQuery{Type: v3.BindingApp, App: a.GUID}
	if o.Service != "" {
		i, err := command.FindService(ctx, ask, o.Service)
		if err != nil {
			return err
		}
		q.Instance = i.GUID
	}
	all, err := ask.Services().Bindings(ctx, q)
	if err != nil {
		return err
	}
	old := outdated(all, o.Keep)
	if len(old) == 0 {
		out.Say("App %s has no outdated bindings", o.App)
		return nil
	}
	if ok, err := console.ConfirmUnless(ctx, out, o.Force, fmt.Sprintf("Really delete outdated bindings of app %s (%d)", o.App, len(old))); err != nil || !ok {
		return err
	}
	defer out.Wait("Deleting service bindings").End()
	ended, err := deleteBindings(ctx, old, o.Wait, ask)
	if err != nil {
		return fmt.Errorf("cannot delete outdated bindings of %s: %w", o.App, err)
	}
	if !ended {
		out.Say("Deleting outdated bindings of %s (%d) is in progress", o.App, len(old))
		return nil
	}
	out.Say("Deleted outdated bindings of %s (%d)", o.App, len(old))
	return nil
}

// outdated are all but the newest of each service instance.
func outdated(all []v3.ServiceCredentialBinding, keep int) []v3.ServiceCredentialBinding {
	all = slices.Clone(all)
	slices.Reverse(all) // of the same second, the later in the list is the newer
	slices.SortStableFunc(all, func(a, b v3.ServiceCredentialBinding) int { return b.CreatedAt.Compare(a.CreatedAt.Time) })
	seen := map[string]int{}
	return slices.DeleteFunc(all, func(b v3.ServiceCredentialBinding) bool {
		i := b.Relationships.ServiceInstance.ID()
		seen[i]++
		return seen[i] <= keep
	})
}

// deleteBindings deletes bindings and tells whether that is done.
func deleteBindings(ctx context.Context, all []v3.ServiceCredentialBinding, wait bool, ask *client.Client) (bool, error) {
	ended := true
	for _, b := range all {
		done, err := deleteBinding(ctx, b.GUID, wait, ask)
		if err != nil {
			return false, err
		}
		ended = ended && done
	}
	return ended, nil
}

// deleteBinding deletes a binding and tells whether that is done.
func deleteBinding(ctx context.Context, guid string, wait bool, ask *client.Client) (bool, error) {
	job, err := ask.Services().Unbind(ctx, guid)
	if err != nil {
		return false, err
	}
	return finished(ctx, job, wait, ask)
}

func keyCommands(g *command.Set) []*cli.Command {
	about := func(v command.Verb, fn func(context.Context, bindOptions, *client.Client, *console.Console) error) *cli.Command {
		v.Category = Category
		return g.Command(v, func(c *cli.Context, ask *client.Client, out *console.Console) error {
			o := bindOptions{Service: c.Args().First(), Key: c.Args().Get(1), Parameters: c.String("c"), Wait: c.Bool("wait"), Force: c.Bool("f"), GUID: c.Bool("guid")}
			return fn(c.Context, o, ask, out)
		})
	}
	return []*cli.Command{
		about(command.Verb{
			Name: "create-service-key", Alias: "csk", Args: "SERVICE_INSTANCE KEY", Usage: "make credentials for people and tools",
			About: "dew service-key shows them. One that is there already is fine.", Flags: []cli.Flag{paramsFlag(), waitFlag()},
		}, runCreateKey),
		about(command.Verb{Name: "service-keys", Alias: "sk", Args: "SERVICE_INSTANCE", Usage: "list the keys of a service instance", Flags: []cli.Flag{command.JSONFlag()}}, runKeys),
		about(command.Verb{
			Name: "service-key", Args: "SERVICE_INSTANCE KEY", Usage: "show the credentials of a key, as JSON", Flags: []cli.Flag{command.BoolFlag("guid", "only its guid"), command.BoolFlag("json", "as it is without the flag, too")},
		}, runKey),
		about(command.Verb{
			Name: "delete-service-key", Alias: "dsk", Args: "SERVICE_INSTANCE KEY", Usage: "delete a key: its credentials stop working",
			About: "One that is not there is fine.", Flags: []cli.Flag{command.ForceFlag(), waitFlag()},
		}, runDeleteKey),
	}
}

func runCreateKey(ctx context.Context, o bindOptions, ask *client.Client, out *console.Console) error {
	params, err := command.ReadJSONObject("-c", o.Parameters)
	if err != nil {
		return err
	}
	i, err := command.FindService(ctx, ask, o.Service)
	if err != nil {
		return err
	}
	n := v3.CreateCredentialBinding{Type: v3.BindingKey, Name: o.Key, Parameters: params}
	n.Relationships.ServiceInstance = v3.To(i.GUID)
	defer out.Wait("Creating service key %s", o.Key).End()
	job, err := ask.Services().Bind(ctx, n)
	if command.ErrorContains(err, "already has a key binding with name") {
		out.Say("Service key %s is there already", o.Key)
		return nil
	}
	done := false
	if err == nil {
		done, err = finished(ctx, job, o.Wait, ask)
	}
	if err != nil {
		return fmt.Errorf("cannot create service key %s: %w", o.Key, err)
	}
	if !done {
		out.Say("Service key %s is in progress", o.Key)
		return nil
	}
	out.Say("Created service key %s: dew service-key %s %s shows it", o.Key, o.Service, o.Key)
	return nil
}

// KeyRow is a key in the list.
type KeyRow struct {
	GUID string `json:"guid"`
	Name string `json:"name"`
	Last string `json:"last_operation"`
}

func runKeys(ctx context.Context, o bindOptions, ask *client.Client, out *console.Console) error {
	i, err := command.FindService(ctx, ask, o.Service)
	if err != nil {
		return err
	}
	all, err := ask.Services().Bindings(ctx, client.BindingQuery{Type: v3.BindingKey, Instance: i.GUID})
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
		out.Say("Service instance %s has no keys: dew create-service-key makes one", o.Service)
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

// findKey finds a key by name.
func findKey(ctx context.Context, o bindOptions, ask *client.Client) (v3.ServiceCredentialBinding, error) {
	i, err := command.FindService(ctx, ask, o.Service)
	if err != nil {
		return v3.ServiceCredentialBinding{}, err
	}
	all, err := ask.Services().Bindings(ctx, client.BindingQuery{Type: v3.BindingKey, Name: o.Key, Instance: i.GUID})
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

func runKey(ctx context.Context, o bindOptions, ask *client.Client, out *console.Console) error {
	b, err := findKey(ctx, o, ask)
	if err != nil {
		return err
	}
	if o.GUID {
		_, err := fmt.Fprintln(out.Out, b.GUID)
		return err
	}
	d, err := ask.Services().BindingDetails(ctx, b.GUID)
	if err != nil {
		return fmt.Errorf("cannot read service key %s: %w", o.Key, err)
	}
	return out.Encode(map[string]json.RawMessage{"credentials": d.Credentials})
}

func runDeleteKey(ctx context.Context, o bindOptions, ask *client.Client, out *console.Console) error {
	if ok, err := console.ConfirmUnless(ctx, out, o.Force, "Really delete service key "+o.Key); err != nil || !ok {
		return err
	}
	b, err := findKey(ctx, o, ask)
	if none := (*noKey)(nil); errors.As(err, &none) {
		out.Say("Service key %s is not there", o.Key)
		return nil
	}
	if err != nil {
		return err
	}
	defer out.Wait("Deleting service key %s", o.Key).End()
	done, err := deleteBinding(ctx, b.GUID, o.Wait, ask)
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
