// Command cluster starts a real Kubernetes cluster for tests on one machine, and removes
// every trace of it. Each machine of the cluster is a set of namespaces: one for the
// control plane and the tests, and one for each node.
//
//	cluster up                 outside of the namespaces: cgroups, signals, cleanup
//	└─ control                 process 1 of the control plane: etcd, kube-apiserver, …, COMMAND
//	   ├─ node-1               process 1 of a node: containerd, kubelet, kube-proxy, Pods
//	   └─ node-2
//
// When process 1 of a PID namespace exits, the kernel kills all processes in it and then
// removes the mounts and network devices. Nothing survives the cluster, even if it is
// killed.
package main

import (
	"errors"
	"fmt"
	"os"
)

const usage = `cluster starts a Kubernetes cluster for tests on this machine. It needs root.

  cluster up [FLAG…] [-- COMMAND…]      Start a cluster, run COMMAND in it, remove the cluster.
                                        Without COMMAND the cluster runs until SIGINT or SIGTERM.
  cluster enter [FLAG…] [-- COMMAND…]   Run COMMAND (default: a shell) in a running cluster
  cluster stack ROOTFS.tar ARCHIVE      Write the OCI archive of the image for tests

  --dir DIR    folder of the cluster (default: a new folder in the folder of temporary files)
  --nodes N    up: number of nodes (default 1)
  --logs DIR   up: folder for the logs of the components (default: logs in the folder of the cluster)
  --stack FILE up: OCI archive of the image for tests (default: none)
  --timeout T  up: time limit for the start of each component (default 4m)
  --node NAME  enter: run COMMAND on this node (default: beside the control plane)

COMMAND has KUBECONFIG, DEW_CLUSTER (a unix socket that controls the cluster, see package
runtime/kubernetes/kubetest) and DEW_CLUSTER_REGISTRY (address of a registry) in its environment.
The exit code is that of COMMAND, or 125 if the cluster did not start.
`

// failed is the exit code if the cluster does not start.
const failed = 125

// exitCode is an error that only sets the exit code: everything was already printed.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

func main() {
	err := run(os.Args[1:])
	var code exitCode
	if errors.As(err, &code) {
		os.Exit(int(code))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(failed)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return exitCode(2)
	}
	switch args[0] {
	case "up":
		return up(args[1:])
	case "enter", "shell":
		return enter(args[1:])
	case "stack":
		if len(args) != 3 {
			return errors.New("usage: cluster stack ROOTFS.tar ARCHIVE")
		}
		return writeStackImage(args[1], args[2])
	case controlCommand:
		return runControl(args[1])
	case nodeCommand:
		return runNode(args[1], args[2])
	case nodeInsideCommand:
		return runNodeInside(args[1], args[2])
	case execCommand:
		return execInside(args[1], args[2:])
	case "help", "-h", "--help":
		fmt.Print(usage)
		return nil
	}
	return fmt.Errorf("unknown command %q: run `cluster help`", args[0])
}
