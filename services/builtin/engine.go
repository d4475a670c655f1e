package builtin

import (
	_ "embed"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// size has the limits of a plan.
type size struct {
	memoryMB    int
	diskMB      int
	connections int
}

// engine is a type of database server.
type engine struct {
	name        string // of the offering
	title       string // the name in messages
	description string
	tags        []string
	keys        []string // the parameters that it accepts
	packages    []string // Debian packages
	image       string   // public image with its programs, for clusters
	installed   []string // patterns of its programs on the machine; one match is enough
	port        int
	killDelay   time.Duration // for a clean stop
	script      string
	plans       map[string]size
	conf        func(r record, z size, p parameters) map[string]string // its configuration files, by name
	// setupStatements returns the statements that set up the database for bindings.
	// They can be repeated.
	setupStatements func(r record) string
	// ping is a statement; only a server that is ready responds with pong.
	ping, pong string
	bind       func(r record, binding string) string
	unbind     func(r record, binding string) string
	client     []string                // arguments of the administrator's client, which reads statements
	shell      func(r record) []string // the same for interactive use (nil: no arguments)
	prune      func(r record) string   // drops all users without a binding
	// checkOutput checks the output of the client; nil: the exit code is enough.
	checkOutput func(out string) error
	credentials func(r record, binding string) credentials
	// full makes the server reject new data, or accept it again; nil: the server limits
	// its size by itself.
	full       func(r record, full bool) string
	checkpoint string // a statement that makes a copy start faster; empty: none
}

// engines are all engines, in the order of the marketplace.
var engines = []*engine{postgres, mariadb, redis}

func engineOf(name string) (*engine, bool) {
	i := slices.IndexFunc(engines, func(e *engine) bool { return e.name == name })
	if i < 0 {
		return nil, false
	}
	return engines[i], true
}

// source returns the log source of its servers.
func (e *engine) source() string { return "SERVICE/" + strings.ToUpper(e.name) }

// programs returns the programs that a stack must have.
func (e *engine) programs() Programs {
	return Programs{Service: e.name, Packages: e.packages, Image: e.image}
}

// installedIn reports whether the engine is installed in the file system at root.
func (e *engine) installedIn(root string) bool {
	return slices.ContainsFunc(e.installed, func(pattern string) bool {
		// Glob fails only for a malformed pattern, which would be a bug here.
		found, err := filepath.Glob(filepath.Join(root, pattern))
		return err == nil && len(found) > 0
	})
}

//go:embed scripts/common.sh
var commonScript string

// size returns the limits of a shape: those of its plan, changed by the parameters.
func (e *engine) size(s shape) size {
	z := e.plans[s.Plan]
	if s.Parameters.MaxConnections > 0 {
		z.connections = s.Parameters.MaxConnections
	}
	return z
}

// files returns the configuration files for a shape, by name.
func (e *engine) files(r record, s shape) map[string]string {
	return e.conf(r, e.size(s), s.Parameters)
}

// database returns the name of the instance's database.
func (r record) database() string {
	if r.Shape.Parameters.Database != "" {
		return r.Shape.Parameters.Database
	}
	return defaultDatabase
}
