package route

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// portRetry is the time until a port that cannot be opened is tried again. Another
	// program uses it, and may exit.
	portRetry = 5 * time.Second
	// maxTCPConns limits the connections over TCP routes.
	maxTCPConns = 4096
	// acceptPause is the pause after a failed accept: usually there are too many open
	// files.
	acceptPause = 100 * time.Millisecond
	// halfCloseTimeout is how long a client can continue after the instance has closed its
	// side.
	halfCloseTimeout = 5 * time.Minute
)

// ListenFunc opens a port, on one or several addresses.
type ListenFunc func(port int) ([]net.Listener, error)

// ServeTCP opens the port of every TCP route and distributes its connections to the
// instances, until ctx is cancelled. It retries ports that cannot be opened.
func (r *Router) ServeTCP(ctx context.Context, listen ListenFunc) error {
	d := &tcpListeners{router: r, listen: listen, open: map[int][]net.Listener{}, free: make(chan struct{}, maxTCPConns)}
	defer d.workers.Wait()
	defer d.leave()
	for {
		var again <-chan time.Time
		if d.update(ctx) {
			again = time.After(portRetry)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.ports:
		case <-again:
		}
	}
}

// PortError returns the reason why the port of a TCP route is not open. It is empty if
// the port is open or the route has no destinations.
func (r *Router) PortError(port int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.failedPorts[port]; err != nil {
		return err.Error()
	}
	return ""
}

// tcpListeners are the listeners of the open ports.
type tcpListeners struct {
	router  *Router
	listen  ListenFunc
	open    map[int][]net.Listener
	free    chan struct{}  // capacity: the maximum number of connections
	workers sync.WaitGroup // all goroutines
}

// update opens and closes ports according to the table, and reports whether one could
// not be opened.
func (d *tcpListeners) update(ctx context.Context) (again bool) {
	wanted := d.router.table.Load().ports
	for port := range d.open {
		if wanted[port] == nil {
			d.close(port)
		}
	}
	for port, e := range wanted {
		if d.open[port] != nil {
			continue
		}
		ls, err := d.listen(port)
		d.router.recordPort(port, e, err)
		if err != nil {
			again = true
			continue
		}
		d.open[port] = ls
		for _, l := range ls {
			d.workers.Go(func() { d.accept(ctx, port, l) })
		}
	}
	d.router.removePorts(wanted)
	return again
}

// recordPort stores why a port could not be opened, and logs it once.
func (r *Router) recordPort(port int, e *entry, err error) {
	r.mu.Lock()
	old := r.failedPorts[port]
	if err == nil {
		delete(r.failedPorts, port)
		r.openPorts[port] = true
	} else {
		r.failedPorts[port] = err
	}
	r.mu.Unlock()
	switch {
	case err != nil && old == nil:
		r.log.Warn("cannot open the port of a route, trying again", "route", e.route, "port", port, "err", err)
		for _, dest := range e.destinations {
			r.lines.put(&access{app: dest.App, note: "cannot open the port of route " + e.host + ": " + err.Error() + "; dewd keeps trying"})
		}
	case err == nil && old != nil:
		r.log.Info("the port of a route is open now", "route", e.route, "port", port)
	}
}

// removePorts drops the data of ports without a route.
func (r *Router) removePorts(wanted map[int]*entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for port := range r.failedPorts {
		if wanted[port] == nil {
			delete(r.failedPorts, port)
		}
	}
}

func (d *tcpListeners) close(port int) {
	d.router.mu.Lock()
	delete(d.router.openPorts, port)
	d.router.mu.Unlock()
	for _, l := range d.open[port] {
		l.Close()
	}
	delete(d.open, port)
}

// leave closes all ports.
func (d *tcpListeners) leave() {
	for port := range d.open {
		d.close(port)
	}
}

// accept accepts the connections of a port until its listener is closed.
func (d *tcpListeners) accept(ctx context.Context, port int, l net.Listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			d.router.log.Warn("cannot accept a connection", "port", port, "err", err)
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
				return
			}
			continue
		}
		select {
		case d.free <- struct{}{}:
		default:
			d.router.failed.Add(1)
			c.Close() // too many connections
			continue
		}
		d.workers.Go(func() {
			defer func() { <-d.free }()
			d.router.serveConn(ctx, port, c)
		})
	}
}

// serveConn connects a client to an instance, and returns when the connection is
// closed.
func (r *Router) serveConn(ctx context.Context, port int, client net.Conn) {
	r.requests.Add(1)
	defer client.Close()
	e := r.table.Load().ports[port]
	if e == nil {
		return
	}
	instance := r.connectTCP(ctx, e)
	if instance == nil {
		r.failed.Add(1)
		return
	}
	defer instance.endpoint.release()
	instance.endpoint.exchanges.Add(1)
	defer instance.endpoint.exchanges.Add(-1)
	defer func() { _ = instance.Close() }() // everything was copied, or a side failed
	hangUp := func() { client.Close() }
	instance.dropped.Store(&hangUp)
	stop := context.AfterFunc(ctx, instance.drop)
	defer stop()
	copyBothWays(client, instance)
}

// connectTCP connects to the next instance that accepts the connection. It returns nil
// if none does.
func (r *Router) connectTCP(ctx context.Context, e *entry) *instanceConn {
	var tried []*endpoint
	for len(tried) < maxAttempts {
		t, ok := e.pick(tried)
		if !ok {
			break
		}
		tried = append(tried, t.endpoint)
		c, err := t.endpoint.connect(ctx, "tcp", t.address())
		if err == nil {
			return c
		}
		if len(tried) > 1 {
			r.retries.Add(1)
		}
		r.log.Debug("instance does not accept the connection", "app", t.endpoint.process.app, "instance", t.endpoint.instance, "err", err)
		r.logUnreachable(ctx, t, err)
	}
	return nil
}

// copyBothWays copies both ways. When one side closes its direction, the other side
// gets that and can continue. When something fails, both are closed.
func copyBothWays(client net.Conn, instance *instanceConn) {
	var there sync.WaitGroup
	there.Go(func() {
		// The bare connection, so that the kernel can copy.
		if _, err := io.Copy(instance.Conn, client); err != nil || instance.CloseWrite() != nil {
			instance.drop()
		}
	})
	_, err := io.Copy(client, instance.Conn)
	if err == nil {
		err = errors.Join(closeWrite(client), client.SetReadDeadline(time.Now().Add(halfCloseTimeout)))
	}
	if err != nil {
		instance.drop()
	}
	instance.finish()
	there.Wait()
}
