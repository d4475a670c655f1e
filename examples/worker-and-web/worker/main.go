// Command worker is a process without requests. Every few seconds it gets the time from
// the clock sidecar over a UNIX socket and logs its work.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	every      = 2 * time.Second
	askTimeout = time.Second
	maxAnswer  = 1 << 10 // in bytes
)

func main() {
	log.SetOutput(os.Stdout)
	log.SetFlags(0) // the platform adds the time to every line
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	c := newClock(filepath.Join(os.TempDir(), "clock.sock"))
	work(ctx, func() {
		now, err := c.ask(ctx)
		if err != nil {
			log.Printf("no work: %v", err) // the next round can succeed
			return
		}
		log.Printf("worked at %s", now)
	})
}

// work calls do at once and then repeatedly, until ctx is done.
func work(ctx context.Context, do func()) {
	t := time.NewTicker(every)
	defer t.Stop()
	for ctx.Err() == nil {
		do()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
}

// clock is a client of the sidecar.
type clock struct{ client *http.Client }

func newClock(socket string) clock {
	return clock{&http.Client{Timeout: askTimeout, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}}
}

func (c clock) ask(ctx context.Context) (string, error) {
	// The socket is the address. The name is only there because a URL needs one.
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://clock/time", http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return "", fmt.Errorf("the clock does not answer: %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return "", fmt.Errorf("the clock broke off: %w", err)
	case resp.StatusCode != http.StatusOK:
		return "", errors.New("the clock answered " + resp.Status)
	}
	return strings.TrimSpace(string(b)), nil
}
