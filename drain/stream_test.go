package drain

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/testkit"
)

// After a reset, data that only the receiver's kernel received does not count, even if
// a write notices the reset before a read.
func TestStreamReset(t *testing.T) {
	l := testkit.Listen(t)
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	raw := &countingConn{TCPConn: conn.(*net.TCPConn)}
	s := &stream{raw: raw, conn: raw, rest: time.Hour, down: make(chan struct{}), received: 1, confirmed: 1}
	b := batch{lines: []logstream.Envelope{{Source: logstream.Source{Type: "APP"}, Text: []byte(strings.Repeat("x", 1000))}}, next: 2, release: func() {}}
	if err := s.send(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyTrue(t, "the other kernel has it", func() bool { return s.has(false) == 1 && s.received == 2 })
	if err := peer.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	peer.Close() // unread data is lost
	b.next = 3
	testkit.EventuallyTrue(t, "writing notices", func() bool { return s.send(t.Context(), b) != nil })
	time.AfterFunc(20*time.Millisecond, s.listen) // the read starts only now
	if got := s.has(true); got != 1 {
		t.Errorf("it has all before %d", got)
	}
	if err := s.err(); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("it ended with %v", err)
	}
	s.close()
}
