// Command worker is a process that nobody talks to: every few seconds it asks the
// clock beside it over a UNIX socket and writes down what it did.
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
	maxAnswer  = 1 << 10 // bytes
)

func main() {
	log.SetOutput(os.Stdout)
	log.SetFlags(0) // the platform puts the time before every line
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	c := newClock(filepath.Join(os.TempDir(), "clock.sock"))
	work(ctx, func() {
		now, err := c.ask(ctx)
		if err != nil {
			log.Printf("no work: %v", err) // the next round may have more luck
			return
		}
		log.Printf("worked at %s", now)
	})
}

// work does something at once and then again and again, until ctx ends.
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

// clock is the sidecar, as this process sees it.
type clock struct{ client *http.Client }

func newClock(socket string) clock {
	return clock{&http.Client{Timeout: askTimeout, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}}
}

func (c clock) ask(ctx context.Context) (string, error) {
	// The socket is the address: the name is only there because a URL has one.
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
