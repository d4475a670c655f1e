//go:build k8stest

package cluster_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/dewrun/dew/certs"
	"github.com/dewrun/dew/runtime/kubernetes/kubetest"
	"github.com/dewrun/dew/testkit"
)

// privateRegistry is a registry with TLS and a login. Its certificate is signed by a CA of
// its own.
type privateRegistry struct {
	address string
	ca      string // PEM
	pool    *x509.CertPool
}

const (
	registryUser     = "dew"
	registryPassword = "a-password-of-the-test"
)

// newPrivateRegistry starts a registry at the address of the test cluster's own one.
func newPrivateRegistry(t *testing.T, c *kubetest.Cluster) privateRegistry {
	t.Helper()
	host, _, err := net.SplitHostPort(c.Registry)
	if err != nil {
		t.Fatal(err)
	}
	r := privateRegistry{address: net.JoinHostPort(host, strconv.Itoa(testkit.FreePorts(t, 1))), pool: x509.NewCertPool()}
	dir := t.TempDir()
	r.createCertificate(t, dir, host)
	hash, err := bcrypt.GenerateFromPassword([]byte(registryPassword), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	testkit.WriteFile(t, filepath.Join(dir, "htpasswd"), registryUser+":"+string(hash)+"\n")
	config := testkit.WriteFile(t, filepath.Join(dir, "registry.yaml"), fmt.Sprintf(`version: 0.1
log: {accesslog: {disabled: true}, level: warn}
storage: {filesystem: {rootdirectory: %[1]s/images}}
http: {addr: %[2]q, secret: test, tls: {certificate: %[1]s/tls.crt, key: %[1]s/tls.key}}
auth: {htpasswd: {realm: test, path: %[1]s/htpasswd}}
`, dir, r.address))
	cmd := exec.Command("docker-registry", "serve", config)
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	testkit.Eventually(t, "the registry answers", func() error {
		conn, err := tls.Dial("tcp", r.address, &tls.Config{RootCAs: r.pool})
		if err == nil {
			_ = conn.Close() // only a check
		}
		return err
	})
	return r
}

// createCertificate creates a CA and the certificate of the registry.
func (r *privateRegistry) createCertificate(t *testing.T, dir, host string) {
	t.Helper()
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	caKey, registryKey := key(), key()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA of the test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	own := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "registry"}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		IPAddresses: []net.IP{net.ParseIP(host)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	caDER, err1 := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	ownDER, err2 := x509.CreateCertificate(rand.Reader, own, ca, &registryKey.PublicKey, caKey)
	keyDER, err3 := x509.MarshalPKCS8PrivateKey(registryKey)
	if err1 != nil || err2 != nil || err3 != nil {
		t.Fatal(err1, err2, err3)
	}
	r.ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}))
	r.pool.AppendCertsFromPEM([]byte(r.ca))
	testkit.WriteFile(t, filepath.Join(dir, "tls.crt"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ownDER})))
	testkit.WriteFile(t, filepath.Join(dir, "tls.key"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})))
}

// trust makes this machine and all nodes trust the CA, as their administrators would.
func (r *privateRegistry) trust(t *testing.T, c *kubetest.Cluster) {
	t.Helper()
	bundle, err := os.ReadFile(certs.BundlePath)
	if err != nil {
		t.Fatal(err)
	}
	file := testkit.WriteFile(t, filepath.Join(t.TempDir(), "bundle.crt"), string(bundle)+"\n"+r.ca)
	if err := syscall.Mount(file, certs.BundlePath, "", syscall.MS_BIND, ""); err != nil { // only in the namespace of the cluster
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(certs.BundlePath, 0); err != nil {
			t.Error(err)
		}
	})
	for _, node := range c.Nodes {
		root := fmt.Sprintf("/proc/%d/root", c.Component(t, node, kubetest.Containerd).PID)
		dir := "/run/registries/" + r.address
		if err := os.MkdirAll(root+dir, 0o755); err != nil {
			t.Fatal(err)
		}
		testkit.WriteFile(t, root+dir+"/ca.crt", r.ca)
		testkit.WriteFile(t, root+dir+"/hosts.toml", fmt.Sprintf("server = \"https://%[1]s\"\n[host.\"https://%[1]s\"]\ncapabilities = [\"pull\", \"resolve\"]\nca = \"%[2]s/ca.crt\"\n", r.address, dir))
		t.Cleanup(func() {
			if err := os.RemoveAll(root + dir); err != nil {
				t.Error(err)
			}
		})
	}
}

// dockerConfig writes the file that docker login writes.
func (r *privateRegistry) dockerConfig(t *testing.T, file, password string) string {
	t.Helper()
	auth := base64.StdEncoding.EncodeToString([]byte(registryUser + ":" + password))
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	return testkit.WriteFile(t, file, `{"auths": {"`+r.address+`": {"auth": "`+auth+`"}}}`)
}

// dewd, its Pods and this machine use a registry with TLS and a login.
func TestRegistryLogin(t *testing.T) {
	i := newInstalled(t)
	r := newPrivateRegistry(t, i.cluster)
	config := filepath.Join(i.root, ".docker", "config.json")
	i.flags = []string{"--namespace", i.namespace, "--registry", r.address + "/team/dew", "--storage-class", i.namespace, "--timeout", "3m"}
	refused := func(want ...string) {
		t.Helper()
		out, err := i.kubernetes("check")
		for _, text := range append(want, "cannot push images to "+r.address+"/team/dew", "docker login") {
			if err == nil || !strings.Contains(out, text) {
				t.Errorf("check: %v, want %q:\n%s", err, text, out)
			}
		}
	}
	refused("certificate signed by unknown authority")
	r.trust(t, i.cluster)
	refused("authentication required") // no login
	r.dockerConfig(t, config, "wrong")
	refused("UNAUTHORIZED")
	r.dockerConfig(t, config, registryPassword)
	i.install("--registry-config", config)
	i.forward()
	i.must("stack", "add", "debian", i.cluster.StackArchive(t))
	i.must("push", "-f", i.manifest())
	if out, err := i.get("sample", "/config"); err != nil {
		t.Fatalf("the app does not answer: %v %s", err, out)
	}
	if out := i.kubectl("exec", "dewd-0", "--", "dewd", "doctor"); !strings.Contains(out, "all ok") {
		t.Errorf("dewd doctor in the cluster:\n%s", out)
	}
	if out, err := i.kubernetes("uninstall", "-f"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
