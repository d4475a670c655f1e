package builtin

import (
	_ "embed"
	"path/filepath"
	"slices"
	"time"
)

// size is what a plan gives.
type size struct {
	memoryMB    int
	diskMB      int
	connections int
}

// engine is a kind of server.
type engine struct {
	name        string // of the offering
	title       string // in sentences
	description string
	tags        []string
	keys        []string // of its parameters
	packages    []string // Debian's
	installed   []string // patterns of its programs on the machine, any of which will do
	port        int
	killDelay   time.Duration // for a clean stop
	script      string
	plans       map[string]size
	conf        func(r record, z size, p parameters) map[string]string // its files, by name
	// found are the statements that make what bindings need, and may be repeated.
	found func(r record) string
	// ping asks for something that only a server that is ready answers with pong.
	ping, pong string
	bind       func(r record, binding string) string
	unbind     func(r record, binding string) string
	client     []string                // arguments of the administrator's client, reading statements
	shell      func(r record) []string // the same for people; nil: without arguments
	prune      func(r record) string   // drops all users that are nobody's binding
	// answers checks what the client printed; nil: its exit code says it all.
	answers     func(out string) error
	credentials func(r record, binding string) credentials
	// full makes the server take no more data, or take it again; nil: it bounds itself.
	full       func(r record, full bool) string
	checkpoint string // makes a copy quicker to start from; empty: nothing does
}

// engines are all there are, in the order of the marketplace.
var engines = []*engine{postgres, mariadb, redis}

func engineOf(name string) (*engine, bool) {
	i := slices.IndexFunc(engines, func(e *engine) bool { return e.name == name })
	if i < 0 {
		return nil, false
	}
	return engines[i], true
}

// on tells whether the engine is installed in the file system at root.
func (e *engine) on(root string) bool {
	return slices.ContainsFunc(e.installed, func(pattern string) bool {
		// A pattern that is wrong would be one of ours.
		found, err := filepath.Glob(filepath.Join(root, pattern))
		return err == nil && len(found) > 0
	})
}

//go:embed scripts/common.sh
var commonScript string

// size is what a shape gives: its plan's, with what the parameters change of it.
func (e *engine) size(s shape) size {
	z := e.plans[s.Plan]
	if s.Parameters.MaxConnections > 0 {
		z.connections = s.Parameters.MaxConnections
	}
	return z
}

// files are the engine's configuration for a shape, by name.
func (e *engine) files(r record, s shape) map[string]string {
	return e.conf(r, e.size(s), s.Parameters)
}

// database is the name of the instance's one database.
func (r record) database() string {
	if r.Shape.Parameters.Database != "" {
		return r.Shape.Parameters.Database
	}
	return defaultDatabase
}
