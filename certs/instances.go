package certs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// InstanceDir is the folder in instances with the CA certificates of the platform, and
// InstanceVariable the variable that names it.
const (
	InstanceDir      = "/etc/cf-system-certificates"
	InstanceVariable = "CF_SYSTEM_CERT_PATH"
)

// BundlePath is the file with all trusted certificates of a Debian system.
const BundlePath = "/etc/ssl/certs/ca-certificates.crt"

// trustedFile is the name that the platform gives the first CA certificate.
const trustedFile = "trusted-ca-1.crt"

// Instances has the files from which instances trust the certificates of the router.
type Instances struct {
	dir     string // folder of the files
	machine string // bundle of the machine
	ca      []byte // PEM; empty: the certificates of the router are not dew's own

	mu   sync.Mutex
	made os.FileInfo // of the machine's bundle when the own one was made; guarded by mu
}

// ForInstances writes the CA certificate for instances below dir. Without a CA there is
// an empty folder.
func ForInstances(dir, machine string, ca []byte) (*Instances, error) {
	i := &Instances{dir: dir, machine: machine, ca: ca}
	if err := os.MkdirAll(i.Dir(), 0o755); err != nil {
		return nil, fmt.Errorf("cannot create the folder with certificates of instances: %w", err)
	}
	file := filepath.Join(i.Dir(), trustedFile)
	if len(ca) == 0 {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("cannot remove the CA certificate of instances: %w", err)
		}
		return i, nil
	}
	return i, replace(file, ca)
}

// Dir returns the folder that instances see at InstanceDir.
func (i *Instances) Dir() string { return filepath.Join(i.dir, "system") }

// Bundle returns a copy of the machine's bundle with the CA, or "" if there is none. It
// follows changes of the machine's bundle.
func (i *Instances) Bundle() (string, error) {
	if len(i.ca) == 0 {
		return "", nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	file := filepath.Join(i.dir, filepath.Base(BundlePath))
	fi, err := os.Stat(i.machine)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err == nil && i.made != nil && os.SameFile(fi, i.made) && fi.ModTime().Equal(i.made.ModTime()) && fi.Size() == i.made.Size() {
		return file, nil
	}
	var all []byte
	if err == nil {
		all, err = os.ReadFile(i.machine)
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the certificates of the machine: %w", err)
	}
	if len(all) > 0 && all[len(all)-1] != '\n' {
		all = append(all, '\n')
	}
	if err := replace(file, append(all, i.ca...)); err != nil {
		if _, serr := os.Stat(file); serr == nil {
			return file, nil // the earlier copy is better than no instance
		}
		return "", err
	}
	i.made = fi
	return file, nil
}

// replace writes a file in one step. Instances that have the old file keep it.
func replace(file string, data []byte) error {
	next, err := os.CreateTemp(filepath.Dir(file), "new-")
	if err != nil {
		return fmt.Errorf("cannot write the certificates of instances: %w", err)
	}
	_, err = next.Write(data)
	err = errors.Join(err, next.Chmod(0o644), next.Sync(), next.Close()) // certificates are public: every user of an instance reads them
	if err == nil {
		err = os.Rename(next.Name(), file)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("cannot write the certificates of instances: %w", err), os.Remove(next.Name()))
	}
	return nil
}
