// Command dew-buildpack is the part of the built-in buildpacks that is not a script. It
// runs in the container of a build, and nginx-start in the container of an app:
//
//	dew-buildpack version LANGUAGE VERSION FOLDER REASON
//	    compares the version on the stack with the one that the app in FOLDER asks for.
//	    It prints notes and warnings, and writes the reason of a refusal to the file
//	    REASON
//	dew-buildpack dependencies LANGUAGE VERSION FOLDER FILE...
//	    prints a key that changes with the dependencies of the app in FOLDER, and with
//	    each FILE. It prints nothing if the files of the app do not determine them
//	dew-buildpack nginx-check FOLDER COPY REASON
//	    checks the nginx.conf of the app in FOLDER, and changes its COPY
//	dew-buildpack nginx-start FOLDER
//	    fills in the templates of nginx.conf and becomes nginx
//
// It is linked statically. Exit statuses: 0 if the app can be staged, 1 if not, 2 for a
// wrong command line.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/dewrun/dew/droplet/dependencies"
	"github.com/dewrun/dew/droplet/versions"
)

const (
	exitFailed = 1
	exitUsage  = 2
)

const usage = `usage: dew-buildpack version LANGUAGE VERSION FOLDER REASON
       dew-buildpack dependencies LANGUAGE VERSION FOLDER FILE...
       dew-buildpack nginx-check FOLDER COPY REASON
       dew-buildpack nginx-start FOLDER`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, errs io.Writer) int {
	switch {
	case len(args) == 5 && args[0] == "version":
		return checkVersion(args[1:], out, errs)
	case len(args) >= 4 && args[0] == "dependencies":
		return printKey(args[1:], out, errs)
	case len(args) == 4 && args[0] == "nginx-check":
		return checkNginx(args[1], args[2], args[3], out, errs)
	case len(args) == 2 && args[0] == "nginx-start":
		return startNginx(args[1], errs)
	}
	fmt.Fprintln(errs, usage)
	return exitUsage
}

// checkVersion compares versions, as the arguments say.
func checkVersion(args []string, out, errs io.Writer) int {
	found := versions.Found{Language: args[0], Version: args[1], Stack: os.Getenv("CF_STACK")}
	hints, err := versions.Read(found.Language, versions.App{Files: os.DirFS(args[2]), Env: os.Getenv})
	if err != nil {
		fmt.Fprintln(errs, "dew-buildpack:", err)
		return exitUsage
	}
	r := versions.Check(found, hints)
	for _, note := range r.Notes {
		fmt.Fprintln(out, "       "+note)
	}
	for _, warning := range r.Warnings {
		fmt.Fprintln(out, "       WARNING: "+warning)
	}
	if r.Refused == "" {
		return 0
	}
	return refuse(args[3], r.Refused, errs)
}

// printKey prints the key of the dependencies of an app, as the arguments say.
func printKey(args []string, out, errs io.Writer) int {
	var context bytes.Buffer
	for _, name := range args[3:] {
		raw, err := os.ReadFile(name)
		if err != nil {
			fmt.Fprintln(errs, "dew-buildpack:", err)
			return exitFailed
		}
		fmt.Fprintf(&context, "%q\n", raw)
	}
	key, err := dependencies.Key(dependencies.App{Language: args[0], Version: args[1], Files: os.DirFS(args[2]), Env: os.Environ(), Context: &context})
	if err != nil {
		fmt.Fprintln(errs, "dew-buildpack:", err)
		return exitFailed
	}
	if key != "" {
		fmt.Fprintln(out, key)
	}
	return 0
}

// refuse writes the reason why an app cannot be staged.
func refuse(file, reason string, errs io.Writer) int {
	if err := os.WriteFile(file, []byte(reason+"\n"), 0o644); err != nil { //nolint:forbidigo // read once, in the same build
		fmt.Fprintln(errs, "dew-buildpack:", reason)
	}
	return exitFailed
}
