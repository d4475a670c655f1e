package trust

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// ErrNoCertutil means that the user has browsers with own stores, but the program that
// changes them is missing.
var ErrNoCertutil = errors.New("certutil is not installed, so Firefox and Chromium were left out (apt install libnss3-tools)")

// User is a user of the machine.
type User struct {
	Home     string
	uid, gid uint32
	other    bool // the user is not the one that runs this program
}

// caller returns the user who called dew, also through sudo.
func caller() User {
	home, _ := os.UserHomeDir() // without one, there are no browsers
	own := User{Home: home}
	id := os.Getenv("SUDO_UID")
	if os.Geteuid() != 0 || id == "" || id == "0" {
		return own
	}
	u, err := user.LookupId(id)
	if err != nil {
		return own
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	gid, gerr := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil || gerr != nil {
		return own
	}
	return User{Home: u.HomeDir, uid: uint32(uid), gid: uint32(gid), other: true}
}

// become makes a program run as the user, so that the files of browsers keep their
// owner.
func (u *User) become(c *exec.Cmd) {
	c.Env = append(os.Environ(), "HOME="+u.Home)
	if u.other {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: u.uid, Gid: u.gid}}
	}
}

// databases returns the stores of the user's browsers.
func (s Stores) databases() (out []string) {
	if s.User.Home == "" {
		return nil
	}
	for _, pattern := range []string{
		".pki/nssdb", "snap/chromium/current/.pki/nssdb", // Chromium and Chrome
		".mozilla/firefox/*", "snap/firefox/common/.mozilla/firefox/*",
	} {
		found, err := filepath.Glob(filepath.Join(s.User.Home, pattern, "cert9.db"))
		if err != nil {
			continue // the home folder looks like a pattern
		}
		for _, file := range found {
			out = append(out, filepath.Dir(file))
		}
	}
	return out
}

// addToBrowsers adds a CA to the stores of the user's browsers.
func (s Stores) addToBrowsers(ctx context.Context, name string, ca []byte) ([]Result, error) {
	return s.eachBrowser(ctx, func(db string, have []string) (bool, error) {
		if slices.Contains(have, name) {
			return false, nil
		}
		_, err := s.run(ctx, &s.User, ca, "certutil", "-A", "-a", "-d", "sql:"+db, "-n", name, "-t", "C,,")
		return true, err
	})
}

// removeFromBrowsers removes the CAs whose names match a pattern.
func (s Stores) removeFromBrowsers(ctx context.Context, pattern string) ([]Result, error) {
	return s.eachBrowser(ctx, func(db string, have []string) (changed bool, err error) {
		for _, name := range have {
			if ok, merr := filepath.Match(pattern, name); merr != nil || !ok {
				continue
			}
			if _, err := s.run(ctx, &s.User, nil, "certutil", "-D", "-d", "sql:"+db, "-n", name); err != nil {
				return changed, err
			}
			changed = true
		}
		return changed, nil
	})
}

// eachBrowser calls change with each store and the names of dew's CAs in it.
func (s Stores) eachBrowser(ctx context.Context, change func(db string, have []string) (bool, error)) (out []Result, err error) {
	for _, db := range s.databases() {
		listed, err := s.run(ctx, &s.User, nil, "certutil", "-L", "-d", "sql:"+db)
		if errors.Is(err, exec.ErrNotFound) {
			return out, ErrNoCertutil
		}
		if err != nil {
			return out, err
		}
		changed, err := change(db, ownNames(listed))
		if err != nil {
			return out, err
		}
		out = append(out, Result{db, changed})
	}
	return out, nil
}

// ownNames returns the names of dew's CAs in the output of certutil -L.
func ownNames(listed string) (out []string) {
	for line := range strings.Lines(listed) {
		if fields := strings.Fields(line); len(fields) > 0 && strings.HasPrefix(fields[0], prefix) {
			out = append(out, fields[0])
		}
	}
	return out
}
