package delivery

import (
	"bytes"
	"fmt"
	"net/mail"
	"testing"
	"time"
)

func sampleMail(n int) Mail {
	return Mail{
		ID: fmt.Sprintf("id-%d", n), From: "Dew <no-reply@dew.localhost>", To: fmt.Sprintf("user-%d@example.com", n),
		Subject: "Hello", Text: "text", HTML: "<p>html</p>", Client: "mailer", Kind: "news",
		Received: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Sent: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC),
	}
}

func readMail(t testing.TB, raw []byte) *mail.Message {
	t.Helper()
	m, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		t.Fatalf("cannot read the mail: %v\n%s", err, raw)
	}
	return m
}
