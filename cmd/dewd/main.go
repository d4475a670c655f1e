// Command dewd is dew's daemon: it keeps the desired instances of every app running on
// this machine.
//
//	main.go    commands and exit codes       config.go   flags, environment, their rules
//	wire.go    parts in their opening order  doctor.go   the checks of package doctor
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	goruntime "runtime"
	"syscall"

	"github.com/urfave/cli/v2"
)

// version is set by the linker (make build).
var version = "dev"

func main() {
	// The first thread cannot exit, so it must never be in an instance's network
	// namespace. Locked to this goroutine, it runs no other goroutine.
	goruntime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := newApp(defaultConfig()).RunContext(ctx, os.Args)
	stop()
	if err != nil && err.Error() != "" {
		fmt.Fprintln(os.Stderr, "dewd:", oneLine(err))
	}
	os.Exit(statusOf(err))
}

func newApp(c config) *cli.App {
	return &cli.App{
		Name:            "dewd",
		Usage:           "Run Cloud Foundry style apps and their sidecars on this machine",
		UsageText:       "dewd [flags]\ndewd doctor|teardown|notify|kubernetes|version [flags]",
		Description:     "Without a command, dewd runs until SIGTERM or SIGINT. Apps keep running after dewd exits; dewd manages them again after its next start.\n\n" + statusHelp,
		Version:         version,
		HideVersion:     true,
		HideHelpCommand: true,
		Flags:           c.allFlags(),
		OnUsageError:    usageError,
		ExitErrHandler:  func(*cli.Context, error) {}, // main prints the error and exits
		Action:          command(&c, run),
		Commands: []*cli.Command{
			{Name: "doctor", Usage: "Check whether this machine meets the requirements, and suggest fixes", Flags: append(c.cellFlags(), jsonFlag()), Action: command(&c, runDoctor), OnUsageError: usageError},
			{Name: "teardown", Usage: "Stop all apps of a root and remove everything outside the root; dewd must not run", Flags: c.cellFlags(), Action: command(&c, teardown), OnUsageError: usageError},
			notifyCommand(),
			kubernetesCommand(),
			{Name: "version", Usage: "Print the version", Action: printVersion, OnUsageError: usageError},
			{Name: "man", Usage: "Print the manual page", Action: printManual, OnUsageError: usageError, Hidden: true}, // make install stores it
		},
	}
}

func usageError(_ *cli.Context, err error, _ bool) error {
	return &failure{status: statusUsage, err: errors.New(err.Error() + " (dewd --help)")}
}

func printManual(c *cli.Context) error {
	page, err := c.App.ToManWithSection(8)
	if err != nil {
		return fmt.Errorf("cannot write the manual page: %w", err)
	}
	_, err = fmt.Fprint(c.App.Writer, page)
	return err
}

func printVersion(c *cli.Context) error {
	_, err := fmt.Fprintln(c.App.Writer, "dewd", version)
	return err
}
