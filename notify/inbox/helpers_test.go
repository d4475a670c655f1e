package inbox

import (
	"fmt"
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

func sampleMail(n int) delivery.Mail {
	return delivery.Mail{
		ID: fmt.Sprintf("id-%d", n), From: "Dew <no-reply@dew.localhost>", To: fmt.Sprintf("user-%d@example.com", n),
		Subject: "Hello", Text: "text", HTML: "<p>html</p>", Client: "mailer", Kind: "news",
		Received: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Sent: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC),
	}
}
