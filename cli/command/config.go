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

// Config is the content of the config file: logins and targets.
type Config struct {
	Format   int                `json:"format"`
	API      string             `json:"api,omitempty"`      // URL of the daemon; empty: the local socket
	Last     string             `json:"last,omitempty"`     // API before the last logout
	Sessions map[string]Session `json:"sessions,omitempty"` // by URL
	Scripts  map[string]Session `json:"scripts,omitempty"`  // logins with DEW_USERNAME and DEW_PASSWORD, by URL and user
	Local    map[string]Target  `json:"local,omitempty"`    // targets, by run-time folder of the daemon
}

// Session is the login at one daemon, and the target there.
type Session struct {
	User     string `json:"user,omitempty"`   // name of the user
	Client   string `json:"client,omitempty"` // or id of the client
	Access   string `json:"access_token,omitempty"`
	Refresh  string `json:"refresh_token,omitempty"`
	Proof    string `json:"proof,omitempty"` // salted hash of the DEW_PASSWORD that created the session
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

// FindConfigFile returns the file below DEW_HOME, or below the home folder if DEW_HOME
// is not set.
func FindConfigFile() (ConfigFile, error) {
	home := os.Getenv("DEW_HOME")
	if home == "" {
		var err error
		if home, err = os.UserHomeDir(); err != nil {
			return ConfigFile{}, &console.Failure{Status: console.StatusUsage, Err: fmt.Errorf("cannot find the folder for logins and targets: %w", err), Advice: "Set DEW_HOME to a folder that you can write to"}
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
		return c, m.fail(fmt.Errorf("cannot read the config file: %w", err))
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return Config{}, &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("cannot read %s: %w", m.Path, err), Advice: "Correct the file, or move it away and log in again"}
	}
	if c.Format > configFormat {
		return Config{}, &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("cannot read %s: a newer version of dew wrote it", m.Path), Advice: "Use that version of dew, or set DEW_HOME to another folder"}
	}
	c.Format = configFormat
	return c, nil
}

func (m ConfigFile) fail(err error) error {
	return &console.Failure{Status: console.StatusFailed, Err: err, Advice: "Check the folder, or set DEW_HOME to a folder that you can write to"}
}

// Update changes the file while it holds the lock. If change fails nothing is written.
func (m ConfigFile) Update(ctx context.Context, change func(*Config) error) error {
	if err := os.MkdirAll(filepath.Dir(m.Path), 0o700); err != nil {
		return m.fail(fmt.Errorf("cannot create the folder of the config file: %w", err))
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
		return nil, m.fail(fmt.Errorf("cannot lock the config file: %w", err))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lockPatience, &console.Failure{
		Status: console.StatusTimeout, Err: fmt.Errorf("cannot lock %s: another dew has held the lock for more than %s", name, lockPatience), Advice: "Stop the other dew, or set DEW_HOME to another folder",
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
		return fmt.Errorf("cannot write the config file: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(m.Path), ".config-*") // 0600
	if err != nil {
		return m.fail(fmt.Errorf("cannot write the config file: %w", err))
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, werr := f.Write(append(text, '\n'))
	if err := errors.Join(werr, f.Sync(), f.Close()); err != nil {
		return m.fail(fmt.Errorf("cannot write the config file: %w", err))
	}
	if err := os.Rename(f.Name(), m.Path); err != nil {
		return m.fail(fmt.Errorf("cannot write the config file: %w", err))
	}
	return nil
}
