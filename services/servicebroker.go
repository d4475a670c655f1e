package services

import "github.com/dewrun/dew/app"

// NewBroker is the wish for a broker.
type NewBroker struct {
	Name, URL          string
	Username, Password string
	SkipTLS            bool
	Space              string // guid; empty: for all
	Metadata           app.Metadata
	By                 app.Actor
}

// BrokerChange is the wish for a broker to be different. What is nil stays.
type BrokerChange struct {
	Name, URL          *string
	Username, Password *string
	Metadata           app.MetadataChange
	By                 app.Actor
}

// BrokerFilter chooses brokers. An empty list chooses all.
type BrokerFilter struct {
	GUIDs, Names []string
	Spaces       []string // guids, of space-scoped ones
	Labels       app.Selector
}

// Broker returns the broker with guid.
func (b *Book) Broker(guid string) (sb ServiceBroker, err error) { return sb, err }

// Brokers returns the brokers that f chooses, by name. The built-in one is among
// them.
func (b *Book) Brokers(f BrokerFilter) (sbs []ServiceBroker, err error) { return sbs, err }

// CreateBroker keeps a broker. The operation reads its catalog.
func (b *Book) CreateBroker(n NewBroker) (sb ServiceBroker, o Operation, err error) {
	return sb, o, err
}

// UpdateBroker changes a broker. Unless only metadata changes, the operation reads
// its catalog in the new way first, and changes nothing if it cannot.
func (b *Book) UpdateBroker(guid string, c BrokerChange) (sb ServiceBroker, o Operation, err error) {
	return sb, o, err
}

// DeleteBroker forgets a broker that has no instances.
func (b *Book) DeleteBroker(guid string, by app.Actor) (o Operation, err error) { return o, err }
