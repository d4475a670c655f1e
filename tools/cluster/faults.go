package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// controlAPI returns the endpoints of the whole cluster. Package kubetest is the client.
func (c *control) controlAPI() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("/machines/control/", c.api())
	mux.Handle("GET /cluster", handler(func(*http.Request) (any, error) {
		return map[string]any{
			"dir": c.Dir, "logs": c.Logs, "kubeconfig": c.path("kubeconfig"), "nodes": c.nodeNames(),
			"registry": controlAddress + ":" + registryPort, "server": apiServer, "token": c.token,
			"ca": c.path("ca.crt"), "stackImage": stackImage, "stackArchive": c.Stack, "program": c.program("cluster"),
		}, nil
	}))
	mux.Handle("GET /components", handler(func(*http.Request) (any, error) { return c.allStates(), nil }))
	var importing sync.Mutex // one import of the stack at a time
	imported := map[string]bool{}
	for n, name := range c.nodeNames() {
		mux.Handle("/machines/"+name+"/", forwardTo(c.socket(name)))
		mux.Handle("POST /machines/"+name+"/link/{action}", handler(func(r *http.Request) (any, error) {
			return struct{}{}, c.link(name, r.PathValue("action"))
		}))
		mux.Handle("POST /machines/"+name+"/power/{action}", handler(func(r *http.Request) (any, error) {
			return struct{}{}, c.power(n+1, r.PathValue("action"))
		}))
		mux.Handle("POST /machines/"+name+"/images/stack", handler(func(*http.Request) (any, error) {
			importing.Lock()
			defer importing.Unlock()
			return struct{}{}, c.importStack(name, imported)
		}))
	}
	return mux
}

// link cuts or restores the connection of a node.
func (c *control) link(node, action string) error {
	switch action {
	case "cut":
		return setLink(node, false)
	case "restore":
		return setLink(node, true)
	}
	return fmt.Errorf("unknown action %q: cut or restore", action)
}

// power switches a node off, with everything that runs on it, or on again.
func (c *control) power(number int, action string) error {
	node, err := c.find(nodeName(number))
	if err != nil {
		return err
	}
	switch action {
	case "off":
		if err := c.stop(node, syscall.SIGKILL); err != nil {
			return err
		}
		// A machine without power has no cgroups.
		cgroup := filepath.Join(c.Cgroup, node.name)
		if err := removeCgroups(cgroup); err != nil {
			return err
		}
		return makeCgroups(cgroup)
	case "on":
		return c.machine.start(node)
	}
	return fmt.Errorf("unknown action %q: off or on", action)
}

// importStack loads the image for tests once into each node.
func (c *control) importStack(node string, imported map[string]bool) error {
	if c.Stack == "" {
		return fmt.Errorf("the cluster has no image for tests: start it with --stack FILE")
	}
	if imported[node] {
		return nil
	}
	archive, err := os.Open(c.Stack)
	if err != nil {
		return err
	}
	defer archive.Close()
	resp, err := clientOf(c.socket(node)).Post("http://node/machines/"+node+"/images", "application/x-tar", archive)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s cannot import %s: %s", node, c.Stack, resp.Status)
	}
	imported[node] = true
	return nil
}

// allStates returns the components of all machines, with the process IDs that COMMAND
// sees. A node that is switched off has none.
func (c *control) allStates() []componentState {
	all := c.states()
	for _, own := range slices.Clone(all) {
		if own.PID == 0 || !strings.HasPrefix(own.Name, nodePrefix) {
			continue
		}
		states, err := componentsOf(c.socket(own.Name))
		if err != nil {
			continue
		}
		pids := namespacePIDs(own.PID)
		for _, state := range states {
			state.PID = pids[state.PID]
			all = append(all, state)
		}
	}
	return all
}

// componentsOf requests the components of a machine.
func componentsOf(socket string) (states []componentState, err error) {
	resp, err := clientOf(socket).Get("http://machine/components")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return states, json.NewDecoder(resp.Body).Decode(&states)
}

// namespacePIDs maps the process IDs in the PID namespace of a process to those here.
func namespacePIDs(first int) map[int]int {
	pids := map[int]int{}
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", first))
	if err != nil {
		return pids
	}
	links, _ := filepath.Glob("/proc/[0-9]*/ns/pid")
	for _, link := range links {
		if other, err := os.Readlink(link); err != nil || other != namespace {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(link, "/")[2])
		if err != nil {
			continue
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(status)) {
			if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
				fields := strings.Fields(ids)
				inner, _ := strconv.Atoi(fields[len(fields)-1])
				pids[inner] = pid
			}
		}
	}
	return pids
}
