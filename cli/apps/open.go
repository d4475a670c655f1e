package apps

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

func openCommand(g *command.Set) *cli.Command {
	return g.CommandWithEnv(command.Verb{
		Name: "open", Args: "APP", Category: "Apps", Usage: "Open an app in the browser and print its URL",
		About: "dew starts the program in BROWSER, or xdg-open. Without a display (DISPLAY and WAYLAND_DISPLAY are empty) it only prints the URL.\n\n" +
			"Examples:\n   dew open shop\n   dew open shop --path /health\n   curl \"$(dew open shop)\"",
		Flags: []cli.Flag{&cli.StringFlag{Name: "path", Usage: "URL `path` below the route, such as /health"}},
	}, func(c *cli.Context, w command.Env) error {
		return runOpen(c.Context, openOptions{Name: c.Args().First(), Path: c.String("path")}, w)
	})
}

type openOptions struct {
	Name string
	Path string
}

func runOpen(ctx context.Context, o openOptions, w command.Env) error {
	a, err := command.FindApp(ctx, w.Client, o.Name)
	if err != nil {
		return err
	}
	routes, err := w.Client.Routes().OfApp(ctx, a.GUID)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(routes, func(r v3.Route) bool { return r.Protocol != "tcp" && r.Host != "*" })
	if i < 0 {
		return &console.Failure{
			Status: console.StatusFailed, Err: fmt.Errorf("app %s has no HTTP route", a.Name),
			Advice: fmt.Sprintf("Map one: dew map-route %s DOMAIN --hostname %s (dew domains lists the domains)", a.Name, a.Name),
		}
	}
	status, err := w.Client.Daemon().Status(ctx)
	if err != nil && !command.HiddenFromCaller(err) {
		return err
	}
	address, err := appURL(routes[i], cmp.Or(status.Router, w.URL, "http://"), o.Path)
	if err != nil {
		return err
	}
	fmt.Fprintln(w.Out.Out, address)
	if a.State != v3.AppStarted {
		w.Out.Warn(fmt.Sprintf("app %s is stopped. To start it: dew start %s", a.Name, a.Name))
	}
	if _, err := command.OpenBrowser(address); err != nil {
		w.Out.Warn(fmt.Sprintf("cannot open a browser: %v", err))
	}
	return nil
}

// appURL is the URL of a route with a path. If the URL of the router is unknown it has
// the scheme of the daemon's URL.
func appURL(r v3.Route, router, path string) (string, error) {
	text := command.RouteURL(r.URL, router)
	if u, err := url.Parse(router); !strings.Contains(text, "://") && err == nil {
		text = cmp.Or(u.Scheme, "http") + "://" + text
	}
	address, err := url.Parse(text)
	if err != nil {
		return "", fmt.Errorf("cannot read the URL of route %s: %w", r.URL, err)
	}
	below, err := url.Parse(path)
	if err != nil || below.Host != "" || below.Scheme != "" {
		return "", console.UsageError("--path: %q is not a path, such as /health", path)
	}
	address = address.JoinPath(below.Path)
	if address.Path == "" {
		address.Path = "/"
	}
	address.RawQuery, address.Fragment = below.RawQuery, below.Fragment
	return address.String(), nil
}
