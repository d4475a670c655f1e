// Command app has one fault per mode, to show how a platform handles it.
//
//	exit   exits at once, with status 0
//	crash  serves, and fails after five seconds
//	idle   runs, and never listens
//	local  listens on localhost, where no router reaches it
//	port   listens on port 3000 instead of $PORT
//	env    needs the variable GREETING, and exits if it is not set
//	fill   writes a file until the disk quota is used, and exits
//	eat    allocates memory until it is stopped
//	serve  has no fault: it runs with a sidecar that has one
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	crashAfter      = 5 * time.Second
	pause           = 100 * time.Millisecond // between two checks of a sidecar
	chunk           = 8 << 20                // in bytes
	shutdownTimeout = 5 * time.Second
)

// errCrash is the fault of the mode crash.
var errCrash = errors.New("out of paper: cannot print the next ticket")

// modes are the faults by name.
var modes = map[string]func(ctx context.Context, env func(string) string) error{
	"exit":  exit,
	"crash": crash,
	"idle":  idle,
	"local": local,
	"port":  otherPort,
	"env":   needVariable,
	"eat":   allocateMemory,
	"fill":  fillDisk,
	"serve": serve,
}

func main() {
	log.SetFlags(0) // the platform adds the time to every line
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Getenv); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string, env func(string) string) error {
	mode, known := modes[strings.Join(args, " ")]
	if !known {
		return fmt.Errorf("cannot start: the mode must be exit, crash, idle, local, port, env, eat, fill or serve, not %q", strings.Join(args, " "))
	}
	return mode(ctx, env)
}

func exit(context.Context, func(string) string) error {
	log.Print("all work is done")
	return nil
}

func crash(ctx context.Context, env func(string) string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, crashAfter, errCrash)
	defer cancel()
	if err := listenAndServe(ctx, ":"+env("PORT")); err != nil {
		return err
	}
	if cause := context.Cause(ctx); errors.Is(cause, errCrash) {
		return cause
	}
	return nil
}

func idle(ctx context.Context, _ func(string) string) error {
	log.Print("thinking about the port to listen on")
	<-ctx.Done()
	return nil
}

func local(ctx context.Context, env func(string) string) error {
	return listenAndServe(ctx, net.JoinHostPort("127.0.0.1", env("PORT")))
}

func otherPort(ctx context.Context, _ func(string) string) error {
	return listenAndServe(ctx, ":3000")
}

func needVariable(ctx context.Context, env func(string) string) error {
	if env("GREETING") == "" {
		return errors.New("the environment variable GREETING is not set")
	}
	return listenAndServe(ctx, ":"+env("PORT"))
}

// allocateMemory keeps the memory that it allocates, and writes to it, because the kernel provides
// memory only when it is written.
func allocateMemory(ctx context.Context, _ func(string) string) error {
	log.Print("loading everything into memory")
	var all [][]byte
	for ctx.Err() == nil {
		b := make([]byte, chunk)
		for i := 0; i < len(b); i += os.Getpagesize() {
			b[i] = 1
		}
		all = append(all, b)
	}
	log.Printf("stopped after %d MB", len(all)*chunk>>20)
	return nil
}

// fillDisk writes to the file SPOOL_FILE, and returns the error of the first write that fails.
func fillDisk(ctx context.Context, env func(string) string) error {
	name := cmp.Or(env("SPOOL_FILE"), "spool/tickets")
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("cannot create the spool: %w", err)
	}
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("cannot create the spool: %w", err)
	}
	defer f.Close()
	for b := make([]byte, os.Getpagesize()); ctx.Err() == nil; {
		if _, err := f.Write(b); err != nil {
			return fmt.Errorf("cannot spool the next ticket: %w", err)
		}
	}
	return nil
}

// serve first waits for the sidecar at SIDECAR_ADDRESS, like an app that depends on its
// sidecar.
func serve(ctx context.Context, env func(string) string) error {
	if address := env("SIDECAR_ADDRESS"); address != "" {
		log.Printf("waiting for the sidecar at %s", address)
		if err := await(ctx, address); err != nil {
			return err
		}
	}
	return listenAndServe(ctx, ":"+env("PORT"))
}

// await returns nil when the address accepts connections or ctx is done.
func await(ctx context.Context, address string) error {
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// listenAndServe serves a greeting until ctx is done, and then finishes active
// requests.
func listenAndServe(ctx context.Context, address string) error {
	if ctx.Err() != nil {
		return nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	log.Printf("listening on %s", l.Addr())
	srv := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintln(w, "hello")
	})}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("cannot serve: %w", err)
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	return srv.Shutdown(ctx)
}
