// Command dew-pod is dew's program inside the Pods of instances on Kubernetes. It has
// three modes:
//
//	dew-pod agent …    connects the Pod with dewd
//	dew-pod wrap …     runs one process of the app and reports its exit
//	dew-pod session    runs a session next to a process, with file 3 as its connection
//
// It is linked statically, because a stack need not have a libc.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/dewrun/dew/runtime/kubernetes/agent"
	"github.com/dewrun/dew/runtime/kubernetes/wrapper"
)

const usage = "usage: dew-pod agent|wrap|session [options]"

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "dew-pod: "+err.Error())
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(args []string) (int, error) {
	if len(args) == 0 {
		return 2, errors.New(usage)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	switch args[0] {
	case "agent":
		return 1, runAgent(args[1:], log)
	case "wrap":
		return runWrapper(args[1:], log)
	case "session":
		return 0, wrapper.RunSession(os.NewFile(3, "connection"))
	}
	return 2, errors.New(usage)
}

func runAgent(args []string, log *slog.Logger) error {
	var cfg agent.Config
	f := flag.NewFlagSet("dew-pod agent", flag.ContinueOnError)
	f.StringVar(&cfg.Instance, "instance", "", "`id` of the instance")
	f.StringVar(&cfg.Server, "server", "", "`address` of dewd")
	f.StringVar(&cfg.Run, "run", "", "`folder` that the containers of the Pod share")
	f.StringVar(&cfg.Bin, "bin", "", "`folder` to copy the programs of dew to")
	execs := f.String("processes", "", "`names` of the processes, separated by commas")
	keys := f.String("tls", "", "`folder` with ca.crt, tls.crt and tls.key")
	name := f.String("server-name", "", "`name` in the certificate of dewd")
	programs := f.String("programs", "", "`files` to copy, separated by commas")
	if err := f.Parse(args); err != nil {
		return err
	}
	cfg.Token, cfg.Execs, cfg.Logger = os.Getenv("DEW_TOKEN"), strings.Split(*execs, ","), log
	if *programs != "" {
		cfg.Programs = strings.Split(*programs, ",")
	}
	var err error
	if cfg.TLS, err = clientTLS(*keys, *name); err != nil {
		return err
	}
	a, err := agent.New(cfg)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return a.Run(ctx)
}

// clientTLS reads the keys with which the agent and dewd authenticate each other.
func clientTLS(dir, name string) (*tls.Config, error) {
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("ca.crt has no certificate")
	}
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}, ServerName: name, MinVersion: tls.VersionTLS13}, nil
}

func runWrapper(args []string, log *slog.Logger) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	cfg := wrapper.Config{Session: []string{self, "session"}, Logger: log}
	f := flag.NewFlagSet("dew-pod wrap", flag.ContinueOnError)
	f.StringVar(&cfg.Exec, "process", "", "`name` of the process")
	f.StringVar(&cfg.Run, "run", "", "`folder` that the containers of the Pod share")
	f.StringVar(&cfg.Home, "home", "", "home `folder` of the app")
	folders := f.String("folders", "", "`folders` to store after a crash, separated by commas")
	f.StringVar(&cfg.Init, "init", "", "`path` of dew-init")
	f.StringVar(&cfg.Cgroup, "cgroup", "/sys/fs/cgroup", "`folder` of the control groups")
	f.Int64Var(&cfg.Backlog, "backlog", 16<<20, "`bytes` of output that can wait, for each stream")
	if err := f.Parse(args); err != nil {
		return 2, err
	}
	if *folders != "" {
		cfg.Folders = strings.Split(*folders, ",")
	}
	return wrapper.Run(context.Background(), cfg)
}
