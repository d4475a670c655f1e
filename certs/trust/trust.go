// Package trust adds a certificate authority (CA) to the certificate stores of a
// machine, and removes it: the store that most programs use, and those of Firefox and
// Chromium, which have their own.
package trust

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/dewrun/dew/certs"
)

// ErrNotRoot means that the caller cannot change the store of the machine.
var ErrNotRoot = errors.New("only root can change the certificate store of this machine")

// Result says what happened to one store.
type Result struct {
	Store   string `json:"store"`   // a folder
	Changed bool   `json:"changed"` // false: the CA was there already, or it was not there
}

// Stores are the stores of a machine and of one of its users.
type Stores struct {
	// Root is the root of the machine's files. Only tests use another one than "/".
	Root string
	// User owns the stores of browsers.
	User User
	// run runs a program with an input, as a user (nil: as this one).
	run func(ctx context.Context, as *User, input []byte, name string, args ...string) (string, error)
}

// New returns the stores of this machine and of the user who called dew.
func New() Stores { return Stores{Root: "/", User: caller(), run: runProgram} }

// layout is where a kind of Linux has its store.
type layout struct {
	dir         string   // for CAs that the administrator adds
	add, remove []string // the program that reads it again
	bundle      string   // the file that remove leaves unchanged if no CA is left
}

// layouts are those of Debian, and of Fedora and its relatives.
var layouts = []layout{
	{"usr/local/share/ca-certificates", []string{"update-ca-certificates"}, []string{"update-ca-certificates", "--fresh"}, "etc/ssl/certs/ca-certificates.crt"},
	{"etc/pki/ca-trust/source/anchors", []string{"update-ca-trust", "extract"}, []string{"update-ca-trust", "extract"}, ""},
}

func (s Stores) layout() (layout, error) {
	for _, l := range layouts {
		if info, err := os.Stat(filepath.Join(s.Root, l.dir)); err == nil && info.IsDir() {
			return l, nil
		}
	}
	return layout{}, errors.New("found no certificate store on this machine (install the package ca-certificates)")
}

// parse returns the certificate in a PEM file, and the name that it has in stores.
func parse(ca []byte) (name string, err error) {
	block, _ := pem.Decode(ca)
	if block == nil || block.Type != "CERTIFICATE" {
		return "", errors.New("the daemon sent no certificate")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("the daemon sent a damaged certificate: %w", err)
	}
	if !c.IsCA {
		return "", errors.New("the daemon sent a certificate that is not of a CA")
	}
	return prefix + certs.Fingerprint(c)[:16], nil
}

// prefix is the start of the names of dew's CAs in stores.
const prefix = "dew-"

// Add adds a CA to all stores. It changes nothing where the CA is already.
func (s Stores) Add(ctx context.Context, ca []byte) ([]Result, error) {
	name, err := parse(ca)
	if err != nil {
		return nil, err
	}
	l, err := s.layout()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(s.Root, l.dir)
	path := filepath.Join(dir, name+".crt")
	have, err := os.ReadFile(path)
	changed := !bytes.Equal(have, ca)
	if changed {
		err = write(path, ca)
	}
	if err != nil {
		return nil, asRoot(err)
	}
	// An earlier call can have failed after it wrote the file.
	if _, err := s.run(ctx, nil, nil, l.add[0], l.add[1:]...); err != nil {
		return nil, err
	}
	browsers, err := s.addToBrowsers(ctx, name, ca)
	return append([]Result{{dir, changed}}, browsers...), err
}

// write replaces a file that every user can read.
func write(path string, text []byte) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Remove removes a CA from all stores. Without a CA, it removes all CAs of dew.
func (s Stores) Remove(ctx context.Context, ca []byte) ([]Result, error) {
	name := prefix + "*"
	if ca != nil {
		var err error
		if name, err = parse(ca); err != nil {
			return nil, err
		}
	}
	l, err := s.layout()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(s.Root, l.dir)
	found, err := filepath.Glob(filepath.Join(dir, name+".crt"))
	if err != nil {
		return nil, err
	}
	var removed [][]byte
	for _, path := range found {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, asRoot(err)
		}
		if err := os.Remove(path); err != nil {
			return nil, asRoot(err)
		}
		removed = append(removed, text)
	}
	if len(found) > 0 {
		if _, err := s.run(ctx, nil, nil, l.remove[0], l.remove[1:]...); err != nil {
			return nil, err
		}
		if err := s.removeFromBundle(l, removed); err != nil {
			return nil, err
		}
	}
	browsers, err := s.removeFromBrowsers(ctx, name)
	return append([]Result{{dir, len(found) > 0}}, browsers...), err
}

// removeFromBundle removes CAs from the bundle. update-ca-certificates writes no bundle
// if no CA is left. The CAs would stay in the old one, and programs would trust them.
func (s Stores) removeFromBundle(l layout, removed [][]byte) error {
	if l.bundle == "" {
		return nil
	}
	path := filepath.Join(s.Root, l.bundle)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	left := text
	for _, ca := range removed {
		left = bytes.ReplaceAll(left, ca, nil)
	}
	if len(left) == len(text) {
		return nil
	}
	return asRoot(write(path, left))
}

// Has reports whether the store of the machine has a CA.
func (s Stores) Has(ca []byte) bool {
	name, err := parse(ca)
	if err != nil {
		return false
	}
	l, err := s.layout()
	if err != nil {
		return false
	}
	have, err := os.ReadFile(filepath.Join(s.Root, l.dir, name+".crt"))
	return err == nil && bytes.Equal(have, ca)
}

func asRoot(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w: %w", ErrNotRoot, err)
	}
	return err
}

// runProgram runs a program and returns its output. The error has the last line of it.
func runProgram(ctx context.Context, as *User, input []byte, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Stdin = bytes.NewReader(input)
	if as != nil {
		as.become(c)
	}
	out, err := c.CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return string(out), fmt.Errorf("%s failed: %w: %s", name, err, lines[len(lines)-1])
	}
	return string(out), nil
}
