package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

const (
	nodeCommand       = "run-node"
	nodeInsideCommand = "run-node-inside"
	containerdSocket  = "/run/containerd/containerd.sock"
)

// runNode is process 1 of a node. The control plane closes the file with number 3 when
// the network of the node is ready. Process 1 sets up the namespaces and executes itself
// again, so that all its threads are in the cgroup namespace.
func runNode(dir, name string) error {
	s, err := loadSettings(dir)
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	network := os.NewFile(3, "network")
	if _, err := network.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: the network is not ready: %w", name, err)
	}
	network.Close()
	if err := privateMounts(name); err != nil {
		return err
	}
	if err := enterCgroups(filepath.Join(s.Cgroup, name)); err != nil {
		return err
	}
	if err := nodeMounts(s.path(name)); err != nil {
		return err
	}
	if err := forward(); err != nil {
		return err
	}
	return syscall.Exec(s.program("cluster"), []string{"cluster", nodeInsideCommand, dir, name}, os.Environ())
}

// runNodeInside is process 1 of a node in its namespaces: it starts the components.
func runNodeInside(dir, name string) error {
	s, err := loadSettings(dir)
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(strings.TrimPrefix(name, nodePrefix))
	if err != nil {
		return err
	}
	m := newMachine(name, s.Logs)
	if err := writeNodeFiles(s, number); err != nil {
		return err
	}
	if err := m.add(&component{name: "containerd", args: []string{"containerd", "--config", "/run/containerd.toml"}}); err != nil {
		return err
	}
	if err := waitFor("containerd", s.Timeout, func() error { return m.output(nil, "ctr", "--address", containerdSocket, "version") }); err != nil {
		return err
	}
	if err := m.importImage(s.path("pause.tar")); err != nil {
		return err
	}
	if err := m.add(&component{name: "kubelet", args: kubelet(s, number)}); err != nil {
		return err
	}
	if err := m.add(&component{name: "kube-proxy", args: kubeProxy(s, name)}); err != nil {
		return err
	}
	if err := os.Remove(s.socket(name)); err != nil && !errors.Is(err, os.ErrNotExist) { // of the node's previous start
		return err
	}
	if err := serve(s.socket(name), m.nodeAPI()); err != nil {
		return err
	}
	select {}
}

// importImage loads an OCI archive into the images of the node's Pods.
func (m *machine) importImage(archive string) error {
	return m.output(nil, "ctr", "--address", containerdSocket, "--namespace", "k8s.io", "images", "import", archive)
}

func kubelet(s *settings, number int) []string {
	return []string{
		s.program("kubernetes"), "kubelet", "--config=/run/kubelet.yaml", "--kubeconfig=" + s.path(nodeName(number)+".kubeconfig"),
		"--root-dir=/var/lib/kubelet", "--cert-dir=/run/kubelet-certificates",
		"--hostname-override=" + nodeName(number), "--node-ip=" + nodeAddress(number), "--v=2",
	}
}

// kubeProxy returns the arguments of kube-proxy. The control plane has one as well, so
// that tests reach the addresses of Services; it uses the name of a node.
func kubeProxy(s *settings, node string) []string {
	return []string{
		s.program("kubernetes"), "kube-proxy", "--kubeconfig=" + s.path("kube-proxy.kubeconfig"),
		"--hostname-override=" + node, "--proxy-mode=nftables", "--cluster-cidr=" + podCIDR,
		// The limits of connection tracking belong to the whole machine.
		"--conntrack-max-per-core=0", "--conntrack-min=0",
		"--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0",
		"--v=2",
	}
}

// writeNodeFiles writes the configuration of containerd, its network and kubelet.
func writeNodeFiles(s *settings, number int) error {
	registry := controlAddress + ":" + registryPort
	for path, text := range map[string]string{
		"/run/containerd.toml":                        containerdConfig,
		"/run/cni/net.d/10-cluster.conflist":          fmt.Sprintf(cniConfig, nodePods(number)),
		"/run/registries/" + registry + "/hosts.toml": fmt.Sprintf("server = \"http://%[1]s\"\n[host.\"http://%[1]s\"]\ncapabilities = [\"pull\", \"resolve\"]\n", registry),
		"/run/kubelet.yaml":                           fmt.Sprintf(kubeletConfig, s.path("ca.crt")),
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Without restrict_oom_score_adj a Pod needs CAP_SYS_RESOURCE, which root in a container
// does not have.
const containerdConfig = `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]

[grpc]
  address = "` + containerdSocket + `"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + pauseImage + `"
  restrict_oom_score_adj = true

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/run/cni/net.d"

  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false

  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "/run/registries"
`

// Pods of a node are routed and not bridged: a bridge would carry the answers of a
// Service past the address translation.
const cniConfig = `{
  "cniVersion": "0.4.0",
  "name": "pods",
  "plugins": [{
    "type": "ptp",
    "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}
  }]
}
`

// The lease is short, so that Kubernetes notices the loss of a node early.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %q}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix://` + containerdSocket + `
enforceNodeAllocatable: []
evictionHard: {memory.available: 10Mi, nodefs.available: 1%%, nodefs.inodesFree: 1%%, imagefs.available: 1%%}
failCgroupV1: false
failSwapOn: false
imageGCHighThresholdPercent: 100
nodeLeaseDurationSeconds: 20
nodeStatusUpdateFrequency: 5s
podLogsDir: /var/log/pods
readOnlyPort: 0
resolvConf: /dev/null
serializeImagePulls: false
`
