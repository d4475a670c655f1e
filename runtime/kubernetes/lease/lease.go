// Package lease makes sure that only one dewd uses a namespace. dewd takes a Lease before
// it changes anything in the cluster, and renews it. A dewd that cannot renew the Lease
// changes nothing until it can again. A dewd that has lost the Lease must exit.
package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Name is the name of the Lease.
const Name = "dewd"

const (
	// Duration is how long another dewd waits for a renewal before it takes the Lease.
	Duration = 15 * time.Second
	// margin is how long before that this dewd stops changing the cluster.
	margin = 5 * time.Second
	// interval is the time between two renewals.
	interval = 2 * time.Second
	// callTimeout is the time limit of one call.
	callTimeout = 5 * time.Second
)

// ErrHeld says that another dewd uses the namespace.
var ErrHeld = errors.New("another dewd uses the namespace")

// Lease is the Lease of one dewd.
type Lease struct {
	namespace string
	holder    string
	leases    Leases
	log       *slog.Logger
	stop      context.CancelFunc // stops the renewals; nil: there are none
	result    chan error         // receives the result of the renewals

	mu      sync.Mutex // guards the fields below
	renewed time.Time  // before the call of the last renewal that succeeded
	failed  error      // why the last renewal failed; nil: it succeeded
	lost    error
}

// New returns a Lease that is not held. No other process can have the same holder at the
// same time: a dewd takes the Lease of its own holder at once.
func New(namespace, holder string, log *slog.Logger) *Lease {
	return &Lease{namespace: namespace, holder: holder, log: log}
}

// Take takes the Lease and renews it until Release. If another dewd holds it, Take waits
// until that dewd renews it, and returns ErrHeld, or until the Lease has expired, and takes
// it.
func (l *Lease) Take(ctx context.Context, c Leases) error {
	l.leases = c
	if err := l.acquire(ctx); err != nil {
		return err
	}
	l.result = make(chan error, 1)
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() { l.result <- l.keep(ctx) }()
	return nil
}

// Wait waits until ctx ends. It returns an error if this dewd loses the Lease before.
func (l *Lease) Wait(ctx context.Context) error {
	select {
	case err := <-l.result:
		l.result <- err
		return err
	case <-ctx.Done():
		return nil
	}
}

func (l *Lease) acquire(ctx context.Context) error {
	var seen *coordinationv1.Lease // the last change by another holder
	var since time.Time            // when it was seen, by the clock of this machine
	for {
		found, err := l.take(ctx)
		if err != nil {
			return fmt.Errorf("cannot take the Lease %s in namespace %s: %w", Name, l.namespace, err)
		}
		if found == nil {
			return nil
		}
		switch {
		case seen == nil:
			l.log.Info("waiting whether the dewd that holds the Lease still runs", "holder", holderOf(found), "limit", Duration)
			seen, since = found, time.Now()
		case seen.ResourceVersion != found.ResourceVersion && holderOf(found) != "":
			return l.heldBy(found)
		case time.Since(since) >= Duration:
			l.log.Warn("the dewd that held the Lease did not renew it", "holder", holderOf(found))
			found, err := l.write(ctx, found)
			if err != nil {
				return fmt.Errorf("cannot take the Lease %s in namespace %s: %w", Name, l.namespace, err)
			}
			if found == nil {
				return nil
			}
		}
		select {
		case <-time.After(interval / 2):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// heldBy returns the error for a Lease of another dewd.
func (l *Lease) heldBy(found *coordinationv1.Lease) error {
	return fmt.Errorf("cannot use namespace %s: %w: %s holds the Lease %s (stop that dewd, or choose another namespace with --namespace)", l.namespace, ErrHeld, describe(holderOf(found)), Name)
}

// describe says where a holder runs.
func describe(holder string) string {
	host, id, _ := strings.Cut(holder, "/")
	if strings.HasPrefix(id, "/") {
		return fmt.Sprintf("dewd on host %s with root %s", host, id)
	}
	return fmt.Sprintf("dewd in Pod %s (%s)", host, id)
}

func holderOf(found *coordinationv1.Lease) string { return ptr.Deref(found.Spec.HolderIdentity, "") }

// take takes the Lease if no other dewd holds it. Otherwise it returns the Lease of the
// other holder.
func (l *Lease) take(ctx context.Context) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, err := l.leases.Get(ctx, Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return l.write(ctx, nil)
	}
	if err != nil {
		return nil, err
	}
	if h := holderOf(found); h != "" && h != l.holder {
		return found, nil
	}
	return l.write(ctx, found)
}

// write makes this dewd the holder. If another dewd was faster, it returns the Lease of
// that one.
func (l *Lease) write(ctx context.Context, found *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	began := time.Now()
	now := metav1.NewMicroTime(began)
	next := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: Name, Namespace: l.namespace}}
	var err error
	if found != nil {
		next = found.DeepCopy()
	}
	if holderOf(next) != l.holder {
		next.Spec.AcquireTime = &now
		next.Spec.LeaseTransitions = ptr.To(ptr.Deref(next.Spec.LeaseTransitions, 0) + 1)
	}
	next.Spec.HolderIdentity, next.Spec.RenewTime, next.Spec.LeaseDurationSeconds = ptr.To(l.holder), &now, ptr.To(int32(Duration/time.Second))
	if found == nil {
		_, err = l.leases.Create(ctx, next, metav1.CreateOptions{})
	} else {
		_, err = l.leases.Update(ctx, next, metav1.UpdateOptions{})
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return l.leases.Get(ctx, Name, metav1.GetOptions{})
	}
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = began
	return nil, nil
}

// keep renews the Lease until ctx ends. It returns an error if this dewd has lost it.
func (l *Lease) keep(ctx context.Context) error {
	away := false
	for {
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return nil
		}
		found, err := l.take(ctx)
		err = explain(err)
		l.mu.Lock()
		l.failed = err
		l.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return nil
		case found != nil && holderOf(found) != "" && holderOf(found) != l.holder:
			return l.lose(found)
		case err != nil && !away:
			l.log.Warn("cannot renew the Lease; dewd changes nothing in the cluster until it can, and running apps are not affected", "err", err)
		case err == nil && away:
			l.log.Info("renewed the Lease again")
		}
		away = err != nil
	}
}

// spaceExceeded is a part of the error of an API server whose etcd has no space left.
const spaceExceeded = "database space exceeded"

// explain adds to an error of the API server what to do about it.
func explain(err error) error {
	if err == nil || !strings.Contains(err.Error(), spaceExceeded) {
		return err
	}
	return fmt.Errorf("the database of the cluster (etcd) has no space left: %w (an administrator of the cluster must compact and defragment etcd, and disarm its alarm NOSPACE)", err)
}

// lose records that another dewd has the Lease.
func (l *Lease) lose(found *coordinationv1.Lease) error {
	err := fmt.Errorf("cannot go on: %w: %s has taken the Lease %s of namespace %s (apps keep running; stop one of the two)", ErrHeld, describe(holderOf(found)), Name, l.namespace)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = err
	return err
}

// Check returns why this dewd must not change the cluster, or nil.
func (l *Lease) Check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.lost != nil:
		return l.lost
	case l.renewed.IsZero():
		return errors.New("dewd does not hold its Lease yet")
	case elapsed(l.renewed) > Duration-margin && l.failed != nil:
		return fmt.Errorf("dewd has not renewed its Lease for %s: %w", elapsed(l.renewed).Round(time.Second), l.failed)
	case elapsed(l.renewed) > Duration-margin:
		return fmt.Errorf("dewd has not renewed its Lease for %s", elapsed(l.renewed).Round(time.Second))
	}
	return nil
}

// elapsed returns the time since t. It counts the time in which the machine was suspended,
// which only the wall clock has.
func elapsed(t time.Time) time.Duration {
	return max(time.Since(t), time.Now().Round(0).Sub(t.Round(0)))
}

// Release gives the Lease up, so that the next dewd does not wait.
func (l *Lease) Release(ctx context.Context) error {
	if l.stop == nil {
		return nil
	}
	l.stop()
	l.result <- <-l.result // the renewals have stopped
	if l.Check() != nil {
		return nil // another dewd can have it
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, err := l.leases.Get(ctx, Name, metav1.GetOptions{})
	if err == nil && holderOf(found) == l.holder {
		found.Spec.HolderIdentity, found.Spec.RenewTime = nil, nil
		_, err = l.leases.Update(ctx, found, metav1.UpdateOptions{})
	}
	l.mu.Lock()
	l.renewed = time.Time{}
	l.mu.Unlock()
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("cannot release the Lease %s: %w", Name, err)
	}
	return nil
}

// Leases are the calls that a Lease needs. They are the permissions of dewd.
type Leases interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(ctx context.Context, l *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, l *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error)
}

// Guard returns a transport that refuses requests that change the cluster, unless this
// dewd holds the Lease.
func (l *Lease) Guard(next http.RoundTripper) http.RoundTripper { return guard{l, next} }

// ReadOnly returns a transport that refuses all requests that change the cluster.
func ReadOnly(next http.RoundTripper) http.RoundTripper {
	return New("", "", nil).Guard(next)
}

type guard struct {
	lease *Lease
	next  http.RoundTripper
}

// RoundTrip sends a request, unless it is refused.
func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	changes := r.Method != http.MethodGet && r.Method != http.MethodHead
	if changes && !strings.Contains(r.URL.Path, "/apis/coordination.k8s.io/") && !strings.Contains(r.URL.Path, "/apis/authorization.k8s.io/") {
		if err := g.lease.Check(); err != nil {
			if r.Body != nil {
				r.Body.Close()
			}
			return nil, err
		}
	}
	return g.next.RoundTrip(r)
}
