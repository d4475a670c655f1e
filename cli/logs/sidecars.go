package logs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
)

// checkSidecar returns an error that names the sidecars of an app if the app has none
// with this name. A sidecar that the app had earlier is accepted while the log has lines
// of it.
func checkSidecar(ctx context.Context, a v3.App, name string, api *client.Client) error {
	processes, err := api.Processes().List(ctx, a.GUID)
	if err != nil {
		return err
	}
	var sidecars []v3.Sidecar
	for _, p := range processes {
		ofProcess, err := api.Processes().Sidecars(ctx, p.GUID)
		if err != nil {
			return err
		}
		sidecars = append(sidecars, ofProcess...)
	}
	var names []string
	for _, s := range sidecars {
		if strings.EqualFold(s.Name, name) {
			return nil
		}
		names = append(names, fmt.Sprintf("%q", s.Name))
	}
	if stored, err := hasLines(ctx, a, name, api); err != nil || stored {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("app %s has no sidecars", a.Name)
	}
	missing := fmt.Errorf("app %s has no sidecar %q; its sidecars: %s", a.Name, name, strings.Join(names, ", "))
	return command.SuggestNearest(missing, name, sidecars, func(s v3.Sidecar) string { return s.Name })
}

// hasLines reports whether the log of an app has a line of a sidecar.
func hasLines(ctx context.Context, a v3.App, sidecar string, api *client.Client) (bool, error) {
	found := errors.New("found")
	q := client.LogQuery{Newest: 1, Sidecar: sidecar}
	err := api.Logs().Stream(ctx, a.GUID, q, client.Lines{Flush: func() error { return nil }, Line: func(*v3.Line) error { return found }})
	if errors.Is(err, found) {
		return true, nil
	}
	return false, err
}
