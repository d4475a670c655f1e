package services

import (
	"context"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
	"github.com/dewrun/dew/cli/routes"
)

// sharingCommands are the commands that share service instances with spaces and bind them
// to routes.
func sharingCommands(g *command.Set) []*cli.Command {
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
	return g.Command(v, func(c *cli.Context, api *client.Client, out *console.Console) error {
		r, err := routes.ReadRoute(c, false)
		if err != nil {
			return err
		}
		return fn(c.Context, routeServiceOptions{route: r, Service: c.Args().Get(1), Parameters: c.String("c"), Wait: c.Bool("wait"), Force: c.Bool("f")}, api, out)
	})
}

// find finds the route and the service instance.
func (o routeServiceOptions) find(ctx context.Context, api *client.Client) (r v3.Route, i v3.ServiceInstance, err error) {
	d, err := api.Routes().DomainByName(ctx, o.route.Domain)
	if err != nil {
		return r, i, err
	}
	if r, err = api.Routes().At(ctx, d, o.route.Host, o.route.Path); err != nil {
		return r, i, err
	}
	i, err = command.FindService(ctx, api, o.Service)
	return r, i, err
}

func runBindRoute(ctx context.Context, o routeServiceOptions, api *client.Client, out *console.Console) error {
	params, err := command.ReadJSONObject("-c", o.Parameters)
	if err != nil {
		return err
	}
	r, i, err := o.find(ctx, api)
	if err != nil {
		return err
	}
	n := v3.CreateServiceRouteBinding{Parameters: params}
	n.Relationships.Route, n.Relationships.ServiceInstance = v3.To(r.GUID), v3.To(i.GUID)
	defer out.Wait("Binding route %s to service instance %s", o.route.URL(), o.Service).End()
	job, err := api.Services().BindRoute(ctx, n)
	if command.ErrorContains(err, "route and service instance are already bound") {
		out.Say("Route %s is already bound to %s", o.route.URL(), o.Service)
		return nil
	}
	done := false
	if err == nil {
		done, err = finished(ctx, job, o.Wait, api)
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

func runUnbindRoute(ctx context.Context, o routeServiceOptions, api *client.Client, out *console.Console) error {
	r, i, err := o.find(ctx, api)
	if err != nil {
		return err
	}
	all, err := api.Services().RouteBindings(ctx, r.GUID)
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
	job, err := api.Services().UnbindRoute(ctx, all[at].GUID)
	done := false
	if err == nil {
		done, err = finished(ctx, job, o.Wait, api)
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
