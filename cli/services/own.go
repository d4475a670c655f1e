package services

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
	"github.com/dewrun/dew/cli/routes"
)

// snapshotCommands are what cf does not have, and sharing.
func snapshotCommands(g *command.Set) []*cli.Command {
	about := func(v command.Verb, fn func(context.Context, Options, *client.Client, *console.Console) error) *cli.Command {
		v.Category = Category
		return g.Command(v, func(c *cli.Context, ask *client.Client, out *console.Console) error {
			return fn(c.Context, readService(c), ask, out)
		})
	}
	share := func(v command.Verb, fn func(context.Context, shareOptions, command.Env) error) *cli.Command {
		v.Category = Category
		v.Flags = append(v.Flags, &cli.StringFlag{Name: "s", Usage: "the other `space`; needed"}, &cli.StringFlag{Name: "o", Usage: "its `org` (default: the target's)"})
		return g.CommandWithEnv(v, func(c *cli.Context, w command.Env) error {
			if c.String("s") == "" {
				return console.UsageError("%s needs -s with the other space", v.Name)
			}
			return fn(c.Context, shareOptions{Name: c.Args().First(), Space: c.String("s"), Org: c.String("o"), Force: c.Bool("f")}, w)
		})
	}
	return []*cli.Command{
		about(command.Verb{
			Name: "service-snapshot", Args: "SERVICE_INSTANCE", Usage: "copy the data of a database as it is now",
			About: "The copy is consistent: clients only wait for the moment that it takes. dew service-restore puts it back.",
		}, runSnapshot),
		about(command.Verb{Name: "service-snapshots", Args: "SERVICE_INSTANCE", Usage: "list the copies of the data of a database", Flags: []cli.Flag{command.JSONFlag()}}, runSnapshots),
		about(command.Verb{
			Name: "delete-service-snapshot", Args: "SERVICE_INSTANCE SNAPSHOT", Usage: "delete a copy of the data of a database", Flags: []cli.Flag{command.ForceFlag()},
		}, runDeleteSnapshot),
		about(command.Verb{
			Name: "service-restore", Args: "SERVICE_INSTANCE [SNAPSHOT]", Usage: "put a copy in the place of the data",
			About: "Without SNAPSHOT it is the newest. What came since is gone. Bindings of now work after it.", Flags: []cli.Flag{command.ForceFlag()},
		}, runRestore),
		g.Command(command.Verb{
			Name: "connect", Args: "SERVICE_INSTANCE", Category: Category, Usage: "talk to a database with psql, mariadb or redis-cli",
			About: "The program must be on this machine. A service key is made for it, and deleted when it ends.\n\nExample:\n   echo 'select count(*) from users' | dew connect db",
		}, func(c *cli.Context, ask *client.Client, out *console.Console) error {
			return runConnect(c.Context, c.Args().First(), ask, out)
		}),
		share(command.Verb{Name: "share-service", Args: "SERVICE_INSTANCE", Usage: "let apps of another space be bound to a service instance"}, runShare),
		share(command.Verb{Name: "unshare-service", Args: "SERVICE_INSTANCE", Usage: "take that back, with the bindings there", Flags: []cli.Flag{command.ForceFlag()}}, runUnshare),
		routeService(g, command.Verb{
			Name: "bind-route-service", Alias: "brs", Usage: "put a service before a route", About: "Example:\n   dew bind-route-service dew.localhost --hostname shop limiter", Flags: []cli.Flag{paramsFlag(), waitFlag()},
		}, runBindRoute),
		routeService(g, command.Verb{
			Name: "unbind-route-service", Alias: "urs", Usage: "take the service before a route away", About: "A route that is not bound is fine.", Flags: []cli.Flag{command.ForceFlag(), waitFlag()},
		}, runUnbindRoute),
	}
}

func runSnapshot(ctx context.Context, o Options, ask *client.Client, out *console.Console) error {
	i, err := command.FindService(ctx, ask, o.Name)
	if err != nil {
		return err
	}
	defer out.Wait("Copying the data of service instance %s", o.Name).End()
	if err := ask.Services().TakeSnapshot(ctx, i.GUID); err != nil {
		return fmt.Errorf("cannot copy the data of %s: %w", o.Name, err)
	}
	all, err := ask.Services().Snapshots(ctx, i.GUID)
	if err != nil || len(all) == 0 {
		return err
	}
	out.Say("Copied the data of %s: snapshot %s, %s", o.Name, all[0].GUID, console.Bytes(all[0].Size))
	return nil
}

func runSnapshots(ctx context.Context, o Options, ask *client.Client, out *console.Console) error {
	i, err := command.FindService(ctx, ask, o.Name)
	if err != nil {
		return err
	}
	all, err := ask.Services().Snapshots(ctx, i.GUID)
	if err != nil {
		return err
	}
	if out.JSON {
		return out.Encode(append([]v3.ServiceSnapshot{}, all...))
	}
	if len(all) == 0 {
		out.Say("There are no copies: dew service-snapshot %s makes one", o.Name)
		return nil
	}
	rows := [][]string{{"snapshot", "made", "size"}}
	for _, s := range all {
		rows = append(rows, []string{s.GUID, s.CreatedAt.Local().Format(time.DateTime), console.Bytes(s.Size)})
	}
	return out.Table(rows)
}

func runDeleteSnapshot(ctx context.Context, o Options, ask *client.Client, out *console.Console) error {
	i, err := command.FindService(ctx, ask, o.Name)
	if err != nil {
		return err
	}
	if ok, err := console.ConfirmUnless(ctx, out, o.Force, "Really delete snapshot "+o.NewName+" of "+o.Name); err != nil || !ok {
		return err
	}
	defer out.Wait("Deleting snapshot %s", o.NewName).End()
	if err := ask.Services().DeleteSnapshot(ctx, i.GUID, o.NewName); err != nil {
		return noSnapshot(o.Name, fmt.Errorf("cannot delete snapshot %s of %s: %w", o.NewName, o.Name, err))
	}
	out.Say("Deleted snapshot %s of %s", o.NewName, o.Name)
	return nil
}

// noSnapshot says how to find those that are there.
func noSnapshot(service string, err error) error {
	if client.NotFound(err) {
		return &console.Failure{Status: console.StatusFailed, Err: err, Advice: "dew service-snapshots " + service + " lists them"}
	}
	return err
}

func runRestore(ctx context.Context, o Options, ask *client.Client, out *console.Console) error {
	i, err := command.FindService(ctx, ask, o.Name)
	if err != nil {
		return err
	}
	id := o.NewName
	if id == "" {
		all, err := ask.Services().Snapshots(ctx, i.GUID)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("there are no copies of the data of %s", o.Name), Advice: "dew service-snapshot " + o.Name + " makes one"}
		}
		id = all[0].GUID
	}
	if ok, err := console.ConfirmUnless(ctx, out, o.Force, "Really put snapshot "+id+" in the place of the data of "+o.Name); err != nil || !ok {
		return err
	}
	defer out.Wait("Restoring service instance %s to snapshot %s", o.Name, id).End()
	if err := ask.Services().Restore(ctx, i.GUID, id); err != nil {
		return noSnapshot(o.Name, fmt.Errorf("cannot restore %s to snapshot %s: %w", o.Name, id, err))
	}
	out.Say("Restored %s to snapshot %s", o.Name, id)
	return nil
}

// login is what a client needs, as far as the built-in services tell it.
type login struct {
	Host     string `json:"host"`
	Port     int    `json:"port"`
	Database string `json:"database"`
	Username string `json:"username"`
	Password string `json:"password"`
	URI      string `json:"uri"`
}

// client is the program that speaks with the service, and its secret as a variable:
// arguments can be read by everybody on the machine.
func (c login) client() (args []string, secret string, err error) {
	port := strconv.Itoa(c.Port)
	switch scheme, _, _ := strings.Cut(c.URI, ":"); {
	case strings.HasPrefix(scheme, "postgres"):
		return []string{"psql", "-h", c.Host, "-p", port, "-U", c.Username, "-d", c.Database}, "PGPASSWORD=" + c.Password, nil
	case strings.HasPrefix(scheme, "mysql") || strings.HasPrefix(scheme, "mariadb"):
		return []string{"mariadb", "-h", c.Host, "-P", port, "-u", c.Username, c.Database}, "MYSQL_PWD=" + c.Password, nil
	case strings.HasPrefix(scheme, "redis"):
		args := []string{"redis-cli", "-h", c.Host, "-p", port}
		if c.Username != "" {
			args = append(args, "--user", c.Username)
		}
		return args, "REDISCLI_AUTH=" + c.Password, nil
	}
	return nil, "", errors.New("dew knows no program that speaks with it: use the credentials of dew service-key")
}

func runConnect(ctx context.Context, name string, ask *client.Client, out *console.Console) (err error) {
	i, err := command.FindService(ctx, ask, name)
	if err != nil {
		return err
	}
	if i.Type == v3.ServiceUserProvided {
		return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("%s is user-provided: only apps get its credentials", name), Advice: "whoever made it knows them, and dew env APP shows those of an app that is bound to it"}
	}
	key := "dew-connect-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	n := v3.CreateCredentialBinding{Type: v3.BindingKey, Name: key}
	n.Relationships.ServiceInstance = v3.To(i.GUID)
	job, err := ask.Services().Bind(ctx, n)
	if err != nil {
		return fmt.Errorf("cannot connect to %s: %w", name, err)
	}
	defer func() { // also when somebody does not wait for it
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		err = errors.Join(err, dropKey(ctx, bindOptions{Service: name, Key: key}, ask))
	}()
	wait := out.Wait("Creating credentials for service instance %s", name)
	err = ask.Services().Wait(ctx, job)
	wait.End()
	if err != nil {
		return fmt.Errorf("cannot connect to %s: %w", name, err)
	}
	b, err := findKey(ctx, bindOptions{Service: name, Key: key}, ask)
	if err != nil {
		return err
	}
	return runClient(ctx, b.GUID, ask, out)
}

// dropKey deletes a key that was needed for a while.
func dropKey(ctx context.Context, o bindOptions, ask *client.Client) error {
	b, err := findKey(ctx, o, ask)
	if none := (*noKey)(nil); errors.As(err, &none) {
		return nil
	}
	if err == nil {
		_, err = deleteBinding(ctx, b.GUID, true, ask)
	}
	if err != nil {
		return fmt.Errorf("cannot delete service key %s of %s: %w", o.Key, o.Service, err)
	}
	return nil
}

// runClient runs the program with the credentials of a key.
func runClient(ctx context.Context, key string, ask *client.Client, out *console.Console) error {
	d, err := ask.Services().BindingDetails(ctx, key)
	if err != nil {
		return err
	}
	var c login
	if err := json.Unmarshal(d.Credentials, &c); err != nil {
		return fmt.Errorf("cannot read the credentials: %w", err)
	}
	args, secret, err := c.client()
	if err != nil {
		return err
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return &console.Failure{Status: console.StatusInfrastructure, Err: err, Advice: "install the client, or use the credentials of dew create-service-key"}
	}
	// Ctrl-C is for the program. SIGTERM, and the end of the terminal, end it.
	ctx, stop := signal.NotifyContext(context.WithoutCancel(ctx), syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	cmd := exec.CommandContext(ctx, program, args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = clientPatience
	cmd.Env = append(os.Environ(), secret)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = out.In, out.Out, console.StatusLineOver(out.Err).Writer()
	err = cmd.Run()
	ended := (*exec.ExitError)(nil)
	switch {
	case ctx.Err() != nil:
		return &console.Failure{Status: 128 + int(syscall.SIGTERM)}
	case errors.As(err, &ended):
		return &console.Failure{Status: max(ended.ExitCode(), 1)} // it has said why
	}
	return err
}

// clientPatience is how long a client program may take to end after SIGTERM, before it
// is killed.
const clientPatience = 5 * time.Second

type shareOptions struct {
	Name, Space, Org string
	Force            bool
}

// find finds the instance and the other space.
func (o shareOptions) find(ctx context.Context, w command.Env) (v3.ServiceInstance, v3.Space, error) {
	i, err := command.FindService(ctx, w.Client, o.Name)
	if err != nil {
		return i, v3.Space{}, err
	}
	org, err := command.FindOrg(ctx, w, o.Org)
	if err != nil {
		return i, v3.Space{}, err
	}
	s, err := command.FindSpace(ctx, w, org, o.Space)
	return i, s, err
}

func runShare(ctx context.Context, o shareOptions, w command.Env) error {
	i, s, err := o.find(ctx, w)
	if err != nil {
		return err
	}
	if err := w.Client.Services().Share(ctx, i.GUID, s.GUID); err != nil {
		return fmt.Errorf("cannot share %s: %w", o.Name, err)
	}
	w.Out.Say("Shared %s with space %s", o.Name, s.Name)
	return nil
}

func runUnshare(ctx context.Context, o shareOptions, w command.Env) error {
	i, s, err := o.find(ctx, w)
	if err != nil {
		return err
	}
	if ok, err := console.ConfirmUnless(ctx, w.Out, o.Force, "Really take "+o.Name+" from space "+s.Name+", with the bindings there"); err != nil || !ok {
		return err
	}
	if err := w.Client.Services().Unshare(ctx, i.GUID, s.GUID); err != nil {
		return fmt.Errorf("cannot unshare %s: %w", o.Name, err)
	}
	w.Out.Say("Unshared %s from space %s", o.Name, s.Name)
	return nil
}

type routeServiceOptions struct {
	route       routes.RouteOptions
	Service     string
	Parameters  string
	Wait, Force bool
}

func routeService(g *command.Set, v command.Verb, fn func(context.Context, routeServiceOptions, *client.Client, *console.Console) error) *cli.Command {
	v.Args, v.Category, v.Flags = "DOMAIN SERVICE_INSTANCE", Category, append(routes.HostFlags()[:2], v.Flags...) // no port: TCP routes have none
	return g.Command(v, func(c *cli.Context, ask *client.Client, out *console.Console) error {
		r, err := routes.ReadRoute(c, false)
		if err != nil {
			return err
		}
		return fn(c.Context, routeServiceOptions{route: r, Service: c.Args().Get(1), Parameters: c.String("c"), Wait: c.Bool("wait"), Force: c.Bool("f")}, ask, out)
	})
}

// find finds the route and the instance.
func (o routeServiceOptions) find(ctx context.Context, ask *client.Client) (r v3.Route, i v3.ServiceInstance, err error) {
	d, err := ask.Routes().DomainByName(ctx, o.route.Domain)
	if err != nil {
		return r, i, err
	}
	if r, err = ask.Routes().At(ctx, d, o.route.Host, o.route.Path); err != nil {
		return r, i, err
	}
	i, err = command.FindService(ctx, ask, o.Service)
	return r, i, err
}

func runBindRoute(ctx context.Context, o routeServiceOptions, ask *client.Client, out *console.Console) error {
	params, err := command.ReadJSONObject("-c", o.Parameters)
	if err != nil {
		return err
	}
	r, i, err := o.find(ctx, ask)
	if err != nil {
		return err
	}
	n := v3.CreateServiceRouteBinding{Parameters: params}
	n.Relationships.Route, n.Relationships.ServiceInstance = v3.To(r.GUID), v3.To(i.GUID)
	defer out.Wait("Binding route %s to service instance %s", o.route.URL(), o.Service).End()
	job, err := ask.Services().BindRoute(ctx, n)
	if command.ErrorContains(err, "route and service instance are already bound") {
		out.Say("Route %s is bound to %s already", o.route.URL(), o.Service)
		return nil
	}
	done := false
	if err == nil {
		done, err = finished(ctx, job, o.Wait, ask)
	}
	if err != nil {
		return fmt.Errorf("cannot bind route %s to %s: %w", o.route.URL(), o.Service, err)
	}
	if !done {
		out.Say("Binding route %s to %s is in progress", o.route.URL(), o.Service)
		return nil
	}
	out.Say("Bound route %s to %s", o.route.URL(), o.Service)
	return nil
}

// finished tells whether an operation has ended, after a wait if that is wanted.
func finished(ctx context.Context, job client.Job, wait bool, ask *client.Client) (bool, error) {
	job, err := ask.Services().Accepted(ctx, job)
	if err != nil || job.Ended() || !wait {
		return job.Ended(), err
	}
	return true, ask.Services().Wait(ctx, job)
}

func runUnbindRoute(ctx context.Context, o routeServiceOptions, ask *client.Client, out *console.Console) error {
	r, i, err := o.find(ctx, ask)
	if err != nil {
		return err
	}
	all, err := ask.Services().RouteBindings(ctx, r.GUID)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(all, func(b v3.ServiceRouteBinding) bool { return b.Relationships.ServiceInstance.ID() == i.GUID })
	if at < 0 {
		out.Say("Route %s is not bound to %s", o.route.URL(), o.Service)
		return nil
	}
	if ok, err := console.ConfirmUnless(ctx, out, o.Force, "Really unbind route "+o.route.URL()+" from "+o.Service); err != nil || !ok {
		return err
	}
	defer out.Wait("Unbinding route %s from service instance %s", o.route.URL(), o.Service).End()
	job, err := ask.Services().UnbindRoute(ctx, all[at].GUID)
	done := false
	if err == nil {
		done, err = finished(ctx, job, o.Wait, ask)
	}
	if err != nil {
		return fmt.Errorf("cannot unbind route %s from %s: %w", o.route.URL(), o.Service, err)
	}
	if !done {
		out.Say("Unbinding route %s from %s is in progress", o.route.URL(), o.Service)
		return nil
	}
	out.Say("Unbound route %s from %s", o.route.URL(), o.Service)
	return nil
}
