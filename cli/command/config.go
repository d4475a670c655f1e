package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/cli/console"
)

// configFormat is the version of the file. It is increased by changes that an older
// dew cannot read.
const configFormat = 1

// lockPatience is how long dew waits for another dew that has locked the file, for
// example to renew a token.
const lockPatience = 90 * time.Second

// Config is what dew remembers from one command to the next.
type Config struct {
	Format   int                `json:"format"`
	API      string             `json:"api,omitempty"`      // the daemon that is asked; empty: the one behind the local socket
	Last     string             `json:"last,omitempty"`     // the one before a logout
	Sessions map[string]Session `json:"sessions,omitempty"` // by URL
	Scripts  map[string]Session `json:"scripts,omitempty"`  // of DEW_USERNAME and DEW_PASSWORD, by URL and user
	Local    map[string]Target  `json:"local,omitempty"`    // targets, by folder of run-time files
}

// Session is the login at one daemon, and the target there.
type Session struct {
	User     string `json:"user,omitempty"`   // who logged in
	Client   string `json:"client,omitempty"` // or which client
	Access   string `json:"access_token,omitempty"`
	Refresh  string `json:"refresh_token,omitempty"`
	Proof    string `json:"proof,omitempty"` // of the password in DEW_PASSWORD that it was made with
	Insecure bool   `json:"skip_ssl_validation,omitempty"`
	CA       string `json:"ca_cert,omitempty"` // PEM
	Target   Target `json:"target,omitzero"`
}

// Target is the org and the space that commands work in.
type Target struct {
	OrgGUID   string `json:"org_guid,omitempty"`
	Org       string `json:"org,omitempty"`
	SpaceGUID string `json:"space_guid,omitempty"`
	Space     string `json:"space,omitempty"`
}

// ConfigFile is the file that has the Config. Several processes can use it at the same
// time: readers see whole versions, and a lock serializes changes.
type ConfigFile struct{ Path string }

// FindConfigFile gives the file below DEW_HOME, or below the home folder if DEW_HOME
// is not set.
func FindConfigFile() (ConfigFile, error) {
	home := os.Getenv("DEW_HOME")
	if home == "" {
		var err error
		if home, err = os.UserHomeDir(); err != nil {
			return ConfigFile{}, &console.Failure{Status: console.StatusUsage, Err: fmt.Errorf("cannot tell where to remember logins and targets: %w", err), Advice: "set DEW_HOME to a folder of yours"}
		}
	}
	return ConfigFile{Path: filepath.Join(home, ".dew", "config.json")}, nil
}

// Load reads the file. If it does not exist the Config is empty.
func (m ConfigFile) Load() (Config, error) {
	c := Config{Format: configFormat}
	text, err := os.ReadFile(m.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, m.fail(fmt.Errorf("cannot read what dew remembers: %w", err))
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return Config{}, &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("cannot read %s: %w", m.Path, err), Advice: "remove the file, and log in again"}
	}
	if c.Format > configFormat {
		return Config{}, &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("%s was written by a newer dew", m.Path), Advice: "use that one, or another DEW_HOME"}
	}
	c.Format = configFormat
	return c, nil
}

func (m ConfigFile) fail(err error) error {
	return &console.Failure{Status: console.StatusFailed, Err: err, Advice: "DEW_HOME may name a folder that is yours"}
}

// Update changes the file while it holds the lock. If change fails nothing is written.
func (m ConfigFile) Update(ctx context.Context, change func(*Config) error) error {
	if err := os.MkdirAll(filepath.Dir(m.Path), 0o700); err != nil {
		return m.fail(fmt.Errorf("cannot make the folder for what dew remembers: %w", err))
	}
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	c, err := m.Load()
	if err != nil {
		return err
	}
	if c.Sessions == nil {
		c.Sessions = map[string]Session{}
	}
	if c.Scripts == nil {
		c.Scripts = map[string]Session{}
	}
	if c.Local == nil {
		c.Local = map[string]Target{}
	}
	if err := change(&c); err != nil {
		return err
	}
	return m.write(c)
}

// lock waits for the lock. It locks another file, because every change replaces
// config.json.
func (m ConfigFile) lock(ctx context.Context) (func(), error) {
	name := filepath.Join(filepath.Dir(m.Path), "config.lock")
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, m.fail(fmt.Errorf("cannot lock what dew remembers: %w", err))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lockPatience, &console.Failure{
		Status: console.StatusTimeout, Err: fmt.Errorf("another dew holds %s for more than %s", name, lockPatience), Advice: "end it, or use another DEW_HOME",
	})
	defer cancel()
	err = client.Poll(ctx, func() (bool, error) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return nil, errors.Join(console.TimeoutCause(ctx, fmt.Errorf("cannot lock %s: %w", name, err)), f.Close())
	}
	return func() { _ = f.Close() }, nil // which unlocks
}

// write replaces the file atomically. Only its owner can read it, because it contains
// tokens.
func (m ConfigFile) write(c Config) (err error) {
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot write what dew remembers: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(m.Path), ".config-*") // 0600
	if err != nil {
		return m.fail(fmt.Errorf("cannot write what dew remembers: %w", err))
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, werr := f.Write(append(text, '\n'))
	if err := errors.Join(werr, f.Sync(), f.Close()); err != nil {
		return m.fail(fmt.Errorf("cannot write what dew remembers: %w", err))
	}
	if err := os.Rename(f.Name(), m.Path); err != nil {
		return m.fail(fmt.Errorf("cannot write what dew remembers: %w", err))
	}
	return nil
}
