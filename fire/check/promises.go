package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/fire/load"
	"github.com/dewrun/dew/fire/world"
)

// writesStored fails if dewd has lost a write that it acknowledged.
func writesStored(ctx context.Context, s *Subject) error {
	return WritesIn(ctx, s.World, s, s.Ledger.Values(), s.Ledger.Spaces())
}

// WritesIn compares what a dewd has with values and spaces that were noted before.
func WritesIn(ctx context.Context, w *world.World, s *Subject, values map[string]load.Value, spaces []string) error {
	for _, a := range s.Apps {
		noted, known := values[a.Name]
		if !known {
			continue
		}
		if err := load.Written(ctx, w, a, noted, func() load.Value { return s.Ledger.Values()[a.Name] }); err != nil {
			return err
		}
	}
	list, err := w.Client.Orgs().Spaces(ctx)
	if err != nil {
		return err
	}
	for _, name := range spaces {
		if !slices.ContainsFunc(list, func(v v3.Space) bool { return v.Name == name }) {
			return fmt.Errorf("dewd acknowledged the space %s and does not have it", name)
		}
	}
	return nil
}

// linesDrained fails if the syslog server misses a line between others, or lines that the
// follower of the app already has.
func linesDrained(_ context.Context, s *Subject) error {
	if s.Peers == nil {
		return nil
	}
	_, _, problems := s.Peers.Drained()
	var errs []error
	for _, p := range problems {
		errs = append(errs, errors.New(p))
	}
	return errors.Join(errs...)
}

// MailsDelivered waits until every accepted notification is delivered, dewd says so of each,
// and its queue is empty.
func MailsDelivered(ctx context.Context, s *Subject, bound time.Duration) error {
	if err := mailsArrive(ctx, s, bound); err != nil {
		return err
	}
	left := s.Ledger.Mails()
	return world.Until(ctx, bound, func() (err error) {
		if left, err = load.Undelivered(ctx, s.World, left); err != nil {
			return err
		}
		if len(left) > 0 {
			return fmt.Errorf("dewd delivered %d notifications and does not say so, the first to %s", len(left), left[0].To)
		}
		queued, err := s.World.Client.Daemon().QueuedMails(ctx, "", 1)
		if err == nil && queued.Total > 0 {
			err = fmt.Errorf("the queue has %d mails after all were delivered", queued.Total)
		}
		return err
	})
}

// mailsArrive waits until the mail server has every accepted notification. dewd waits for
// minutes after a failed attempt, so this asks for the next attempt at once.
func mailsArrive(ctx context.Context, s *Subject, bound time.Duration) error {
	return world.Until(ctx, bound, func() error {
		if _, err := s.World.Client.Daemon().RetryMails(ctx, v3.RetryMails{}); err != nil {
			return err
		}
		var missing []string
		twice := 0
		for _, m := range s.Ledger.Mails() {
			n := s.Peers.Delivered(m.To)
			if n == 0 {
				missing = append(missing, m.To)
			}
			twice += max(0, n-1)
		}
		if len(missing) > 0 {
			return fmt.Errorf("dewd accepted %d notifications and did not deliver %v", len(s.Ledger.Mails()), missing[:min(len(missing), 10)])
		}
		return nil
	})
}

// LinesReach waits until the syslog server has every line that the app's processes
// reported.
func LinesReach(ctx context.Context, s *Subject, app string, bound time.Duration) error {
	printed, slots, endings := s.Ledger.Printed(), s.Ledger.Seen(), s.Ledger.Endings()
	return world.Until(ctx, bound, func() error {
		_, last, _ := s.Peers.Drained()
		for p, n := range printed {
			if have, known := last[p]; known && slots[p.Instance].App == app && !endings[p.Instance].LosesOutput && have < n {
				return fmt.Errorf("%s of instance %s printed %d lines, and the syslog server has %d", p.Role, p.Instance, n, have)
			}
		}
		return nil
	})
}
