//go:build integration

package drain

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/testkit"
)

// A real syslog server receives every line, over TCP and over TLS, even lines that were
// printed while it was down.
func TestRsyslog(t *testing.T) {
	for _, scheme := range []string{"syslog", "syslog-tls"} {
		t.Run(scheme, func(t *testing.T) {
			w := newWorld(t)
			s := newRsyslog(t, scheme == "syslog-tls")
			w.roots = s.roots
			s.start()
			w.start(scheme + "://" + s.address)
			w.print(1000)
			s.wait(w.printed)
			s.stop()
			w.print(1000)
			s.start()
			w.print(1000)
			s.wait(w.printed)
		})
	}
}

// rsyslog is a separate server with all its files in a temporary folder.
type rsyslog struct {
	t            *testing.T
	dir, address string
	roots        *x509.CertPool
	cmd          *exec.Cmd
}

func newRsyslog(t *testing.T, secure bool) *rsyslog {
	t.Helper()
	port := strconv.Itoa(testkit.FreePorts(t, 1))
	s := &rsyslog{t: t, dir: t.TempDir(), address: "127.0.0.1:" + port}
	driver := ""
	if secure {
		s.certify()
		driver = fmt.Sprintf(`global(defaultNetstreamDriver="gtls" defaultNetstreamDriverCAFile="%[1]s/cert.pem"
  defaultNetstreamDriverCertFile="%[1]s/cert.pem" defaultNetstreamDriverKeyFile="%[1]s/key.pem")
module(load="imtcp" StreamDriver.Name="gtls" StreamDriver.Mode="1" StreamDriver.AuthMode="anon")
`, s.dir)
	} else {
		driver = "module(load=\"imtcp\")\n"
	}
	s.write("rsyslog.conf", fmt.Sprintf(`global(workDirectory="%s")
%sinput(type="imtcp" address="127.0.0.1" port="%s")
template(name="plain" type="string" string="%%syslogseverity%%|%%hostname%%|%%app-name%%|%%procid%%|%%msg%%\n")
action(type="omfile" file="%s/out" template="plain" asyncWriting="off" flushOnTXEnd="on")
`, s.dir, driver, port, s.dir))
	t.Cleanup(s.stop)
	return s
}

func (s *rsyslog) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// certify creates a self-signed certificate.
func (s *rsyslog) certify() {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "syslog"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		s.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		s.t.Fatal(err)
	}
	s.write("cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	s.write("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		s.t.Fatal(err)
	}
	s.roots = x509.NewCertPool()
	s.roots.AddCert(parsed)
}

func (s *rsyslog) start() {
	s.t.Helper()
	s.cmd = exec.Command("rsyslogd", "-n", "-f", filepath.Join(s.dir, "rsyslog.conf"), "-i", filepath.Join(s.dir, "pid"))
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	s.cmd.Stdout, s.cmd.Stderr = &said, &said
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("%v (make setup-test installs rsyslog and rsyslog-gnutls)", err)
	}
	testkit.EventuallyTrue(s.t, "rsyslog listens", func() bool {
		c, err := net.Dial("tcp", s.address)
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
}

func (s *rsyslog) stop() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Wait()
	s.cmd = nil
}

// wait waits until the unchanged lines 1 to n are in its file.
func (s *rsyslog) wait(n int) {
	s.t.Helper()
	testkit.EventuallyTrue(s.t, strconv.Itoa(n)+" lines are written", func() bool {
		b, err := os.ReadFile(filepath.Join(s.dir, "out"))
		if err != nil {
			return false
		}
		for i := 1; i <= n; i++ {
			if !bytes.Contains(b, fmt.Appendf(nil, "6|o.s.a|app-guid|[APP/PROC/WEB/0]|line %d\n", i)) {
				return false
			}
		}
		return true
	})
}
