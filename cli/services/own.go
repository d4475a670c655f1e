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

// snapshotCommands are the commands for snapshots, client programs, sharing and route
// services.
func snapshotCommands(g *command.Set) []*cli.Command {
	about := func(v command.Verb, fn func(context.Context, Options, *client.Client, *console.Console) error) *cli.Command {
		v.Category = Category
		return g.Command(v, func(c *cli.Context, ask *client.Client, out *console.Console) error {
			return fn(c.Context, readService(c), ask, out)
		})
	}
	share := func(v command.Verb, fn func(context.Context, shareOptions, command.Env) error) *cli.Command {
		v.Category = Category
		v.Flags = append(v.Flags, &cli.StringFlag{Name: "s", Usage: "Target `space` (required)"}, &cli.StringFlag{Name: "o", Usage: "Target `org` (default: the targeted org)"})
		return g.CommandWithEnv(v, func(c *cli.Context, w command.Env) error {
			if c.String("s") == "" {
				return console.UsageError("%s needs -s with the name of the target space", v.Name)
			}
			return fn(c.Context, shareOptions{Name: c.Args().First(), Space: c.String("s"), Org: c.String("o"), Force: c.Bool("f")}, w)
		})
	}
	return []*cli.Command{
		about(command.Verb{
			Name: "service-snapshot", Args: "SERVICE_INSTANCE", Usage: "Create a snapshot of the data of a database",
			About: "The snapshot is consistent: clients wait only while dew creates it. To restore it, use dew service-restore.",
		}, runSnapshot),
		about(command.Verb{Name: "service-snapshots", Args: "SERVICE_INSTANCE", Usage: "List the snapshots of a database", Flags: []cli.Flag{command.JSONFlag()}}, runSnapshots),
		about(command.Verb{
			Name: "delete-service-snapshot", Args: "SERVICE_INSTANCE SNAPSHOT", Usage: "Delete a snapshot of a database", Flags: []cli.Flag{command.ForceFlag()},
		}, runDeleteSnapshot),
		about(command.Verb{
			Name: "service-restore", Args: "SERVICE_INSTANCE [SNAPSHOT]", Usage: "Restore the data of a database from a snapshot",
			About: "Without SNAPSHOT, dew restores the newest snapshot. Data written after the snapshot is lost. Existing service bindings work after the restore.", Flags: []cli.Flag{command.ForceFlag()},
		}, runRestore),
		g.Command(command.Verb{
			Name: "connect", Args: "SERVICE_INSTANCE", Category: Category, Usage: "Open a session with a database in psql, mariadb or redis-cli",
			About: "The client program must be installed on this machine. dew creates a service key for it, and deletes the key when the program exits.\n\nExample:\n   echo 'select count(*) from users' | dew connect db",
		}, func(c *cli.Context, ask *client.Client, out *console.Console) error {
			return runConnect(c.Context, c.Args().First(), ask, out)
		}),
		share(command.Verb{Name: "share-service", Args: "SERVICE_INSTANCE", Usage: "Share a service instance with another space"}, runShare),
		share(command.Verb{Name: "unshare-service", Args: "SERVICE_INSTANCE", Usage: "Stop sharing a service instance with a space, and delete its bindings there", Flags: []cli.Flag{command.ForceFlag()}}, runUnshare),
		routeService(g, command.Verb{
			Name: "bind-route-service", Alias: "brs", Usage: "Send a route's requests through a service first", About: "Example:\n   dew bind-route-service dew.localhost --hostname shop limiter", Flags: []cli.Flag{paramsFlag(), waitFlag()},
		}, runBindRoute),
		routeService(g, command.Verb{
			Name: "unbind-route-service", Alias: "urs", Usage: "Stop sending a route's requests through a service", About: "If the route is not bound to the service instance, the command succeeds.", Flags: []cli.Flag{command.ForceFlag(), waitFlag()},
		}, runUnbindRoute),
	}
}

func runSnapshot(ctx context.Context, o Options, ask *client.Client, out *console.Console) error {
	i, err := command.FindService(ctx, ask, o.Name)
	if err != nil {
		return err
	}
	defer out.Wait("Creating a snapshot of service instance %s", o.Name).End()
	if err := ask.Services().TakeSnapshot(ctx, i.GUID); err != nil {
		return fmt.Errorf("cannot create a snapshot of %s: %w", o.Name, err)
	}
	all, err := ask.Services().Snapshots(ctx, i.GUID)
	if err != nil || len(all) == 0 {
		return err
	}
	out.Say("Created snapshot %s of %s (%s)", all[0].GUID, o.Name, console.Bytes(all[0].Size))
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
		out.Say("Service instance %s has no snapshots. To create one: dew service-snapshot %s", o.Name, o.Name)
		return nil
	}
	rows := [][]string{{"snapshot", "created", "size"}}
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
	if ok, err := console.ConfirmUnless(ctx, out, o.Force, "Delete snapshot "+o.NewName+" of "+o.Name); err != nil || !ok {
		return err
	}
	defer out.Wait("Deleting snapshot %s", o.NewName).End()
	if err := ask.Services().DeleteSnapshot(ctx, i.GUID, o.NewName); err != nil {
		return noSnapshot(o.Name, fmt.Errorf("cannot delete snapshot %s of %s: %w", o.NewName, o.Name, err))
	}
	out.Say("Deleted snapshot %s of %s", o.NewName, o.Name)
	return nil
}

// noSnapshot adds advice to the error for a snapshot that does not exist.
func noSnapshot(service string, err error) error {
	if client.NotFound(err) {
		return &console.Failure{Status: console.StatusFailed, Err: err, Advice: "To list the snapshots: dew service-snapshots " + service}
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
			return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("service instance %s has no snapshots", o.Name), Advice: "To create one: dew service-snapshot " + o.Name}
		}
		id = all[0].GUID
	}
	if ok, err := console.ConfirmUnless(ctx, out, o.Force, "Restore "+o.Name+" to snapshot "+id+" (newer data is lost)"); err != nil || !ok {
		return err
	}
	defer out.Wait("Restoring service instance %s to snapshot %s", o.Name, id).End()
	if err := ask.Services().Restore(ctx, i.GUID, id); err != nil {
		return noSnapshot(o.Name, fmt.Errorf("cannot restore %s to snapshot %s: %w", o.Name, id, err))
	}
	out.Say("Restored %s to snapshot %s", o.Name, id)
	return nil
}

// login is the part of the credentials that a client program needs, as the built-in
// services provide them.
type login struct {
	Host     string `json:"host"`
	Port     int    `json:"port"`
	Database string `json:"database"`
	Username string `json:"username"`
	Password string `json:"password"`
	URI      string `json:"uri"`
}

// client is the command line of the client program, and the password as an environment
// variable, because all users of the machine can see the arguments.
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
	return nil, "", errors.New("no client program is known for this service: use the credentials of dew service-key")
}

func runConnect(ctx context.Context, name string, ask *client.Client, out *console.Console) (err error) {
	i, err := command.FindService(ctx, ask, name)
	if err != nil {
		return err
	}
	if i.Type == v3.ServiceUserProvided {
		return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("cannot connect to %s: it is user-provided, and only apps get its credentials", name), Advice: "Ask its creator for the credentials, or read them from a bound app: dew env APP"}
	}
	key := "dew-connect-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	n := v3.CreateCredentialBinding{Type: v3.BindingKey, Name: key}
	n.Relationships.ServiceInstance = v3.To(i.GUID)
	job, err := ask.Services().Bind(ctx, n)
	if err != nil {
		return fmt.Errorf("cannot connect to %s: %w", name, err)
	}
	defer func() { // even if the user interrupts it
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

// dropKey deletes a temporary service key.
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

// runClient runs the client program with the credentials of a service key.
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
		return &console.Failure{Status: console.StatusInfrastructure, Err: fmt.Errorf("cannot find the client program: %w", err), Advice: "Install it, or use the credentials of a service key: dew create-service-key"}
	}
	// The client program handles Ctrl-C itself. SIGTERM and SIGHUP stop it.
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
		return &console.Failure{Status: max(ended.ExitCode(), 1)} // the program has printed the reason
	}
	return err
}

// clientPatience is how long a client program can take to exit after SIGTERM, before
// dew kills it.
const clientPatience = 5 * time.Second

type shareOptions struct {
	Name, Space, Org string
	Force            bool
}

// find finds the service instance and the target space.
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
		return fmt.Errorf("cannot share %s with space %s: %w", o.Name, s.Name, err)
	}
	w.Out.Say("Shared %s with space %s", o.Name, s.Name)
	return nil
}

func runUnshare(ctx context.Context, o shareOptions, w command.Env) error {
	i, s, err := o.find(ctx, w)
	if err != nil {
		return err
	}
	if ok, err := console.ConfirmUnless(ctx, w.Out, o.Force, "Stop sharing "+o.Name+" with space "+s.Name+" and delete its bindings there"); err != nil || !ok {
		return err
	}
	if err := w.Client.Services().Unshare(ctx, i.GUID, s.GUID); err != nil {
		return fmt.Errorf("cannot stop sharing %s with space %s: %w", o.Name, s.Name, err)
	}
	w.Out.Say("Stopped sharing %s with space %s", o.Name, s.Name)
	return nil
}

type routeServiceOptions struct {
	route       routes.RouteOptions
	Service     string
	Parameters  string
	Wait, Force bool
}

func routeService(g *command.Set, v command.Verb, fn func(context.Context, routeServiceOptions, *client.Client, *console.Console) error) *cli.Command {
	v.Args, v.Category, v.Flags = "DOMAIN SERVICE_INSTANCE", Category, append(routes.HostFlags()[:2], v.Flags...) // no --port: TCP routes cannot have route services
	return g.Command(v, func(c *cli.Context, ask *client.Client, out *console.Console) error {
		r, err := routes.ReadRoute(c, false)
		if err != nil {
			return err
		}
		return fn(c.Context, routeServiceOptions{route: r, Service: c.Args().Get(1), Parameters: c.String("c"), Wait: c.Bool("wait"), Force: c.Bool("f")}, ask, out)
	})
}

// find finds the route and the service instance.
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
		out.Say("Route %s is already bound to %s", o.route.URL(), o.Service)
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

// finished reports whether an operation is complete. If wait is set, it waits first.
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
	if ok, err := console.ConfirmUnless(ctx, out, o.Force, "Unbind route "+o.route.URL()+" from "+o.Service); err != nil || !ok {
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
