package droplet

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"
)

// DefaultStack is the stack of apps that name none.
const DefaultStack = "host"

// packageDB changes whenever something is installed on a Debian machine.
const packageDB = "/var/lib/dpkg/status"

// Stacks gives stacks by name. The machine's own is read again when its packages
// have changed: a toolchain that was installed meanwhile brings folders that
// instances need.
type Stacks struct {
	host HostOptions

	mu   sync.Mutex // guards the fields below
	read time.Time  // of the package database when have was made
	have Stack
}

// NewStacks makes the stacks of this machine.
func NewStacks(host HostOptions) *Stacks { return &Stacks{host: host} }

// StackGUID is the guid of a stack by its name; it is the same for ever.
func StackGUID(name string) string { return builtIn("stack", name) }

// CheckStack tells whether an app may name a stack.
func CheckStack(name string) error {
	if name == "" || name == DefaultStack || platformStack.MatchString(name) {
		return nil
	}
	return fmt.Errorf("there is no stack '%s' (use '%s')", name, DefaultStack)
}

// platformStack is a name that stands for the default stack.
var platformStack = regexp.MustCompile(`^cflinuxfs[0-9]+$`)

// Get finds a stack. The platform's own stacks stand for the default here, so
// that a manifest that names one runs unchanged.
func (s *Stacks) Get(name string) (Stack, error) {
	if err := CheckStack(name); err != nil {
		return Stack{}, err
	}
	return s.fromHost()
}

func (s *Stacks) fromHost() (Stack, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var changed time.Time
	if fi, err := os.Stat(filepath.Join("/", s.host.Root, packageDB)); err == nil {
		changed = fi.ModTime()
	}
	if s.have.ID != "" && changed.Equal(s.read) {
		return s.have, nil
	}
	st, err := HostStack(s.host)
	if err != nil {
		return Stack{}, err
	}
	s.have, s.read = st, changed
	return st, nil
}
