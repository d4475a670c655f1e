package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"time"
)

// user is someone with a token and a kubeconfig.
type user struct {
	file, name, group string
}

// users returns the users of a cluster. The RBAC roles of all but nodes and admin are
// built into Kubernetes; the Node authorizer is for nodes.
func (s *settings) users() []user {
	all := []user{
		{"kubeconfig", "admin", "system:masters"},
		// It has one user for all controllers: tokens for each of them take seconds.
		{"kube-controller-manager.kubeconfig", "system:kube-controller-manager", "system:masters"},
		{"kube-scheduler.kubeconfig", "system:kube-scheduler", ""},
		{"kube-proxy.kubeconfig", "system:kube-proxy", ""},
	}
	for _, node := range s.nodeNames() {
		all = append(all, user{node + ".kubeconfig", "system:node:" + node, "system:nodes"})
	}
	return all
}

// writeCredentials writes the certificates, the token file and the kubeconfig files. It
// returns the token of the administrator.
func writeCredentials(s *settings) (string, error) {
	ca, err := writeCertificates(s)
	if err != nil {
		return "", err
	}
	var tokens strings.Builder
	admin := ""
	for i, u := range s.users() {
		token := rand.Text()
		if i == 0 {
			admin = token
		}
		fmt.Fprintf(&tokens, "%s,%s,%s,%q\n", token, u.name, u.name, u.group)
		if err := os.WriteFile(s.path(u.file), []byte(kubeconfig(u.name, token, ca)), 0o600); err != nil {
			return "", err
		}
	}
	return admin, os.WriteFile(s.path("tokens.csv"), []byte(tokens.String()), 0o600)
}

func kubeconfig(name, token string, ca []byte) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: test
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: %s
  user:
    token: %s
contexts:
- name: test
  context: {cluster: test, user: %q}
current-context: test
`, apiServer, base64.StdEncoding.EncodeToString(ca), name, token, name)
}

// writeCertificates writes a CA, the certificates it signs, and the key for the tokens of
// ServiceAccounts. It returns the CA's certificate.
func writeCertificates(s *settings) ([]byte, error) {
	ca := &x509.Certificate{
		Subject: pkix.Name{CommonName: "cluster"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	caText, err := issue(s, "ca", issuer{ca, caKey}, ca, caKey)
	if err != nil {
		return nil, err
	}
	for name, cert := range map[string]*x509.Certificate{
		"apiserver": {
			Subject:     pkix.Name{CommonName: "kube-apiserver"},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			IPAddresses: []net.IP{net.ParseIP(controlAddress), net.ParseIP(serviceAddress), net.IPv4(127, 0, 0, 1)},
			DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		},
		"apiserver-kubelet-client": {
			Subject:     pkix.Name{CommonName: "kube-apiserver-kubelet-client", Organization: []string{"system:masters"}},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		},
		"service-account": {Subject: pkix.Name{CommonName: "service-account"}},
	} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		cert.KeyUsage = x509.KeyUsageDigitalSignature
		if _, err := issue(s, name, issuer{ca, caKey}, cert, key); err != nil {
			return nil, err
		}
	}
	return caText, nil
}

type issuer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue signs a certificate and writes NAME.crt and NAME.key.
func issue(s *settings, name string, by issuer, cert *x509.Certificate, key *ecdsa.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		return nil, err
	}
	cert.SerialNumber = serial
	cert.NotBefore, cert.NotAfter = time.Now().Add(-time.Hour), time.Now().AddDate(1, 0, 0)
	der, err := x509.CreateCertificate(rand.Reader, cert, by.cert, &key.PublicKey, by.key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(s.path(name+".crt"), text, 0o644); err != nil {
		return nil, err
	}
	return text, os.WriteFile(s.path(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}), 0o600)
}
