package services

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// snapshotCommands are the commands for snapshots of databases.
func snapshotCommands(g *command.Set) []*cli.Command {
	about := func(v command.Verb, fn func(context.Context, Options, *client.Client, *console.Console) error) *cli.Command {
		v.Category = Category
		return g.Command(v, func(c *cli.Context, api *client.Client, out *console.Console) error {
			return fn(c.Context, readService(c), api, out)
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
	}
}

func runSnapshot(ctx context.Context, o Options, api *client.Client, out *console.Console) error {
	i, err := command.FindService(ctx, api, o.Name)
	if err != nil {
		return err
	}
	defer out.Wait("Creating a snapshot of service instance %s", o.Name).End()
	if err := api.Services().TakeSnapshot(ctx, i.GUID); err != nil {
		return fmt.Errorf("cannot create a snapshot of %s: %w", o.Name, err)
	}
	all, err := api.Services().Snapshots(ctx, i.GUID)
	if err != nil || len(all) == 0 {
		return err
	}
	out.Say("Created snapshot %s of %s (%s)", all[0].GUID, o.Name, console.Bytes(all[0].Size))
	return nil
}

func runSnapshots(ctx context.Context, o Options, api *client.Client, out *console.Console) error {
	i, err := command.FindService(ctx, api, o.Name)
	if err != nil {
		return err
	}
	all, err := api.Services().Snapshots(ctx, i.GUID)
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

func runDeleteSnapshot(ctx context.Context, o Options, api *client.Client, out *console.Console) error {
	i, err := command.FindService(ctx, api, o.Name)
	if err != nil {
		return err
	}
	if ok, err := console.ConfirmUnless(ctx, out, o.Force, "Delete snapshot "+o.NewName+" of "+o.Name); err != nil || !ok {
		return err
	}
	defer out.Wait("Deleting snapshot %s", o.NewName).End()
	if err := api.Services().DeleteSnapshot(ctx, i.GUID, o.NewName); err != nil {
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

func runRestore(ctx context.Context, o Options, api *client.Client, out *console.Console) error {
	i, err := command.FindService(ctx, api, o.Name)
	if err != nil {
		return err
	}
	id := o.NewName
	if id == "" {
		all, err := api.Services().Snapshots(ctx, i.GUID)
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
	if err := api.Services().Restore(ctx, i.GUID, id); err != nil {
		return noSnapshot(o.Name, fmt.Errorf("cannot restore %s to snapshot %s: %w", o.Name, id, err))
	}
	out.Say("Restored %s to snapshot %s", o.Name, id)
	return nil
}
