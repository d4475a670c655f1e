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

// ErrNoServer says that there is no server with that guid.
var ErrNoServer = errors.New("no such server")

// Server is a desired process that is not part of an app, such as the database of a service
// instance. It is kept alive like an app's instance, in a container and a network
// namespace of its own, over restarts of the daemon and of the machine.
type Server struct {
	GUID      string          `json:"guid"`                 // its process guid, its app guid, and the name of its log stream
	Name      string          `json:"name"`                 // in sentences
	Source    string          `json:"source"`               // of its log lines: "SERVICE/POSTGRES"
	Version   string          `json:"version"`              // another one replaces the instance
	Stopped   bool            `json:"stopped,omitempty"`    // nothing runs, everything else stays
	Stack     string          `json:"stack,omitempty"`      // name; resolved at each start
	Command   string          `json:"command"`              // by the stack's shell
	Dir       string          `json:"dir"`                  // where the command begins
	Env       []string        `json:"env,omitempty"`        // wins over the few variables that every server has
	MemoryMB  int             `json:"memory_mb"`            // of the whole container
	DiskMB    int             `json:"disk_mb,omitempty"`    // of the writable layer, not of the mounts
	Ports     []int           `json:"ports"`                // the first one is checked
	Mounts    []stack.Mount   `json:"mounts,omitempty"`     // its data
	Check     app.HealthCheck `json:"check,omitzero"`       // port, http or process
	Address   netip.Addr      `json:"address"`              // its own for ever: see ReserveAddress
	KillDelay time.Duration   `json:"kill_delay,omitempty"` // between SIGTERM and SIGKILL; 0: that of apps
}

// Validate says what is wrong with a server that is to be kept.
func (v Server) Validate(subnet netip.Prefix) error {
	switch {
	case v.GUID == "":
		return errors.New("it has no guid")
	case v.Command == "" || v.Dir == "":
		return errors.New("it has no command or no folder to run it in")
	case v.Version == "":
		return errors.New("it has no version")
	case v.MemoryMB <= 0:
		return errors.New("it has no memory")
	case !subnet.Contains(v.Address):
		return fmt.Errorf("its address %s is not in the subnet %s", v.Address, subnet)
	}
	return nil
}

// ServerStore stores the desired servers.
type ServerStore struct{ records *store.Bucket[Server] }

// NewServerStore opens the servers in db.
func NewServerStore(db *store.DB) *ServerStore {
	return &ServerStore{records: store.In[Server](db, "servers")}
}

// Put stores a server under its guid.
func (s *ServerStore) Put(v Server) error {
	if err := s.records.Put(v.GUID, v); err != nil {
		return fmt.Errorf("cannot keep server %s: %w", v.GUID, err)
	}
	return nil
}

// Delete removes a server. It is no error if there is none.
func (s *ServerStore) Delete(guid string) error {
	if err := s.records.Delete(guid); err != nil {
		return fmt.Errorf("cannot drop server %s: %w", guid, err)
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

// All returns all servers by guid.
func (s *ServerStore) All() ([]Server, error) {
	vs, err := s.records.All()
	if err != nil {
		return nil, fmt.Errorf("cannot read the servers: %w", err)
	}
	return vs, nil
}
