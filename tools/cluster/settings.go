package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Addresses of the cluster. They are in network namespaces of their own, so that they
// cannot collide with those of the machine.
const (
	network        = "192.168.77"
	controlAddress = network + ".1"
	serviceCIDR    = "10.96.0.0/16"
	serviceAddress = "10.96.0.1" // of the Service kubernetes
	podCIDR        = "10.244.0.0/16"
	registryPort   = "5000"
	apiServer      = "https://" + controlAddress + ":6443"
)

// Names of images that every node has.
const (
	pauseImage = "cluster.test/pause:1"
	stackImage = "cluster.test/stack:1"
)

// settings of a cluster. They are in a file of its folder, for all of its machines.
type settings struct {
	Dir      string   `json:"dir"`
	Logs     string   `json:"logs"`
	Programs string   `json:"programs"` // folder of cluster, kubernetes and pause
	Stack    string   `json:"stack"`    // OCI archive, or empty
	Cgroup   string   `json:"cgroup"`   // in every hierarchy
	Nodes    int      `json:"nodes"`
	Command  []string `json:"command"`

	Timeout time.Duration `json:"timeout"` // for the start of each component
}

func (s *settings) path(elem ...string) string {
	return filepath.Join(append([]string{s.Dir}, elem...)...)
}

func (s *settings) program(name string) string { return filepath.Join(s.Programs, name) }

// socket of the control API of a machine.
func (s *settings) socket(machine string) string {
	if machine == controlName {
		return s.path("control.sock")
	}
	return s.path(machine, "control.sock")
}

func (s *settings) store() error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(s.path("settings.json"), text, 0o600)
}

func loadSettings(dir string) (*settings, error) {
	text, err := os.ReadFile(filepath.Join(dir, "settings.json"))
	if err != nil {
		return nil, err
	}
	s := &settings{}
	return s, json.Unmarshal(text, s)
}

// environment of COMMAND.
func (s *settings) environment() []string {
	drop := []string{"KUBECONFIG=", "DEW_CLUSTER=", "DEW_CLUSTER_REGISTRY="}
	var env []string
next:
	for _, v := range os.Environ() {
		for _, name := range drop {
			if strings.HasPrefix(v, name) {
				continue next
			}
		}
		env = append(env, v)
	}
	return append(env, "KUBECONFIG="+s.path("kubeconfig"), "DEW_CLUSTER="+s.socket(controlName),
		"DEW_CLUSTER_REGISTRY="+controlAddress+":"+registryPort)
}

const (
	controlName = "control"
	nodePrefix  = "node-"
)

func nodeName(number int) string    { return nodePrefix + strconv.Itoa(number) }
func nodeAddress(number int) string { return fmt.Sprintf("%s.%d", network, 10+number) }
func nodePods(number int) string    { return fmt.Sprintf("10.244.%d.0/24", number) }
func (s *settings) nodeNames() (names []string) {
	for n := range s.Nodes {
		names = append(names, nodeName(n+1))
	}
	return names
}
