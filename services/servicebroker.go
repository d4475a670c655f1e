package services

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
)

// NewBroker describes a broker to register.
type NewBroker struct {
	Name, URL          string
	Username, Password string
	SkipTLS            bool
	Space              string // guid; empty: for all
	SetBy              Origin // who chose the URL
	Metadata           app.Metadata
	By                 app.Actor
}

// BrokerChange describes an update of a broker. Nil fields stay as they are.
type BrokerChange struct {
	Name, URL          *string
	Username, Password *string
	SetBy              Origin // who chose the URL
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
func (m *catalog) Broker(guid string) (ServiceBroker, error) { return m.broker(guid) }

func (tx *tables) broker(guid string) (ServiceBroker, error) {
	return get(tx.brokers, "service broker", guid)
}

// Brokers returns the brokers that f chooses, by name. The built-in one is among
// them.
func (m *catalog) Brokers(f BrokerFilter) ([]ServiceBroker, error) {
	return selectSorted(m.brokers, "service brokers", func(sb ServiceBroker) bool {
		return matches(f.GUIDs, sb.GUID) && matches(f.Names, sb.Name) && matches(f.Spaces, sb.Space) && f.Labels.Matches(sb.Metadata.Labels)
	}, func(a, b ServiceBroker) int { return cmp.Compare(a.Name, b.Name) })
}

// client is how to speak with a broker.
func (b *base) client(guid string) (Broker, error) {
	sb, err := b.broker(guid)
	if err != nil {
		return nil, err
	}
	return b.clientOf(sb)
}

func (b *base) clientOf(sb ServiceBroker) (Broker, error) {
	switch {
	case !sb.Builtin() && b.cfg.Client != nil:
		return b.cfg.Client(sb), nil
	case !sb.Builtin():
		h := &HTTPBroker{URL: sb.URL, Username: sb.Username, Password: sb.Password, SkipTLS: sb.SkipTLS}
		if sb.SetBy.Restricted() {
			h.Egress = &b.cfg.Egress
		}
		return h, nil
	case b.cfg.Builtin == nil:
		return nil, errors.New("this daemon has no built-in service broker")
	}
	return b.cfg.Builtin, nil
}

// CreateBroker keeps a broker. The operation reads its catalog.
func (m *catalog) CreateBroker(n NewBroker) (sb ServiceBroker, o Operation, err error) {
	err = m.update(func(tx records) error {
		sb = ServiceBroker{
			GUID: uuid.NewString(), Name: n.Name, URL: n.URL, Username: n.Username, Password: n.Password,
			SkipTLS: n.SkipTLS, Space: n.Space, SetBy: n.SetBy, State: Synchronizing, Metadata: n.Metadata, CreatedAt: now(),
		}
		sb.UpdatedAt = sb.CreatedAt
		if err := tx.checkBroker(sb); err != nil {
			return err
		}
		if o, err = tx.beginOperation(operation{
			Operation: Operation{Kind: OfBroker, Record: sb.GUID, Action: Create, By: n.By}, Broker: sb.GUID,
		}); err != nil {
			return err
		}
		if err := put(tx.brokers, "service broker", sb.GUID, sb); err != nil {
			return err
		}
		return tx.brokerEvent("create", sb, n.By)
	})
	return sb, o, err
}

// checkBroker tells whether there may be such a broker.
func (tx catalogRecords) checkBroker(sb ServiceBroker) error {
	problems := []error{checkBrokerURL(sb.URL), sb.Metadata.Validate()}
	if err := checkName(sb.Name); err != nil {
		problems = append(problems, err)
	}
	if sb.Username == "" || sb.Password == "" {
		problems = append(problems, invalid("authentication", "Authentication must have a username and a password"))
	}
	same, err := tx.brokers.By("name", sb.Name)
	if err != nil {
		return fmt.Errorf("cannot look for service broker %q: %w", sb.Name, err)
	}
	if len(same) > 0 && same[0].GUID != sb.GUID {
		problems = append(problems, invalid("name", "Name must be unique"))
	}
	if sb.Space != "" {
		if _, err := tx.registry.Space(sb.Space); err != nil {
			problems = append(problems, invalid("relationships.space", "Invalid space. Ensure that the space exists and you have access to it."))
		}
	}
	return errors.Join(problems...)
}

func checkBrokerURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" || len(s) > maxURL:
		return invalid("url", "must be a valid url")
	case u.User != nil:
		return invalid("url", "must not contain authentication")
	}
	return nil
}

// UpdateBroker changes a broker. Unless only metadata changes, the operation reads
// its catalog in the new way first, and changes nothing if it cannot.
func (m *catalog) UpdateBroker(guid string, c BrokerChange) (sb ServiceBroker, o Operation, err error) {
	err = m.update(func(tx records) error {
		if sb, err = tx.broker(guid); err != nil {
			return err
		}
		if c.Name == nil && c.URL == nil && c.Username == nil && c.Password == nil {
			sb.Metadata, sb.UpdatedAt = sb.Metadata.Merge(c.Metadata), now()
			if err := sb.Metadata.Validate(); err != nil {
				return err
			}
			return put(tx.brokers, "service broker", guid, sb)
		}
		if sb.Builtin() {
			return invalid("name", "The built-in service broker cannot be changed")
		}
		if sb.State == Synchronizing || sb.State == Deleting {
			return invalid("state", "Cannot update a broker when other operation is already in progress")
		}
		if err := tx.checkBroker(sb.with(c)); err != nil {
			return err
		}
		if o, err = tx.beginOperation(operation{
			Operation: Operation{Kind: OfBroker, Record: guid, Action: Update, By: c.By}, Broker: guid, BrokerChange: &c,
		}); err != nil {
			return err
		}
		sb.State = Synchronizing
		if err := put(tx.brokers, "service broker", guid, sb); err != nil {
			return err
		}
		return tx.brokerEvent("update", sb, c.By)
	})
	return sb, o, err
}

// with is the broker after a change.
func (b ServiceBroker) with(c BrokerChange) ServiceBroker {
	setIfGiven(&b.Name, c.Name)
	setURL(&b.URL, &b.SetBy, c.URL, c.SetBy)
	setIfGiven(&b.Username, c.Username)
	setIfGiven(&b.Password, c.Password)
	b.Metadata = b.Metadata.Merge(c.Metadata)
	return b
}

// DeleteBroker forgets a broker that has no instances. The operation has ended.
func (m *catalog) DeleteBroker(guid string, by app.Actor) (o Operation, err error) {
	err = m.update(func(tx records) error {
		sb, err := tx.broker(guid)
		if err != nil {
			return err
		}
		o, err = tx.deleteBroker(sb, by)
		return err
	})
	return o, err
}

func (tx catalogRecords) deleteBroker(sb ServiceBroker, by app.Actor) (o Operation, err error) {
	if sb.Builtin() {
		return o, invalid("guid", "The built-in service broker cannot be deleted")
	}
	if err := tx.dropCatalog(sb); err != nil {
		return o, err
	}
	if err := tx.cancelBroker(sb); err != nil {
		return o, err
	}
	if err := drop(tx.brokers, "service broker", sb.GUID); err != nil {
		return o, err
	}
	op := operation{Operation: Operation{
		GUID: uuid.NewString(), Kind: OfBroker, Record: sb.GUID, Action: Delete, By: by, CreatedAt: now(),
	}}
	if err := tx.closeOperation(op, Succeeded, ""); err != nil {
		return o, err
	}
	if op, err = get(tx.operations, "operation", op.GUID); err != nil {
		return o, err
	}
	return op.Operation, tx.brokerEvent("delete", sb, by)
}

// cancelBroker ends what a broker that is gone cannot be asked any more.
func (tx operationRecords) cancelBroker(sb ServiceBroker) error {
	open, err := tx.operations.By("open", "open")
	if err != nil {
		return fmt.Errorf("cannot list operations: %w", err)
	}
	for _, op := range open {
		if op.Broker != sb.GUID {
			continue
		}
		if err := tx.closeOperation(op, Failed, "the service broker is gone"); err != nil {
			return err
		}
	}
	return nil
}

// dropCatalog removes the offerings and plans of a broker, if nobody has them.
func (tx catalogRecords) dropCatalog(sb ServiceBroker) error {
	ps, err := tx.plans.By("broker", sb.GUID)
	if err != nil {
		return fmt.Errorf("cannot list service plans: %w", err)
	}
	for _, p := range ps {
		is, err := tx.instances.By("plan", p.GUID)
		if err != nil {
			return fmt.Errorf("cannot list service instances: %w", err)
		}
		if len(is) > 0 {
			return &Refused{
				Status: http.StatusUnprocessableEntity, Code: 270010, Title: "CF-ServiceBrokerNotRemovable",
				Detail: "Can not remove brokers that have associated service instances: " + sb.Name,
			}
		}
	}
	os, err := tx.offerings.By("broker", sb.GUID)
	if err != nil {
		return fmt.Errorf("cannot list service offerings: %w", err)
	}
	for _, o := range os {
		if err := tx.dropOffering(o); err != nil {
			return err
		}
	}
	return nil
}

func (tx catalogRecords) brokerEvent(what string, sb ServiceBroker, by app.Actor) error {
	data := map[string]any{"request": map[string]any{"name": sb.Name, "url": sb.URL}}
	return tx.event("service_broker."+what, by,
		app.Target{GUID: sb.GUID, Type: "service_broker", Name: sb.Name}, event{space: sb.Space, data: data})
}
