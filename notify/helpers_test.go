package notify

import (
	"testing"
	"time"

	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

func openDB(t testing.TB, path string) *store.DB {
	t.Helper()
	return testkit.Open(store.Open(path, store.Options{NoSync: true}))(t)
}

func settle(t testing.TB, q *delivery.Queue, now time.Time, os ...delivery.Outcome) {
	t.Helper()
	if err := q.Settle(os, now); err != nil {
		t.Fatal(err)
	}
}

// messages returns the queue's message bucket in db. No test here reads its index.
func messages(db *store.DB) store.Bucket[delivery.Message] {
	return store.In(db, "notify messages", store.Index("failed", func(delivery.Message) string { return "" }))
}

func notices(db *store.DB) store.Bucket[delivery.Notice] {
	return store.In[delivery.Notice](db, "notify notices")
}
