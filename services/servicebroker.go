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

// NewBroker is the wish for a broker.
type NewBroker struct {
	Name, URL          string
	Username, Password string
	SkipTLS            bool
	Space              string // guid; empty: for all
	SetBy              Origin // who chose the URL
	Metadata           app.Metadata
	By                 app.Actor
}

// BrokerChange is the wish for a broker to be different. What is nil stays.
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
func (b *Book) Broker(guid string) (ServiceBroker, error) { return b.broker(guid) }

func (l ledger) broker(guid string) (ServiceBroker, error) {
	return get(l.brokers, "service broker", guid)
}

// Brokers returns the brokers that f chooses, by name. The built-in one is among
// them.
func (b *Book) Brokers(f BrokerFilter) ([]ServiceBroker, error) {
	return choose(b.brokers, "service brokers", func(sb ServiceBroker) bool {
		return among(f.GUIDs, sb.GUID) && among(f.Names, sb.Name) && among(f.Spaces, sb.Space) && f.Labels.Matches(sb.Metadata.Labels)
	}, func(a, b ServiceBroker) int { return cmp.Compare(a.Name, b.Name) })
}

// client is how to speak with a broker.
func (b *Book) client(guid string) (Broker, error) {
	sb, err := b.broker(guid)
	if err != nil {
		return nil, err
	}
	return b.clientOf(sb)
}

func (b *Book) clientOf(sb ServiceBroker) (Broker, error) {
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
func (b *Book) CreateBroker(n NewBroker) (sb ServiceBroker, o Operation, err error) {
	err = b.update(func(l ledger) error {
		sb = ServiceBroker{
			GUID: uuid.NewString(), Name: n.Name, URL: n.URL, Username: n.Username, Password: n.Password,
			SkipTLS: n.SkipTLS, Space: n.Space, SetBy: n.SetBy, State: Synchronizing, Metadata: n.Metadata, CreatedAt: now(),
		}
		sb.UpdatedAt = sb.CreatedAt
		if err := l.checkBroker(sb); err != nil {
			return err
		}
		if o, err = l.begin(task{
			Operation: Operation{Kind: OfBroker, Record: sb.GUID, Action: Create, By: n.By}, Broker: sb.GUID,
		}); err != nil {
			return err
		}
		if err := put(l.brokers, "service broker", sb.GUID, sb); err != nil {
			return err
		}
		return l.brokerEvent("create", sb, n.By)
	})
	return sb, o, err
}

// checkBroker tells whether there may be such a broker.
func (l ledger) checkBroker(sb ServiceBroker) error {
	problems := []error{checkBrokerURL(sb.URL), sb.Metadata.Validate()}
	if err := checkName(sb.Name); err != nil {
		problems = append(problems, err)
	}
	if sb.Username == "" || sb.Password == "" {
		problems = append(problems, invalid("authentication", "Authentication must have a username and a password"))
	}
	same, err := l.brokers.By("name", sb.Name)
	if err != nil {
		return fmt.Errorf("cannot look for service broker %q: %w", sb.Name, err)
	}
	if len(same) > 0 && same[0].GUID != sb.GUID {
		problems = append(problems, invalid("name", "Name must be unique"))
	}
	if sb.Space != "" {
		if _, err := l.registry.Space(sb.Space); err != nil {
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
func (b *Book) UpdateBroker(guid string, c BrokerChange) (sb ServiceBroker, o Operation, err error) {
	err = b.update(func(l ledger) error {
		if sb, err = l.broker(guid); err != nil {
			return err
		}
		if c.Name == nil && c.URL == nil && c.Username == nil && c.Password == nil {
			sb.Metadata, sb.UpdatedAt = sb.Metadata.Merge(c.Metadata), now()
			if err := sb.Metadata.Validate(); err != nil {
				return err
			}
			return put(l.brokers, "service broker", guid, sb)
		}
		if sb.Builtin() {
			return invalid("name", "The built-in service broker cannot be changed")
		}
		if sb.State == Synchronizing || sb.State == Deleting {
			return invalid("state", "Cannot update a broker when other operation is already in progress")
		}
		if err := l.checkBroker(sb.renewed(c)); err != nil {
			return err
		}
		if o, err = l.begin(task{
			Operation: Operation{Kind: OfBroker, Record: guid, Action: Update, By: c.By}, Broker: guid, Renewed: &c,
		}); err != nil {
			return err
		}
		sb.State = Synchronizing
		if err := put(l.brokers, "service broker", guid, sb); err != nil {
			return err
		}
		return l.brokerEvent("update", sb, c.By)
	})
	return sb, o, err
}

// renewed is the broker as it is wished to be.
func (b ServiceBroker) renewed(c BrokerChange) ServiceBroker {
	set(&b.Name, c.Name)
	setURL(&b.URL, &b.SetBy, c.URL, c.SetBy)
	set(&b.Username, c.Username)
	set(&b.Password, c.Password)
	b.Metadata = b.Metadata.Merge(c.Metadata)
	return b
}

// DeleteBroker forgets a broker that has no instances. The operation has ended.
func (b *Book) DeleteBroker(guid string, by app.Actor) (o Operation, err error) {
	err = b.update(func(l ledger) error {
		sb, err := l.broker(guid)
		if err != nil {
			return err
		}
		o, err = l.deleteBroker(sb, by)
		return err
	})
	return o, err
}

func (l ledger) deleteBroker(sb ServiceBroker, by app.Actor) (o Operation, err error) {
	if sb.Builtin() {
		return o, invalid("guid", "The built-in service broker cannot be deleted")
	}
	if err := l.dropCatalog(sb); err != nil {
		return o, err
	}
	if err := l.cancelAll(sb); err != nil {
		return o, err
	}
	if err := drop(l.brokers, "service broker", sb.GUID); err != nil {
		return o, err
	}
	t := task{Operation: Operation{
		GUID: uuid.NewString(), Kind: OfBroker, Record: sb.GUID, Action: Delete, By: by, CreatedAt: now(),
	}}
	if err := l.close(t, Succeeded, ""); err != nil {
		return o, err
	}
	if t, err = get(l.tasks, "operation", t.GUID); err != nil {
		return o, err
	}
	return t.Operation, l.brokerEvent("delete", sb, by)
}

// cancelAll ends what a broker that is gone cannot be asked any more.
func (l ledger) cancelAll(sb ServiceBroker) error {
	open, err := l.tasks.By("open", "open")
	if err != nil {
		return fmt.Errorf("cannot list operations: %w", err)
	}
	for _, t := range open {
		if t.Broker != sb.GUID {
			continue
		}
		if err := l.close(t, Failed, "the service broker is gone"); err != nil {
			return err
		}
	}
	return nil
}

// dropCatalog removes the offerings and plans of a broker, if nobody has them.
func (l ledger) dropCatalog(sb ServiceBroker) error {
	ps, err := l.plans.By("broker", sb.GUID)
	if err != nil {
		return fmt.Errorf("cannot list service plans: %w", err)
	}
	for _, p := range ps {
		is, err := l.instances.By("plan", p.GUID)
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
	os, err := l.offerings.By("broker", sb.GUID)
	if err != nil {
		return fmt.Errorf("cannot list service offerings: %w", err)
	}
	for _, o := range os {
		if err := l.dropOffering(o); err != nil {
			return err
		}
	}
	return nil
}

func (l ledger) brokerEvent(what string, sb ServiceBroker, by app.Actor) error {
	data := map[string]any{"request": map[string]any{"name": sb.Name, "url": sb.URL}}
	return l.event("service_broker."+what, by,
		app.Target{GUID: sb.GUID, Type: "service_broker", Name: sb.Name}, event{space: sb.Space, data: data})
}
