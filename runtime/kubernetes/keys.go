package kubernetes

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/runfile"
)

// The names in the certificates.
const (
	serverName = "dewd.dew.internal"
	agentName  = "agent.dew.internal"
)

// keyLife is how long the keys are valid. A Pod is replaced much earlier.
const keyLife = 10 * 365 * 24 * time.Hour

// keys authenticate dewd and the agents. All agents share one certificate, so each Pod
// has a token as well.
type keys struct {
	ca          []byte // PEM
	pool        *x509.CertPool
	dewd        tls.Certificate
	agent       [2][]byte // certificate and key, PEM
	tokenSecret []byte
}

// openKeys reads the keys in a folder, or creates them.
func openKeys(dir string) (keys, error) {
	if _, err := os.Stat(filepath.Join(dir, "token.key")); errors.Is(err, fs.ErrNotExist) {
		if err := createKeys(dir); err != nil {
			return keys{}, fmt.Errorf("cannot create the keys for Pods: %w", err)
		}
	}
	var k keys
	read := func(name string, to *[]byte) error {
		b, err := os.ReadFile(filepath.Join(dir, name))
		*to = b
		return err
	}
	err := errors.Join(read("ca.crt", &k.ca), read("agent.crt", &k.agent[0]), read("agent.key", &k.agent[1]), read("token.key", &k.tokenSecret))
	if err == nil {
		k.dewd, err = tls.LoadX509KeyPair(filepath.Join(dir, "dewd.crt"), filepath.Join(dir, "dewd.key"))
	}
	if err != nil {
		return keys{}, fmt.Errorf("cannot read the keys for Pods in %s: %w", dir, err)
	}
	k.pool = x509.NewCertPool()
	if !k.pool.AppendCertsFromPEM(k.ca) {
		return keys{}, fmt.Errorf("cannot read the keys for Pods: %s has no certificate", filepath.Join(dir, "ca.crt"))
	}
	return k, nil
}

// createKeys creates an authority and two certificates. The key of the authority is not
// stored: it signs nothing else.
func createKeys(dir string) error {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ca := template("dew agents")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return err
	}
	files := map[string][]byte{"ca.crt": encode("CERTIFICATE", caDER)}
	for file, name := range map[string]string{"dewd": serverName, "agent": agentName} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		t := template(name)
		t.DNSNames = []string{name}
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		der, err := x509.CreateCertificate(rand.Reader, t, ca, &key.PublicKey, caKey)
		if err != nil {
			return err
		}
		private, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return err
		}
		files[file+".crt"], files[file+".key"] = encode("CERTIFICATE", der), encode("PRIVATE KEY", private)
	}
	for name, data := range files {
		if err := runfile.Write(filepath.Join(dir, name), string(data), 0o600); err != nil {
			return err
		}
	}
	secret := make([]byte, 32)
	rand.Read(secret)
	return runfile.Write(filepath.Join(dir, "token.key"), string(secret), 0o600) // last: it marks the others as complete
}

func template(name string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // the kernel has no random numbers
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(keyLife), KeyUsage: x509.KeyUsageDigitalSignature,
	}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// server returns the TLS configuration of the listener for agents.
func (k keys) server() *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{k.dewd}, ClientCAs: k.pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
		VerifyConnection: func(s tls.ConnectionState) error { return s.PeerCertificates[0].VerifyHostname(agentName) },
	}
}

// token returns the token of the agent of an instance.
func (k keys) token(id runtime.InstanceID) string {
	m := hmac.New(sha256.New, k.tokenSecret)
	m.Write([]byte(id))
	return hex.EncodeToString(m.Sum(nil))
}

// secretName is the name of the Secret with the keys of the agents.
func (e *Engine) secretName() string { return e.cfg.Name + "-agent" }

// putSecret stores the keys of the agents, which only the agent containers mount.
func (e *Engine) putSecret(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	secrets := e.cfg.Client.CoreV1().Secrets(e.cfg.Namespace)
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: e.secretName(), Labels: map[string]string{labelDaemon: e.cfg.Name}},
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{"ca.crt": e.keys.ca, "tls.crt": e.keys.agent[0], "tls.key": e.keys.agent[1]},
	}
	_, err := secrets.Create(ctx, s, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = secrets.Update(ctx, s, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("cannot store the keys for Pods in Secret %s of namespace %s: %w", s.Name, e.cfg.Namespace, err)
	}
	return nil
}
