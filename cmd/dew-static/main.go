// Command dew-static serves the files of an app without a process. The staticfile
// buildpack puts it into the app's image, so that the image needs no web server on its
// stack:
//
//	dew-static FOLDER           serves it on $PORT, according to its Staticfile
//	dew-static --check FOLDER   prints the settings of the Staticfile, while staging
//
// It is linked statically. Exit statuses: 0 after SIGTERM, 1 if it cannot serve, 2 for
// a wrong command line.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	exitFailed = 1
	exitUsage  = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, errs io.Writer) int {
	check := len(args) > 0 && args[0] == "--check"
	if check {
		args = args[1:]
	}
	if len(args) != 1 {
		fmt.Fprintln(errs, "usage: dew-static [--check] FOLDER")
		return exitUsage
	}
	s, err := openSite(args[0])
	if err == nil && check {
		s.printSettings(out)
		return 0
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		err = serve(ctx, s, out)
	}
	if err != nil {
		fmt.Fprintln(errs, "dew-static:", err)
		return exitFailed
	}
	return 0
}

// Limits of a connection. A whole response has none, because files can be large and
// clients slow.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute // longer than the router keeps an idle connection
	maxHeader     = 64 << 10
	// drainTime is the time for active requests when the app stops. After 10 s it is
	// killed.
	drainTime = 9 * time.Second
)

// serve serves on $PORT until ctx is done, and then finishes active requests.
func serve(ctx context.Context, s *site, out io.Writer) error {
	l, err := net.Listen("tcp", ":"+cmp.Or(os.Getenv("PORT"), "8080"))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader}
	fmt.Fprintln(out, "Serving files on", l.Addr())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	if err := server.Shutdown(last); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// version identifies one push of the app. The times of its files do not, because all
// files of an image have the same time.
func version() string {
	var vcap struct {
		Version string `json:"application_version"`
	}
	if err := json.Unmarshal([]byte(os.Getenv("VCAP_APPLICATION")), &vcap); err != nil || vcap.Version == "" {
		return time.Now().String()
	}
	return vcap.Version
}
