package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"

	"github.com/vishvananda/netlink"
)

const onNetwork = "Network of instances"

func networkAttacks() []attack {
	n := func(name, want string, run func(w *target) (string, error)) attack {
		return attack{Probe{Group: onNetwork, Name: name, Want: want}, run}
	}
	const refused = "connection refused"
	return []attack{
		n("connect to a metadata server at a link-local address", "no connection, and the log says why", metadata),
		n("connect to a server on the loopback address of the machine", refused, hostLoopback),
		n("connect to a TCP port of the machine", refused+"; only the API and the router answer", hostPorts),
		n("send to a UDP port of the machine", refused, hostUDP),
		n("connect to the SSH server of dewd from an instance", refused, hostSSH),
		n("connect to an app of another space", refused, neighbour),
		n("allow connections to an app of another space", "status 403 or 404, and the connection stays refused", foreignPolicy),
		n("use more ports than a network policy allows, or the other direction", refused, policyPorts),
		tried(Probe{Group: onNetwork, Name: "open raw and packet sockets, for example to send ARP", Want: "the kernel refuses it"}, "raw", nil, "EPERM"),
		tried(Probe{Group: onNetwork, Name: "open sockets of rarely used kernel parts", Want: "the kernel refuses it"}, "sockets", nil, "EPERM", "EAFNOSUPPORT", "EAFNOSUPPORT, EPERM"),
		n("take the address of another instance, or change neighbours and links", "the kernel refuses it", takeAddress),
		n("send packets from the address of another instance", "the kernel refuses it", spoofedSource),
		n("get a whole zone from the DNS server", "no records", zoneTransfer),
		n("get names of this machine from the DNS server", "not found", hostNames),
		n("use the API from an instance without a token", "status 401", apiWithoutToken),
		n("get a token of an administrator from an instance", "status 401 or 403", apiSocketOnly),
		n("let dewd connect to the machine with the URL of a broker or log drain", "dewd does not connect", ssrf),
	}
}

// onHost serves at an address of the machine until the returned function is called.
func onHost(network, address string) (port string, stop func(), err error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return "", nil, err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	_, port, err = net.SplitHostPort(l.Addr().String())
	return port, func() { _ = l.Close() }, err
}

// dials lets the attacker connect, after this test has shown that the machine itself can.
func dials(w *target, to ...string) (string, error) {
	var args []string
	for _, t := range to {
		args = append(args, "to", t)
	}
	seen, err := w.try("dial", args...)
	if err != nil {
		return seen, err
	}
	return allowed(seen, "ECONNREFUSED")
}

// metadata uses an address that no network has, on an interface that is removed again.
func metadata(w *target) (string, error) {
	const address = "169.254.169.253"
	name := fmt.Sprintf("dewp%d", os.Getpid()%100000)
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "p"}
	if err := netlink.LinkAdd(link); err != nil {
		return "", fmt.Errorf("cannot create an interface: %w", err)
	}
	defer netlink.LinkDel(link) //nolint:errcheck // removed with the machine at the latest
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(address), Mask: net.CIDRMask(32, 32)}}
	if err := errors.Join(netlink.AddrAdd(link, addr), netlink.LinkSetUp(link)); err != nil {
		return "", err
	}
	port, stop, err := onHost("tcp4", address+":0")
	if err != nil {
		return "", err
	}
	defer stop()
	if err := reaches(w.t.Context(), net.JoinHostPort(address, port)); err != nil {
		return "", err
	}
	for _, to := range []string{net.JoinHostPort(address, port), "169.254.169.254:80"} {
		seen, err := w.try("knock", "to", to)
		if err != nil {
			return seen, err
		}
		if seen != "no connection" {
			return seen, fmt.Errorf("the instance reaches %s", to)
		}
	}
	if _, err := w.line("to link-local address " + address); err != nil {
		return "", err
	}
	return "no connection; the log of the app says why", nil
}

// reaches connects from the machine itself.
func reaches(ctx context.Context, to string) error {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", to)
	if err != nil {
		return fmt.Errorf("the machine itself cannot connect, so the probe proves nothing: %w", err)
	}
	return c.Close()
}

func hostLoopback(w *target) (string, error) {
	port, stop, err := onHost("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer stop()
	return dials(w, "127.0.0.1:"+port, w.gateway()+":"+port, "0.0.0.0:"+port)
}

func hostPorts(w *target) (string, error) {
	port, stop, err := onHost("tcp4", "0.0.0.0:0")
	if err != nil {
		return "", err
	}
	defer stop()
	to := []string{net.JoinHostPort(w.gateway(), port)}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for _, a := range all {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && p.Addr().Is4() && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() {
			to = append(to, net.JoinHostPort(p.Addr().String(), port))
		}
	}
	if err := reaches(w.t.Context(), to[0]); err != nil {
		return "", err
	}
	seen, err := dials(w, to...)
	if err != nil {
		return seen, err
	}
	// The attacker can connect to something, so the probe can fail.
	if got, err := w.try("get", "method", "GET", "url", w.apiInside()+"/v3/info"); err != nil || !strings.HasPrefix(got, "401") {
		return got, fmt.Errorf("the API is not reachable from instances: %s %w", got, err)
	}
	return seen, nil
}

// apiInside is the URL of the API for instances.
func (w *target) apiInside() string {
	w.t.Helper()
	_, port, err := net.SplitHostPort(w.API)
	w.must(err)
	return "http://" + net.JoinHostPort(w.gateway(), port)
}

func hostUDP(w *target) (string, error) {
	c, err := net.ListenPacket("udp4", w.gateway()+":0")
	if err != nil {
		return "", err
	}
	defer c.Close()
	go func() { // it answers whoever reaches it
		b := make([]byte, 64)
		for {
			_, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(b, from)
		}
	}()
	seen, err := w.try("udp", "to", c.LocalAddr().String())
	if err != nil {
		return seen, err
	}
	return allowed(seen, "ECONNREFUSED")
}

func hostSSH(w *target) (string, error) {
	_, port, err := net.SplitHostPort(w.SSH)
	if err != nil {
		return "", err
	}
	return dials(w, net.JoinHostPort(w.gateway(), port))
}

func neighbour(w *target) (string, error) {
	return dials(w, w.victim.address+":8080", w.victim.address+":2222", w.victim.address+":22")
}

const policiesPath = "/networking/v1/external/policies"

func policy(source, destination string) string {
	return fmt.Sprintf(`{"policies":[{"source":{"id":%q},"destination":{"id":%q,"protocol":"tcp","ports":{"start":8080,"end":8080}}}]}`, source, destination)
}

func foreignPolicy(w *target) (string, error) {
	var codes []int
	for _, c := range w.outsiders {
		a, err := w.ask(c.token, http.MethodPost, policiesPath, policy(w.attacker.app, w.victim.app))
		if err != nil {
			return "", err
		}
		codes = append(codes, a.status)
		if a.status != http.StatusForbidden && a.status != http.StatusNotFound {
			return a.String(), fmt.Errorf("%s can create the policy", c.name)
		}
	}
	seen, err := dials(w, w.victim.address+":8080")
	return statuses(codes) + "; " + seen, err
}

func policyPorts(w *target) (string, error) {
	body := policy(w.attacker.app, w.victim.app)
	if a, err := w.ask(w.admin, http.MethodPost, policiesPath, body); err != nil || a.status != http.StatusOK {
		return a.String(), fmt.Errorf("cannot create the policy: %w", err)
	}
	defer w.ask(w.admin, http.MethodPost, policiesPath+"/delete", body) //nolint:errcheck // the last one of its kind
	err := w.until(func() error {
		seen, err := w.try("dial", "to", w.victim.address+":8080")
		if err == nil && seen != "connected" {
			err = fmt.Errorf("the allowed port: %s", seen)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	seen, err := dials(w, w.victim.address+":8081", w.victim.address+":22")
	if err != nil {
		return seen, err
	}
	back, err := w.tryIn("victim", "dial", "to", w.attacker.address+":8080")
	if err != nil {
		return back, err
	}
	return allowed(back, "ECONNREFUSED")
}

func takeAddress(w *target) (string, error) {
	seen, err := w.try("address", "address", w.victim.address)
	if err != nil {
		return seen, err
	}
	return allowed(seen, "EPERM")
}

func spoofedSource(w *target) (string, error) {
	seen, err := w.try("spoof", "from", w.victim.address, "to", w.gateway())
	if err != nil {
		return seen, err
	}
	return allowed(seen, "ENETUNREACH, EPERM", "EINVAL, EPERM", "EADDRNOTAVAIL, EPERM")
}

func zoneTransfer(w *target) (string, error) {
	seen, err := w.try("transfer", "server", w.gateway()+":53")
	if err != nil {
		return seen, err
	}
	return allowed(seen, "no records", "closed", "ECONNREFUSED")
}

func hostNames(w *target) (string, error) {
	name, err := os.Hostname()
	if err != nil {
		return "", err
	}
	for _, n := range []string{"victim.apps.internal", "0.victim.apps.internal", name + ".apps.internal"} {
		seen, err := w.try("lookup", "name", n)
		if err != nil {
			return seen, err
		}
		if seen, err := allowed(seen, "not found"); err != nil {
			return seen, fmt.Errorf("%s: %w", n, err)
		}
	}
	return "not found", nil
}

func apiWithoutToken(w *target) (string, error) {
	for _, path := range []string{"/v3/apps", "/v3/organizations", "/dew/v1/status", "/metrics", "/api/v1/read/" + w.victim.app, "/uaa/Users"} {
		seen, err := w.try("get", "method", "GET", "url", w.apiInside()+path)
		if err != nil {
			return seen, err
		}
		if !strings.HasPrefix(seen, "401") {
			return path + ": " + seen, errors.New("want 401")
		}
	}
	return "401 for 6 paths", nil
}

func apiSocketOnly(w *target) (string, error) {
	for _, r := range [][2]string{{"POST", "/dew/v1/token"}, {"GET", "/dew/v1/credentials"}, {"POST", "/dew/v1/shutdown"}} {
		seen, err := w.try("get", "method", r[0], "url", w.apiInside()+r[1], "body", "{}")
		if err != nil {
			return seen, err
		}
		if !strings.HasPrefix(seen, "401") && !strings.HasPrefix(seen, "403") {
			return r[1] + ": " + seen, errors.New("want 401 or 403")
		}
	}
	return "401 for 3 paths", nil
}

// ssrf lets dewd connect on behalf of a developer. No connection must arrive.
func ssrf(w *target) (string, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	var connections atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			_ = c.Close()
		}
	}()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return "", err
	}
	for i, host := range []string{"127.0.0.1", "localhost", "0x7f.1", "[::ffff:127.0.0.1]", "169.254.169.254", w.gateway()} {
		if seen, err := w.refusedBroker(fmt.Sprintf("broker-%d", i), net.JoinHostPort(strings.Trim(host, "[]"), port)); err != nil {
			return seen, err
		}
	}
	if seen, err := w.refusedDrain("127.0.0.1:" + port); err != nil {
		return seen, err
	}
	if n := connections.Load(); n > 0 {
		return fmt.Sprintf("%d connections", n), errors.New("dewd connects")
	}
	return "no connection", nil
}

// refusedBroker registers a broker of the developer. A job reports the refusal.
func (w *target) refusedBroker(name, address string) (string, error) {
	a, err := w.ask(w.developer().token, http.MethodPost, "/v3/service_brokers", fmt.Sprintf(
		`{"name":%q,"url":"http://%s","authentication":{"type":"basic","credentials":{"username":"u","password":"p"}},"relationships":{"space":{"data":{"guid":%q}}}}`, name, address, w.attacker.space))
	if err == nil && a.status == http.StatusAccepted {
		a, err = w.job(a)
	}
	if err != nil {
		return a.String(), err
	}
	if a.status != http.StatusUnprocessableEntity && !strings.Contains(a.body, "dew does not connect to") && !strings.Contains(a.body, "no such host") {
		return a.String(), fmt.Errorf("dewd connects to the broker %s", address)
	}
	return a.String(), nil
}

// refusedDrain binds a log drain of the developer. The log of the app has the refusal.
func (w *target) refusedDrain(address string) (string, error) {
	dev := w.developer().token
	guid, err := w.create(dev, "/v3/service_instances", fmt.Sprintf(
		`{"type":"user-provided","name":"drain","syslog_drain_url":"syslog://%s","relationships":{"space":{"data":{"guid":%q}}}}`, address, w.attacker.space))
	if err != nil {
		return "", err
	}
	body := fmt.Sprintf(`{"type":"app","relationships":{"app":{"data":{"guid":%q}},"service_instance":{"data":{"guid":%q}}}}`, w.attacker.app, guid)
	if a, err := w.ask(dev, http.MethodPost, "/v3/service_credential_bindings", body); err != nil || a.status >= http.StatusBadRequest {
		return a.String(), fmt.Errorf("cannot bind the drain: %w", err)
	}
	lines, err := w.line("cannot send to syslog://" + address)
	if err == nil && !strings.Contains(lines[0], "dew does not connect to a loopback address") {
		err = errors.New("another error")
	}
	return strings.Join(lines, "; "), err
}

// job waits for the end of a job and returns it.
func (w *target) job(accepted answer) (end answer, err error) {
	at := accepted.header.Get("Location")
	i := strings.Index(at, "/v3/jobs/")
	if i < 0 {
		return accepted, fmt.Errorf("no job: %s", accepted)
	}
	err = w.until(func() error {
		var job struct{ State string }
		if end, err = w.ask(w.admin, http.MethodGet, at[i:], ""); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(end.body), &job); err != nil || job.State == "PROCESSING" || job.State == "POLLING" {
			return fmt.Errorf("the job is not done: %s", end)
		}
		return nil
	})
	return end, err
}
