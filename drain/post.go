package drain

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

const (
	postLimit  = 30 * time.Second
	batchBytes = 128 << 10 // approximate size of one POST with many messages
	maxAnswer  = 64 << 10
)

// poster sends over HTTP: one message per request, or as many as fit.
type poster struct {
	f      *follower
	names  [2]string
	url    string
	user   *url.Userinfo
	batch  bool
	client *http.Client
	never  chan struct{} // never closed: requests fail by themselves
	body   []byte        // messages that are not sent yet

	next atomic.Uint64 // number of the line after the last confirmed one
}

func newPoster(f *follower, names [2]string, config *tls.Config) *poster {
	u := *f.url
	u.Scheme, u.User = "https", nil
	t := &http.Transport{
		TLSClientConfig: config,
		IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
	}
	var way http.RoundTripper = t
	if f.target.Restricted {
		way = f.d.c.Egress.Transport(t, dialTimeout)
	}
	p := &poster{
		f: f, names: names, url: u.String(), user: f.url.User, batch: f.url.Scheme == schemeBatch, never: make(chan struct{}),
		client: &http.Client{
			Timeout:   postLimit,
			Transport: way,
			// Lines and the password are sent only to the drain's URL.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	p.next.Store(f.next)
	return p
}

func (p *poster) ended() <-chan struct{} { return p.never }
func (p *poster) err() error             { return nil }
func (p *poster) has(bool) uint64        { return p.next.Load() }
func (p *poster) close()                 { p.client.CloseIdleConnections() }

func (p *poster) send(ctx context.Context, b batch) error {
	if p.batch {
		return p.sendMany(ctx, b)
	}
	for _, e := range b.lines {
		p.body = message(p.body[:0], e, p.names[0], p.names[1])
		if err := p.post(ctx, p.body); err != nil {
			return err
		}
		p.next.Store(e.Seq + 1)
	}
	p.next.Store(b.next)
	return nil
}

// sendMany sends as many messages together as there are, up to about batchBytes.
func (p *poster) sendMany(ctx context.Context, b batch) error {
	for _, e := range b.lines {
		p.body = message(p.body, e, p.names[0], p.names[1])
	}
	b.release()
	if b.more && len(p.body) < batchBytes {
		return nil
	}
	if err := p.post(ctx, p.body); err != nil {
		return err
	}
	p.body = p.body[:0]
	p.next.Store(b.next)
	return nil
}

// post sends one body. A refusal by the receiver is final: sending it again would
// change nothing, and the next lines would wait forever.
func (p *poster) post(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("cannot create a request: %w", err)
	}
	req.Header.Set("Content-Type", "text/plain")
	if p.user != nil {
		password, _ := p.user.Password()
		req.SetBasicAuth(p.user.Username(), password)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return withoutURL(err)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer)) // so that the connection can be reused
	_ = resp.Body.Close()
	switch code := resp.StatusCode; {
	case code < http.StatusMultipleChoices:
		return nil
	case code == http.StatusRequestTimeout, code == http.StatusTooManyRequests, code >= http.StatusInternalServerError, code < http.StatusBadRequest:
		return fmt.Errorf("the receiver answered %s", resp.Status)
	}
	refused := uint64(bytes.Count(body, []byte{'\n'}))
	var first bool
	p.f.count(func(st *Stats) {
		first = st.Refused == 0
		st.Refused += refused
	})
	if first {
		p.f.d.c.Logger.Warn("the receiver of a log drain refuses lines", "app", p.f.target.App, "drain", p.f.target.Name, "status", resp.Status)
	}
	return nil
}

// withoutURL removes the URL from a client's error, because it can contain a key.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
