package runtime

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/store"
)

// ErrNoServer reports that there is no server with that guid.
var ErrNoServer = errors.New("server does not exist")

// Server is a desired process that is not part of an app, such as the database of a
// service instance. It is kept running like an app's instance, in its own container and
// network namespace. It survives restarts of the daemon and of the machine.
type Server struct {
	GUID      string          `json:"guid"`                 // its process guid, its app guid, and the name of its log stream
	Name      string          `json:"name"`                 // for messages
	Source    string          `json:"source"`               // log source: "SERVICE/POSTGRES"
	Version   string          `json:"version"`              // a change replaces the instance
	Stopped   bool            `json:"stopped,omitempty"`    // nothing runs, but all data is kept
	Stack     string          `json:"stack,omitempty"`      // name, resolved at each start
	Command   string          `json:"command"`              // run by the stack's shell
	Dir       string          `json:"dir"`                  // working directory of the command
	Env       []string        `json:"env,omitempty"`        // overrides the few variables that every server has
	MemoryMB  int             `json:"memory_mb"`            // limit of the whole container
	DiskMB    int             `json:"disk_mb,omitempty"`    // limit of the writable layer, without the mounts
	Ports     []int           `json:"ports"`                // the first one is used for the health check
	Mounts    []stack.Mount   `json:"mounts,omitempty"`     // its data
	Check     app.HealthCheck `json:"check,omitzero"`       // port, http or process
	Address   netip.Addr      `json:"address"`              // permanent: see ReserveAddress
	KillDelay time.Duration   `json:"kill_delay,omitempty"` // between SIGTERM and SIGKILL (0: the delay of apps)
}

// Validate returns an error if the server cannot be stored.
func (v Server) Validate(subnet netip.Prefix) error {
	switch {
	case v.GUID == "":
		return errors.New("the server has no guid")
	case v.Command == "" || v.Dir == "":
		return errors.New("the server has no command or no folder to run it in")
	case v.Version == "":
		return errors.New("the server has no version")
	case v.MemoryMB <= 0:
		return errors.New("the server has no memory limit")
	case !subnet.Contains(v.Address):
		return fmt.Errorf("the server's address %s is not in the subnet %s", v.Address, subnet)
	}
	return nil
}

// Volume has the data of a server that runs in a cluster. Clients reach the server at an
// address that stays the same, on whichever node it runs.
type Volume struct {
	Server  string // guid
	Bytes   int64
	Port    int
	Address netip.Addr // not valid: the cluster chooses one
}

// ServerStore stores the desired servers.
type ServerStore struct{ records store.Bucket[Server] }

// NewServerStore opens the servers in db.
func NewServerStore(db *store.DB) *ServerStore {
	return &ServerStore{records: store.In[Server](db, "servers")}
}

// Put stores a server under its guid.
func (s *ServerStore) Put(v Server) error {
	if err := s.records.Put(v.GUID, v); err != nil {
		return fmt.Errorf("cannot store server %s: %w", v.GUID, err)
	}
	return nil
}

// Delete removes a server. It is not an error if there is none.
func (s *ServerStore) Delete(guid string) error {
	if err := s.records.Delete(guid); err != nil {
		return fmt.Errorf("cannot delete server %s: %w", guid, err)
	}
	return nil
}

// Get returns a server, or ErrNoServer.
func (s *ServerStore) Get(guid string) (Server, error) {
	v, err := s.records.Get(guid)
	if errors.Is(err, store.ErrNotFound) {
		return v, fmt.Errorf("server %s: %w", guid, ErrNoServer)
	}
	if err != nil {
		return v, fmt.Errorf("cannot read server %s: %w", guid, err)
	}
	return v, nil
}

// All returns all servers, sorted by guid.
func (s *ServerStore) All() ([]Server, error) {
	vs, err := s.records.All()
	if err != nil {
		return nil, fmt.Errorf("cannot read the servers: %w", err)
	}
	return vs, nil
}
