package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/dewrun/dew/cli/console"
)

// forward is one -L.
type forward struct {
	listen  string
	network string // tcp or unix
	target  string
}

// parseForward reads [ADDRESS:]PORT:HOST:PORT or [ADDRESS:]PORT:PATH.
func parseForward(text string) (forward, error) {
	const form = "must be [ADDRESS:]PORT:HOST:PORT or [ADDRESS:]PORT:/PATH"
	parts, err := fields(text)
	if err != nil {
		return forward{}, err
	}
	f := forward{network: "tcp"}
	switch last := parts[len(parts)-1]; {
	case strings.HasPrefix(last, "/") && len(last) > 1 && (len(parts) == 2 || len(parts) == 3):
		f.network, f.target = "unix", last
		parts = parts[:len(parts)-1]
	case len(parts) == 3 || len(parts) == 4:
		host := parts[len(parts)-2]
		if host == "" || !isPort(last, 1) {
			return f, errors.New(form)
		}
		f.target = net.JoinHostPort(host, last)
		parts = parts[:len(parts)-2]
	default:
		return f, errors.New(form)
	}
	bind, port := "localhost", parts[len(parts)-1]
	if len(parts) == 2 {
		bind = parts[0]
	}
	if !isPort(port, 0) {
		return f, errors.New(form)
	}
	f.listen = net.JoinHostPort(bind, port)
	return f, nil
}

// fields splits text at colons outside of brackets.
func fields(text string) ([]string, error) {
	var out []string
	for {
		if rest, ok := strings.CutPrefix(text, "["); ok {
			address, after, closed := strings.Cut(rest, "]")
			if !closed || address == "" || after != "" && after[0] != ':' {
				return nil, errors.New("must have an IPv6 address in the brackets")
			}
			out = append(out, address)
			if after == "" {
				return out, nil
			}
			text = after[1:]
			continue
		}
		field, rest, more := strings.Cut(text, ":")
		if strings.HasPrefix(field, "/") { // a path can contain colons
			return append(out, text), nil
		}
		out = append(out, field)
		if !more {
			return out, nil
		}
		text = rest
	}
}

func isPort(s string, least uint64) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n >= least
}

// forwardAll listens for every forward and prints the address.
func forwardAll(ctx context.Context, conn *ssh.Client, specs []forward, out *console.Console) (closing func(), err error) {
	var listeners []net.Listener
	closing = func() {
		for _, l := range listeners {
			_ = l.Close()
		}
	}
	for _, f := range specs {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
		if err != nil {
			closing()
			return nil, fmt.Errorf("cannot forward from %s: %w", f.listen, err)
		}
		listeners = append(listeners, l)
		fmt.Fprintf(out.Err, "Forwarding %s to %s\n", l.Addr(), f.target)
		go serveForward(l, conn, f, out)
	}
	return closing, nil
}

func serveForward(l net.Listener, conn *ssh.Client, f forward, out *console.Console) {
	for {
		here, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer here.Close()
			there, err := conn.Dial(f.network, f.target)
			if err != nil {
				out.Warn(fmt.Sprintf("cannot forward to %s: %v", f.target, Refusal(err)))
				return
			}
			defer there.Close()
			pipe(here, there)
		}()
	}
}

// pipe copies in both directions. If one direction stops, the other one continues.
func pipe(a, b net.Conn) {
	var ways sync.WaitGroup
	carry := func(dst, src net.Conn) {
		_, err := io.Copy(dst, src)
		half, ok := dst.(interface{ CloseWrite() error })
		if err != nil || !ok || half.CloseWrite() != nil {
			_ = dst.Close()
		}
	}
	ways.Go(func() { carry(a, b) })
	ways.Go(func() { carry(b, a) })
	ways.Wait()
}
