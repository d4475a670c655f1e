package netpolicy

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// noticeEvery is the time between two lines about the same destination.
	noticeEvery = time.Minute
	// noticesPerApp is the largest number of lines in the log of an app within that time.
	noticesPerApp = 20
)

// notices limits the lines about refused connections.
type notices struct {
	mu   sync.Mutex
	apps map[string]*recent
}

// recent are the last lines of one app.
type recent struct {
	since time.Time
	lines map[destination]bool
}

type destination struct {
	to       netip.Addr
	protocol byte
	port     uint16
}

func newNotices() *notices { return &notices{apps: map[string]*recent{}} }

// due reports whether a refusal gets a line. Each destination gets one line per app and
// minute, and each app gets at most noticesPerApp lines per minute.
func (n *notices) due(source Endpoint, r Refusal, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for guid, old := range n.apps {
		if now.Sub(old.since) >= noticeEvery {
			delete(n.apps, guid)
		}
	}
	own := n.apps[source.App]
	if own == nil {
		own = &recent{since: now, lines: map[destination]bool{}}
		n.apps[source.App] = own
	}
	to := destination{r.To, r.Protocol, r.Port}
	if own.lines[to] || len(own.lines) >= noticesPerApp {
		return false
	}
	own.lines[to] = true
	return true
}
