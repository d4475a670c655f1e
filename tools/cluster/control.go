package main

import (
	"crypto/tls"
	_ "embed" // for the configuration of the registry
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// maxStarts limits the starts of a component while the cluster starts.
const maxStarts = 6

//go:embed registry.yaml
var registryConfig string

// control is process 1 of the control plane.
type control struct {
	*settings
	*machine
	begun time.Time
	token string // of the administrator
	http  *http.Client
}

// runControl starts the cluster, runs COMMAND, and returns its exit code. When process 1
// exits, the kernel removes all other processes.
func runControl(dir string) error {
	s, err := loadSettings(dir)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	c := &control{settings: s, machine: newMachine(controlName, s.Logs), begun: time.Now()}
	// Its certificate is checked by the users of kubeconfig.
	c.http = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: 10 * time.Second} //nolint:gosec // see above
	done := make(chan error, 1)
	go func() { done <- c.start() }()
	select {
	case err = <-done:
	case sig := <-signals:
		err = fmt.Errorf("stopped by the signal %q while the cluster was starting", sig)
	}
	if err != nil {
		return err
	}
	if len(s.Command) == 0 {
		c.say("runs until SIGINT or SIGTERM; run a command in it: %s enter --dir %s -- COMMAND", s.program("cluster"), s.Dir)
		<-signals
		return nil
	}
	return c.command(signals)
}

// say prints the progress.
func (c *control) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "cluster: %5.1f s: %s\n", time.Since(c.begun).Seconds(), fmt.Sprintf(format, args...))
}

// command runs COMMAND and forwards signals to it.
func (c *control) command(signals <-chan os.Signal) error {
	c.mu.Lock()
	p, err := c.spawn(c.Command, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Env: c.environment()})
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("cannot run the command: %w", err)
	}
	var late <-chan time.Time
	for {
		select {
		case <-p.exited:
			if p.status.Signaled() {
				return exitCode(128 + int(p.status.Signal()))
			}
			if code := p.status.ExitStatus(); code != 0 {
				return exitCode(code)
			}
			return nil
		case sig := <-signals:
			_ = syscall.Kill(p.pid, sig.(syscall.Signal)) // it could have exited already
			if sig != syscall.SIGINT && late == nil {
				late = time.After(stopTimeout)
			}
		case <-late:
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
	}
}

// start starts all components and waits until all nodes are ready.
func (c *control) start() error {
	if err := c.setUp(); err != nil {
		return err
	}
	c.say("starting etcd and kube-apiserver")
	if err := c.addAll([]*component{
		{name: "etcd", args: c.etcd()},
		{name: "kube-apiserver", args: c.apiServer()},
		{name: "registry", args: []string{"docker-registry", "serve", c.path("registry.yaml")}},
	}); err != nil {
		return err
	}
	// The nodes start meanwhile: kubelet waits for the API server.
	for n := range c.Nodes {
		if err := c.addNode(n + 1); err != nil {
			return err
		}
	}
	if err := c.waitFor("kube-apiserver", func() error { return c.get("/readyz", nil) }); err != nil {
		return err
	}
	c.say("kube-apiserver is ready")
	if err := c.addAll([]*component{
		{name: "kube-controller-manager", args: c.controllerManager()},
		{name: "kube-scheduler", args: c.scheduler()},
		{name: "kube-proxy", args: kubeProxy(c.settings, nodeName(1))},
	}); err != nil {
		return err
	}
	if err := c.waitFor("the nodes", c.nodesReady); err != nil {
		return err
	}
	// Without this ServiceAccount the API server refuses Pods.
	if err := c.waitFor("the ServiceAccount of the namespace default", func() error {
		return c.get("/api/v1/namespaces/default/serviceaccounts/default", nil)
	}); err != nil {
		return err
	}
	c.say("ready")
	return nil
}

// setUp creates the network, the credentials and the control API.
func (c *control) setUp() error {
	if err := privateMounts(controlName); err != nil {
		return err
	}
	if err := controlNetwork(); err != nil {
		return err
	}
	token, err := writeCredentials(c.settings)
	if err != nil {
		return err
	}
	c.token = token
	if err := writePauseImage(c.program("pause"), c.path("pause.tar")); err != nil {
		return err
	}
	registry := fmt.Sprintf(registryConfig, c.path("registry"), registryPort)
	if err := os.WriteFile(c.path("registry.yaml"), []byte(registry), 0o644); err != nil {
		return err
	}
	return serve(c.socket(controlName), c.controlAPI())
}

func (c *control) addAll(components []*component) error {
	for _, each := range components {
		if err := c.add(each); err != nil {
			return err
		}
	}
	return nil
}

// addNode starts a node: a process in namespaces of its own.
func (c *control) addNode(number int) error {
	name := nodeName(number)
	if err := os.MkdirAll(c.path(name), 0o755); err != nil {
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	node := &component{name: name, args: []string{c.program("cluster"), nodeCommand, c.Dir, name}, inputs: []*os.File{read}}
	node.attr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	node.started = func(pid int) error {
		err := nodeNetwork(pid, number, c.Nodes)
		// Closing the pipe lets the node continue. The next start needs another one.
		read.Close()
		write.Close()
		next, nextWrite, pipeErr := os.Pipe()
		read, write, node.inputs = next, nextWrite, []*os.File{next}
		return errors.Join(err, pipeErr)
	}
	return c.add(node)
}

func (c *control) etcd() []string {
	return []string{
		c.program("kubernetes"), "etcd", "--data-dir=" + c.path("etcd"), "--unsafe-no-fsync",
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380", "--log-level=warn",
	}
}

func (c *control) apiServer() []string {
	return []string{
		c.program("kubernetes"), "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=0.0.0.0", "--advertise-address=" + controlAddress, "--secure-port=6443",
		"--tls-cert-file=" + c.path("apiserver.crt"), "--tls-private-key-file=" + c.path("apiserver.key"),
		"--client-ca-file=" + c.path("ca.crt"), "--token-auth-file=" + c.path("tokens.csv"),
		"--requestheader-client-ca-file=" + c.path("ca.crt"), "--requestheader-allowed-names=front-proxy",
		"--kubelet-client-certificate=" + c.path("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + c.path("apiserver-kubelet-client.key"), "--kubelet-preferred-address-types=InternalIP",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--service-cluster-ip-range=" + serviceCIDR, "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.path("service-account.key"), "--service-account-signing-key-file=" + c.path("service-account.key"),
		"--v=1",
	}
}

// controllerManager returns the arguments of kube-controller-manager. It notices the
// loss of a node earlier than by default.
func (c *control) controllerManager() []string {
	config := c.path("kube-controller-manager.kubeconfig")
	return []string{
		c.program("kubernetes"), "kube-controller-manager", "--kubeconfig=" + config,
		"--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--leader-elect=false", "--allocate-node-cidrs=false",
		"--service-account-private-key-file=" + c.path("service-account.key"), "--root-ca-file=" + c.path("ca.crt"),
		"--node-monitor-grace-period=25s", "--node-monitor-period=2s", "--v=1",
	}
}

func (c *control) scheduler() []string {
	config := c.path("kube-scheduler.kubeconfig")
	return []string{
		c.program("kubernetes"), "kube-scheduler", "--kubeconfig=" + config, "--authentication-kubeconfig=" + config,
		"--authorization-kubeconfig=" + config, "--leader-elect=false", "--v=1",
	}
}

// get requests a path of the API server as administrator.
func (c *control) get(path string, into any) error {
	req, err := http.NewRequest(http.MethodGet, apiServer+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(body, into)
}

// nodesReady returns an error as long as a node is not ready.
func (c *control) nodesReady() error {
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct {
				Conditions []struct{ Type, Status, Message string }
			}
		}
	}
	if err := c.get("/api/v1/nodes", &list); err != nil {
		return err
	}
	if len(list.Items) < c.Nodes {
		return fmt.Errorf("%d of %d nodes have registered", len(list.Items), c.Nodes)
	}
	for _, node := range list.Items {
		for _, condition := range node.Status.Conditions {
			if condition.Type == "Ready" && condition.Status != "True" {
				return fmt.Errorf("%s is not ready: %s", node.Metadata.Name, condition.Message)
			}
		}
	}
	return nil
}

// waitFor waits until ok returns nil, and shows every five seconds why it does not. It
// fails early if a component exits again and again.
func (c *control) waitFor(what string, ok func() error) error {
	said := time.Now()
	return waitFor(what, c.Timeout, func() error {
		err := ok()
		if err == nil {
			return nil
		}
		if time.Since(said) > 5*time.Second {
			said = time.Now()
			c.say("waiting for %s: %v", what, err)
		}
		for _, state := range c.allStates() {
			if state.Starts >= maxStarts {
				return final{fmt.Errorf("%s of %s exits again and again: %s", state.Name, state.Machine, c.logTail(state))}
			}
		}
		return err
	})
}

// logTail returns the end of a component's log.
func (c *control) logTail(state componentState) string {
	path := filepath.Join(c.Logs, state.Machine, state.Name+".log")
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s has at its end:\n%s", path, text[max(0, len(text)-2000):])
}

// final is an error that waiting does not change.
type final struct{ error }

// waitFor waits until ok returns nil.
func waitFor(what string, timeout time.Duration, ok func() error) error {
	for end := time.Now().Add(timeout); ; <-time.After(50 * time.Millisecond) {
		err := ok()
		if err == nil {
			return nil
		}
		if stop := (final{}); errors.As(err, &stop) || time.Now().After(end) {
			return fmt.Errorf("%s did not start: %w", what, err)
		}
	}
}
