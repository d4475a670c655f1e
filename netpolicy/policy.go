package netpolicy

import (
	"errors"
	"fmt"
	"time"
)

// Ports is a range of ports, with both ends.
type Ports struct {
	First int `json:"first"`
	Last  int `json:"last"`
}

// Policy allows connections from one app to ports of another.
type Policy struct {
	Source      string    `json:"source"`      // guid of an app
	Destination string    `json:"destination"` // guid of an app
	Protocol    string    `json:"protocol"`    // tcp or udp
	Ports       Ports     `json:"ports"`
	CreatedAt   time.Time `json:"created_at"`
}

const maxPort = 65535

// Validate checks a policy. The texts are those of Cloud Foundry's policy server.
func (p Policy) Validate() error {
	switch {
	case p.Source == "":
		return errors.New("missing source id")
	case p.Destination == "":
		return errors.New("missing destination id")
	case p.Protocol != "tcp" && p.Protocol != "udp":
		return errors.New("invalid destination protocol, specify either udp or tcp")
	case p.Ports.First == 0:
		return errors.New("missing start port")
	case p.Ports.First < 1 || p.Ports.First > maxPort:
		return fmt.Errorf("invalid start port %d, must be in range 1-65535", p.Ports.First)
	case p.Ports.Last < 1 || p.Ports.Last > maxPort:
		return fmt.Errorf("invalid end port %d, must be in range 1-65535", p.Ports.Last)
	case p.Ports.First > p.Ports.Last:
		return fmt.Errorf("invalid port range %d-%d, start must be less than or equal to end", p.Ports.First, p.Ports.Last)
	}
	return nil
}

// key identifies a policy: two equal policies are one.
func (p Policy) key() string {
	return fmt.Sprintf("%s/%s/%s/%05d-%05d", p.Source, p.Destination, p.Protocol, p.Ports.First, p.Ports.Last)
}
