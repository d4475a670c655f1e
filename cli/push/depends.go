package push

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/apps"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// checkDependencies refuses a push of apps whose dependencies are neither pushed with
// them nor started, before anything changes.
func (o Options) checkDependencies(ctx context.Context, targets []target, api *client.Client) error {
	if o.NoStart {
		return nil
	}
	for i := range targets {
		t := &targets[i]
		for _, name := range t.app.DependsOn {
			if slices.ContainsFunc(targets, func(o target) bool { return o.app.Name == name }) {
				continue // this push starts it first
			}
			t.others = append(t.others, name)
			a, err := api.Apps().ByName(ctx, name)
			missing := (*client.NoApp)(nil)
			switch {
			case errors.As(err, &missing):
				return t.dependency(name, &console.Failure{
					Status: console.StatusFailed, Err: fmt.Errorf("app %s does not exist in this space", name),
					Advice: "To push all apps of the manifest: dew push. To push only that app: dew push " + name,
				})
			case err != nil:
				return err
			case a.State != v3.AppStarted:
				return t.dependency(name, &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("app %s is stopped", name), Advice: "Start it: dew start " + name})
			}
		}
	}
	return nil
}

// awaitDependencies waits until the apps that an app depends on run.
func (t target) awaitDependencies(ctx context.Context, api *client.Client, out *console.Console) error {
	for _, name := range t.others {
		a, err := command.FindApp(ctx, api, name)
		if err != nil {
			return err
		}
		out.Say("Waiting until app %s runs, because app %s depends on it", name, t.app.Name)
		err = apps.WaitRunning(ctx, a, api, out)
		crashed := (*apps.NotRunning)(nil)
		if errors.As(err, &crashed) {
			err = &console.Failure{Status: console.StatusCrashed, Err: err, Advice: apps.CrashAdvice(name)}
		}
		if err != nil && ctx.Err() == nil {
			return t.dependency(name, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// dependency is the error for an app whose dependency does not run.
func (t target) dependency(on string, err error) error {
	return &console.Failure{
		Status: command.StatusOf(err), Err: fmt.Errorf("%s: cannot start %s, which depends on %s: %w", t.dependsOn(on), t.app.Name, on, err), Advice: command.AdviceOf(err),
	}
}

// dependsOn is the file and line of a dependency.
func (t target) dependsOn(on string) string {
	key := fmt.Sprintf("depends-on[%d]", slices.Index(t.app.DependsOn, on))
	return fmt.Sprintf("%s, line %d: depends-on", t.manifest, t.app.Line(key))
}

// withDependents adds to the error of a push the app that was not pushed because it
// depends on the failed one.
func withDependents(failed target, others []target, err error) error {
	for _, t := range others {
		if slices.Contains(t.app.DependsOn, failed.app.Name) {
			return &console.Failure{
				Status: command.StatusOf(err), Advice: command.AdviceOf(err),
				Err: fmt.Errorf("%w\n%s: %s was not pushed, because it depends on %s", err, t.dependsOn(failed.app.Name), t.app.Name, failed.app.Name),
			}
		}
	}
	return err
}
