package inbound

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// Rate is the minimum rate at which a body must arrive. A client can send nothing for
// the time of Patience, and every byte gives it more time, up to Patience again. So an
// upload of any size succeeds over a slow link. A client with one byte per second
// cannot hold a connection for much longer than Patience.
type Rate struct {
	Patience       time.Duration
	BytesPerSecond int
}

// MinimumRate is the rate for all listeners. It is that of Apache's mod_reqtimeout.
var MinimumRate = Rate{Patience: 30 * time.Second, BytesPerSecond: 500}

// Pace measures one body against a Rate. Only the time in which the server waits for
// the client counts.
type Pace struct {
	rate Rate
	left time.Duration // until the client is too slow
}

// Pace starts to measure a body.
func (r Rate) Pace() Pace { return Pace{rate: r, left: r.Patience} }

// Deadline returns by when the next bytes must arrive, if the server starts to wait
// now.
func (p *Pace) Deadline(now time.Time) time.Time { return now.Add(p.left) }

// Arrived counts n bytes that the server waited for.
func (p *Pace) Arrived(n int, waited time.Duration) {
	earned := time.Duration(n) * time.Second / time.Duration(p.rate.BytesPerSecond)
	p.left = min(p.left-waited+earned, p.rate.Patience)
}

// Bodies aborts requests whose bodies arrive more slowly than the rate: reading them
// fails with os.ErrDeadlineExceeded.
func (r Rate) Bodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Body == nil || req.Body == http.NoBody {
			next.ServeHTTP(w, req)
			return
		}
		b := &pacedBody{ReadCloser: req.Body, client: http.NewResponseController(w), pace: r.Pace()}
		// The server itself reads the rest of a body before it responds.
		b.bound()
		defer b.bound()
		paced := *req
		paced.Body = b
		next.ServeHTTP(w, &paced)
	})
}

// pacedBody is a body with a deadline for the next bytes.
type pacedBody struct {
	io.ReadCloser
	client *http.ResponseController
	pace   Pace
	ended  bool
}

// bound sets the deadline, until the body has ended. It fails for connections without
// deadlines, as in tests.
func (b *pacedBody) bound() {
	if !b.ended {
		_ = b.client.SetReadDeadline(b.pace.Deadline(time.Now()))
	}
}

func (b *pacedBody) Read(p []byte) (int, error) {
	b.bound()
	began := time.Now()
	n, err := b.ReadCloser.Read(p)
	b.pace.Arrived(n, time.Since(began))
	if errors.Is(err, io.EOF) && !b.ended {
		b.ended = true
		_ = b.client.SetReadDeadline(time.Time{}) // the connection stays open
	}
	return n, err
}
