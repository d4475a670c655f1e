package auth

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const keyBits = 2048

// key signs tokens, or only verifies them.
type key struct {
	id      string
	private *rsa.PrivateKey
}

// keyring holds every key in the folder: the last one signs, all verify.
type keyring []key

func (r keyring) signer() key { return r[len(r)-1] }

func (r keyring) find(id string) (key, bool) {
	i := slices.IndexFunc(r, func(k key) bool { return k.id == id })
	if i < 0 {
		return key{}, false
	}
	return r[i], true
}

// loadKeys reads the files token-*.pem of a folder in the order of their names, which
// start with their creation time. It creates the first one. Another file with a later
// name takes over at the next start. Tokens of the earlier keys stay valid until those
// files are removed.
func loadKeys(dir string) (keyring, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the folder of the token keys: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot restrict access to the folder of the token keys: %w", err)
	}
	names, err := keyFiles(dir)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		if err := createKey(dir); err != nil {
			return nil, err
		}
		if names, err = keyFiles(dir); err != nil {
			return nil, err
		}
	}
	var ring keyring
	for _, n := range names {
		k, err := readKey(filepath.Join(dir, n))
		if err != nil {
			return nil, err
		}
		ring = append(ring, k)
	}
	return ring, nil
}

func keyFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, fmt.Errorf("cannot list the token keys: %w", err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "token-") && strings.HasSuffix(e.Name(), ".pem") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func createKey(dir string) error {
	private, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return fmt.Errorf("cannot create a token key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return fmt.Errorf("cannot encode a token key: %w", err)
	}
	name := "token-" + time.Now().UTC().Format("20060102T150405Z") + ".pem"
	return writeFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func readKey(path string) (key, error) {
	info, err := os.Stat(path)
	if err != nil {
		return key{}, fmt.Errorf("cannot read a token key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return key{}, fmt.Errorf("cannot use token key %s: other users can read the file; run chmod 600 on it, or delete it if another user has read it", path)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return key{}, fmt.Errorf("cannot read a token key: %w", err)
	}
	private, err := parseKey(raw)
	if err != nil {
		return key{}, fmt.Errorf("cannot use token key %s: %w", path, err)
	}
	id, err := keyID(&private.PublicKey)
	if err != nil {
		return key{}, fmt.Errorf("cannot use token key %s: %w", path, err)
	}
	return key{id: id, private: private}, nil
}

func parseKey(raw []byte) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, errors.New("the file is not in PEM format")
	}
	private, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return nil, err
		}
		k, ok := parsed.(*rsa.PrivateKey)
		if !ok {
			return nil, errors.New("the key is not an RSA key")
		}
		private = k
	}
	if private.N.BitLen() < keyBits {
		return nil, fmt.Errorf("the key has %d bits; at least %d are required", private.N.BitLen(), keyBits)
	}
	return private, nil
}

// keyID derives the id from the key itself, so that a file can be renamed.
func keyID(public *rsa.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(der)
	return "key-" + hex.EncodeToString(sum[:8]), nil
}

// writeFile atomically writes a file that only its owner can read.
func writeFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // with mode 0600
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("cannot write %s: %w", path, err), os.Remove(f.Name()))
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes a rename durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("cannot sync %s: %w", dir, err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("cannot sync %s: %w", dir, err)
	}
	return nil
}
