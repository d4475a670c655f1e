// Command instance records a running instance of dewd from containerd and the kernel.
// Later it creates the same instance again from that record. A test uses it to show
// dewd an instance that an older dewd left running.
//
// It shares no code with dew on purpose: it repeats the steps of an old dewd,
// independent of the current one.
//
//	instance record --address SOCKET --namespace NAME --container ID > instance.json
//	instance revive --address SOCKET < instance.json
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
)

// The labels that every dewd since the first has set on its containers.
const (
	labelBoot   = "run.dew/boot"
	labelMemory = "run.dew/memory"
)

// record is one running instance.
type record struct {
	Namespace string  `json:"namespace"`
	Container string  `json:"container"`
	Cgroup    string  `json:"cgroup"` // cgroup of the instance, in every hierarchy
	Memory    string  `json:"memory"` // limit of the instance in bytes
	Network   network `json:"network"`
	Execs     []run   `json:"execs"`
}

// network is the network namespace of the instance and its connection to the host.
type network struct {
	Path    string `json:"path"` // path of its bind mount
	Bridge  string `json:"bridge"`
	Gateway string `json:"gateway"` // address of the bridge
	Veth    string `json:"veth"`    // name on the host
	MAC     string `json:"mac"`     // MAC address of eth0
	Address string `json:"address"` // IP address of eth0
}

// run is one process that dewd started in the container.
type run struct {
	Exec   string   `json:"exec"`
	Args   []string `json:"args"`
	Env    []string `json:"env"`
	Cwd    string   `json:"cwd"`
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Memory string   `json:"memory"` // limit of its cgroup in bytes; 0: none
	Stdin  string   `json:"stdin"`  // the gate, which is a FIFO
	Stdout string   `json:"stdout"`
	Stderr string   `json:"stderr"`
}

func main() {
	if err := execute(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "instance:", err)
		os.Exit(1)
	}
}

func execute(args []string) error {
	if len(args) == 0 {
		return errors.New("record or revive?")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	address := flags.String("address", "", "socket of containerd")
	namespace := flags.String("namespace", "", "namespace of the container")
	container := flags.String("container", "", "id of the container")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cl, err := client.New(*address)
	if err != nil {
		return err
	}
	defer cl.Close()
	switch args[0] {
	case "record":
		r, err := recordInstance(namespaces.WithNamespace(ctx, *namespace), cl, *container)
		if err != nil {
			return err
		}
		r.Namespace = *namespace
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(r)
	case "revive":
		var r record
		if err := json.NewDecoder(os.Stdin).Decode(&r); err != nil {
			return fmt.Errorf("cannot read the record: %w", err)
		}
		return revive(namespaces.WithNamespace(ctx, r.Namespace), cl, r)
	}
	return fmt.Errorf("unknown verb %q", strings.Join(args, " "))
}
