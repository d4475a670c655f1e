package sshd

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Fingerprint returns the fingerprint of the host key: SHA-256 as base64 without
// padding and without a prefix, 43 characters.
func (s *Server) Fingerprint() string {
	return strings.TrimPrefix(ssh.FingerprintSHA256(s.signer.PublicKey()), "SHA256:")
}

// hostKey reads the host key, or creates it. There is only one key, so that every
// client gets the published one, whatever algorithm it prefers.
func hostKey(file string) (ssh.Signer, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		if err := createKey(file); err != nil {
			return nil, fmt.Errorf("cannot create the host key: %w", err)
		}
		b, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the host key: %w", err)
	}
	signer, err := ssh.ParsePrivateKey(b)
	if err != nil {
		return nil, fmt.Errorf("cannot use the host key %s: %w (delete the file to get a new host key; clients must then accept the new key)", file, err)
	}
	return signer, nil
}

// createKey writes a new key atomically and durably.
func createKey(file string) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(key, "dew")
	if err != nil {
		return err
	}
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, filepath.Base(file)+".*") // mode 0600
	if err != nil {
		return err
	}
	err = errors.Join(pem.Encode(f, block), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
