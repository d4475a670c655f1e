package marketplace

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/services/osb"
)

// Broker returns the broker with guid.
func (m *catalog) Broker(guid string) (services.ServiceBroker, error) { return m.broker(guid) }

func (tx *tables) broker(guid string) (services.ServiceBroker, error) {
	return get(tx.brokers, "service broker", guid)
}

// Brokers returns the brokers that match f, including the built-in one, sorted by name.
func (m *catalog) Brokers(f services.BrokerFilter) ([]services.ServiceBroker, error) {
	return selectSorted(m.brokers, "service brokers", func(sb services.ServiceBroker) bool {
		return matches(f.GUIDs, sb.GUID) && matches(f.Names, sb.Name) && matches(f.Spaces, sb.Space) && f.Labels.Matches(sb.Metadata.Labels)
	}, func(a, b services.ServiceBroker) int { return cmp.Compare(a.Name, b.Name) })
}

// client returns the client of a broker.
func (b *base) client(guid string) (services.Broker, error) {
	sb, err := b.broker(guid)
	if err != nil {
		return nil, err
	}
	return b.clientOf(sb)
}

func (b *base) clientOf(sb services.ServiceBroker) (services.Broker, error) {
	switch {
	case !sb.Builtin() && b.cfg.Client != nil:
		return b.cfg.Client(sb), nil
	case !sb.Builtin():
		h := &osb.Broker{URL: sb.URL, Username: sb.Username, Password: sb.Password, SkipTLS: sb.SkipTLS}
		if sb.SetBy.Restricted() {
			h.Egress = &b.cfg.Egress
		}
		return h, nil
	case b.cfg.Builtin == nil:
		return nil, errors.New("this dewd has no built-in service broker")
	}
	return b.cfg.Builtin, nil
}

// CreateBroker stores a broker. The operation reads its catalog.
func (m *catalog) CreateBroker(n services.NewBroker) (sb services.ServiceBroker, o services.Operation, err error) {
	err = m.update(func(tx records) error {
		sb = services.ServiceBroker{
			GUID: uuid.NewString(), Name: n.Name, URL: n.URL, Username: n.Username, Password: n.Password,
			SkipTLS: n.SkipTLS, Space: n.Space, SetBy: n.SetBy, State: services.Synchronizing, Metadata: n.Metadata, CreatedAt: now(),
		}
		sb.UpdatedAt = sb.CreatedAt
		if err := tx.checkBroker(sb); err != nil {
			return err
		}
		if o, err = tx.beginOperation(operation{
			Operation: services.Operation{Kind: services.OfBroker, Record: sb.GUID, Action: services.Create, By: n.By}, Broker: sb.GUID,
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

// checkBroker checks whether a broker can be stored.
func (tx catalogRecords) checkBroker(sb services.ServiceBroker) error {
	problems := []error{services.CheckBrokerURL(sb.URL), sb.Metadata.Validate()}
	if err := services.CheckName(sb.Name); err != nil {
		problems = append(problems, err)
	}
	if sb.Username == "" || sb.Password == "" {
		problems = append(problems, services.NewInvalid("authentication", "Authentication must have a username and a password"))
	}
	same, err := tx.brokers.By("name", sb.Name)
	if err != nil {
		return fmt.Errorf("cannot look up service broker %q: %w", sb.Name, err)
	}
	if len(same) > 0 && same[0].GUID != sb.GUID {
		problems = append(problems, services.NewInvalid("name", "Name must be unique"))
	}
	if sb.Space != "" {
		if _, err := tx.registry.Space(sb.Space); err != nil {
			problems = append(problems, services.NewInvalid("relationships.space", "Invalid space. Ensure that the space exists and you have access to it."))
		}
	}
	return errors.Join(problems...)
}

// UpdateBroker changes a broker. Unless only metadata changes, the operation first
// reads its catalog with the new settings. If that fails, nothing changes.
func (m *catalog) UpdateBroker(guid string, c services.BrokerChange) (sb services.ServiceBroker, o services.Operation, err error) {
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
			return services.NewInvalid("name", "The built-in service broker cannot be changed")
		}
		if sb.State == services.Synchronizing || sb.State == services.Deleting {
			return services.NewInvalid("state", "Cannot update a broker when other operation is already in progress")
		}
		if err := tx.checkBroker(withChange(sb, c)); err != nil {
			return err
		}
		if o, err = tx.beginOperation(operation{
			Operation: services.Operation{Kind: services.OfBroker, Record: guid, Action: services.Update, By: c.By}, Broker: guid, BrokerChange: &c,
		}); err != nil {
			return err
		}
		sb.State = services.Synchronizing
		if err := put(tx.brokers, "service broker", guid, sb); err != nil {
			return err
		}
		return tx.brokerEvent("update", sb, c.By)
	})
	return sb, o, err
}

// DeleteBroker deletes a broker that has no instances. The returned operation is
// already finished.
func (m *catalog) DeleteBroker(guid string, by app.Actor) (o services.Operation, err error) {
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

func (tx catalogRecords) deleteBroker(sb services.ServiceBroker, by app.Actor) (o services.Operation, err error) {
	if sb.Builtin() {
		return o, services.NewInvalid("guid", "The built-in service broker cannot be deleted")
	}
	if err := tx.dropCatalog(sb); err != nil {
		return o, err
	}
	if err := tx.cancelBroker(sb); err != nil {
		return o, err
	}
	if err := errors.Join(drop(tx.brokers, "service broker", sb.GUID), tx.dashboards.Set(sb.GUID, nil)); err != nil {
		return o, err
	}
	op := operation{Operation: services.Operation{
		GUID: uuid.NewString(), Kind: services.OfBroker, Record: sb.GUID, Action: services.Delete, By: by, CreatedAt: now(),
	}}
	if err := tx.closeOperation(op, services.Succeeded, ""); err != nil {
		return o, err
	}
	if op, err = get(tx.operations, "operation", op.GUID); err != nil {
		return o, err
	}
	return op.Operation, tx.brokerEvent("delete", sb, by)
}

// cancelBroker closes the open operations of a deleted broker.
func (tx operationRecords) cancelBroker(sb services.ServiceBroker) error {
	open, err := tx.operations.By("open", "open")
	if err != nil {
		return fmt.Errorf("cannot list operations: %w", err)
	}
	for _, op := range open {
		if op.Broker != sb.GUID {
			continue
		}
		if err := tx.closeOperation(op, services.Failed, "the service broker was deleted"); err != nil {
			return err
		}
	}
	return nil
}

// dropCatalog removes the offerings and plans of a broker if they have no instances.
func (tx catalogRecords) dropCatalog(sb services.ServiceBroker) error {
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
			return &services.Refused{
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

func (tx catalogRecords) brokerEvent(what string, sb services.ServiceBroker, by app.Actor) error {
	data := map[string]any{"request": map[string]any{"name": sb.Name, "url": sb.URL}}
	return tx.event("service_broker."+what, by,
		app.Target{GUID: sb.GUID, Type: "service_broker", Name: sb.Name}, event{space: sb.Space, data: data})
}

// setIfGiven sets a text if a new value is given.
func setIfGiven(s *string, to *string) {
	if to != nil {
		*s = *to
	}
}

// setURL sets a URL and its origin if a new URL is given. If a user sends the same URL
// again, the origin stays. If an administrator does, the administrator becomes the
// origin.
func setURL(s *string, origin *services.Origin, to *string, by services.Origin) {
	if to == nil {
		return
	}
	if *to != *s || by == services.ByAdmin {
		*origin = by
	}
	*s = *to
}

// withChange returns the broker after a change.
func withChange(b services.ServiceBroker, c services.BrokerChange) services.ServiceBroker {
	setIfGiven(&b.Name, c.Name)
	setURL(&b.URL, &b.SetBy, c.URL, c.SetBy)
	setIfGiven(&b.Username, c.Username)
	setIfGiven(&b.Password, c.Password)
	b.Metadata = b.Metadata.Merge(c.Metadata)
	return b
}
