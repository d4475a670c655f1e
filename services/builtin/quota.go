package builtin

import (
	"context"
	"fmt"
	"time"

	"github.com/dewrun/dew/runtime"
)

// defaultMeasure is the interval between measurements of the data.
const defaultMeasure = 30 * time.Second

// watchDisks measures the data of all instances at intervals. A database that exceeds
// the disk size of its plan becomes read-only. Users can still delete data, which makes
// it writable again.
func (b *Broker) watchDisks(ctx context.Context) {
	for wait(ctx, b.c.Measure) {
		all, err := b.records.All()
		if err != nil {
			b.c.Logger.Error("cannot list the databases", "err", err)
			continue
		}
		for _, rec := range all {
			if len(rec.Stale) > 0 {
				if err := b.dropStale(ctx, rec.GUID); err != nil && ctx.Err() == nil {
					b.c.Logger.Warn("cannot delete the users of deleted bindings; dewd tries again", "service_instance", rec.GUID, "err", err)
				}
			}
			if err := b.measure(ctx, rec); err != nil && ctx.Err() == nil {
				b.c.Logger.Warn("cannot enforce the disk limit of a database; dewd tries again", "service_instance", rec.GUID, "err", err)
			}
		}
	}
}

// measure measures one instance and reacts if it crossed its limit in either direction.
func (b *Broker) measure(ctx context.Context, rec record) error {
	e, ok := engineOf(rec.Engine)
	if !ok || e.full == nil || !rec.usable() || rec.Doing != "" || rec.Restoring {
		return nil
	}
	bytes, known, err := b.measureData(ctx, rec)
	if err != nil || !known {
		return err
	}
	limit := int64(e.size(rec.Shape).diskMB) << 20
	full := bytes > limit
	if rec.Full { // a lower limit, so that it does not switch back and forth
		full = bytes > limit/20*19
	}
	if full == rec.Full {
		return nil
	}
	return b.setFull(ctx, rec.GUID, full, fmt.Sprintf("%d MB of %d MB", bytes>>20, limit>>20))
}

// measureData returns the size of the data. It is not known if the server of a volume does
// not run.
func (b *Broker) measureData(ctx context.Context, rec record) (bytes int64, known bool, err error) {
	if !b.inCluster() {
		bytes, err = treeSize(b.data(rec.GUID))
		return bytes, true, err
	}
	if st, found := b.status(rec); !found || st.State != runtime.Running {
		return 0, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	bytes, _, err = b.volumeSize(ctx, rec.GUID)
	return bytes, true, err
}

// setFull makes a server reject new data, or accept it again.
func (b *Broker) setFull(ctx context.Context, guid string, full bool, usage string) error {
	unlock, err := b.lock(ctx, guid)
	if err != nil {
		return err
	}
	defer unlock()
	rec, err := b.get(guid)
	if err != nil || rec.Doing != "" {
		return err
	}
	e, _ := engineOf(rec.Engine)
	if err := b.runStatements(ctx, rec, e.full(rec, full)); err != nil {
		return err
	}
	if _, err := b.change(guid, func(r *record) { r.Full = full }); err != nil {
		return err
	}
	text := "The disk of the service is full (" + usage + "): the service accepts no more data until you delete some data or choose a larger plan"
	if !full {
		text = "The disk of the service has free space again (" + usage + ")"
	}
	b.c.Logger.Warn("disk usage of a database crossed its limit", "service_instance", guid, "full", full, "used", usage)
	if b.c.Say != nil {
		b.c.Say(guid, text)
	}
	return nil
}

// bindStatements returns the statements that create a binding, including the
// restrictions of a full disk.
func (e *engine) bindStatements(rec record, binding string) string {
	text := e.bind(rec, binding)
	if rec.Full && e.full != nil {
		text += e.full(rec, true)
	}
	return text
}
