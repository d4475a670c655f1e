package smtp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	gomail "github.com/wneessen/go-mail"

	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

const benchMails = 1000

// BenchmarkEnqueue measures how many recipients of one request are stored per second,
// on disk.
func BenchmarkEnqueue(b *testing.B) {
	db := testkit.Open(store.Open(filepath.Join(b.TempDir(), "dew.db"), store.Options{}))(b)
	q, to := delivery.NewQueue(db), people(benchMails)
	for b.Loop() {
		if _, err := q.Enqueue(b.Context(), delivery.Notice{Client: "c", Subject: "Hello", Text: "text"}, to); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(benchMails*b.N)/b.Elapsed().Seconds(), "recipients/s")
}

// BenchmarkDeliver measures how many mails per second go from the queue on disk to a
// mail server. It compares that with a bare loop over the same number of connections to
// the same server. ratio is the share of the bare rate that is reached, ours the share
// of time that is spent outside of sending.
func BenchmarkDeliver(b *testing.B) {
	srv := (&mailServer{}).start(b)
	var bare, queued time.Duration
	for b.Loop() {
		bare += bareLoop(b, srv.Address)
		queued += fromQueue(b, srv.Address)
		srv.mu.Lock()
		srv.mails = nil
		srv.mu.Unlock()
	}
	n := float64(benchMails * b.N)
	b.ReportMetric(n/queued.Seconds(), "mails/s")
	b.ReportMetric(n/bare.Seconds(), "bare-mails/s")
	b.ReportMetric(bare.Seconds()/queued.Seconds(), "ratio")
	b.ReportMetric(max(0, 1-bare.Seconds()/queued.Seconds()), "ours")
}

// bareLoop sends prepared mails over as many connections as the courier has workers.
func bareLoop(b *testing.B, address string) time.Duration {
	b.Helper()
	s := newSMTP(b, Config{Address: address})
	work := make(chan *gomail.Msg, benchMails)
	for n := range benchMails {
		m, err := sampleMail(n).Encode()
		if err != nil {
			b.Fatal(err)
		}
		if _, err := m.WriteTo(io.Discard); err != nil {
			b.Fatal(err)
		}
		work <- m
	}
	close(work)
	failed := make(chan error, delivery.DefaultWorkers)
	began := time.Now()
	for range delivery.DefaultWorkers {
		go func() {
			var failure error
			for m := range work {
				l, err := s.open(context.WithoutCancel(b.Context()))
				if err == nil {
					err = s.sendOver(b.Context(), l, envelope{msg: m})
				}
				failure = err
			}
			failed <- failure
		}()
	}
	for range delivery.DefaultWorkers {
		if err := <-failed; err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(began)
}

// fromQueue delivers the same number of messages from a queue that was filled before.
func fromQueue(b *testing.B, address string) time.Duration {
	b.Helper()
	db, err := store.Open(filepath.Join(b.TempDir(), fmt.Sprintf("%d.db", time.Now().UnixNano())), store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	q := delivery.NewQueue(db)
	if _, err := q.Enqueue(b.Context(), delivery.Notice{Client: "c", Subject: "Hello", Text: "text"}, people(benchMails)); err != nil {
		b.Fatal(err)
	}
	var logged bytes.Buffer
	c, err := delivery.NewCourier(delivery.CourierConfig{
		Queue: q, Directory: struct{ delivery.Directory }{}, Composer: composerFunc(func(m delivery.Message, n delivery.Notice) (delivery.Mail, error) {
			return delivery.Mail{To: m.Email, Subject: n.Subject, Text: n.Text, HTML: "<p>html</p>"}, nil
		}), Mailer: newSMTP(b, Config{Address: address}), From: "dew@example.com", Logger: slog.New(slog.NewTextHandler(&logged, nil)),
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	began := time.Now()
	go func() { done <- c.Run(ctx) }()
	err = testkit.UntilExactly(func() error {
		left, err := q.Waiting()
		if err == nil && left > 0 {
			err = fmt.Errorf("%d messages are left", left)
		}
		return err
	})
	took := time.Since(began)
	if err != nil {
		b.Fatal(err)
	}
	cancel()
	if err := <-done; err != nil || logged.Len() > 0 {
		b.Fatalf("%v\n%s", err, &logged)
	}
	return took
}
