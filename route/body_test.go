package route

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/dewrun/dew/inbound"
)

func TestBodyIsLentOnce(t *testing.T) {
	b := newBody(strings.NewReader("all of it"), nil, inbound.MinimumRate)
	first, err := b.lend()
	if err != nil {
		t.Fatal(err)
	}
	second, err := b.lend()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Read(make([]byte, 1)); !errors.Is(err, errAttemptOver) {
		t.Errorf("the first attempt read after the second had begun: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if got, err := io.ReadAll(second); err != nil || string(got) != "all of it" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := b.lend(); !errors.Is(err, errBodySent) {
		t.Errorf("a body that was read was lent again: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if _, err := second.Read(make([]byte, 1)); !errors.Is(err, errAttemptOver) {
		t.Errorf("read after close: %v", err)
	}
	if b.count() != 9 || b.broken() {
		t.Errorf("count %d, broken %v", b.count(), b.broken())
	}
}

// A body that was read to its end stays at its end. The server closes it when the
// response starts, and a transport can read once more after that.
func TestBodyStaysEnded(t *testing.T) {
	b := newBody(&closedBehind{text: "all of it"}, nil, inbound.MinimumRate)
	lent, err := b.lend()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(lent); err != nil || string(got) != "all of it" {
		t.Errorf("%q, %v", got, err)
	}
	if n, err := lent.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("asked once more: %d, %v, want the end", n, err)
	}
	if b.broken() {
		t.Error("the client is said to have broken off")
	}
}

// closedBehind returns the end together with its text, as the server does for a body of
// known length. It is closed from then on.
type closedBehind struct{ text string }

func (c *closedBehind) Read(p []byte) (int, error) {
	if c.text == "" {
		return 0, http.ErrBodyReadAfterClose
	}
	n := copy(p, c.text)
	if c.text = c.text[n:]; c.text == "" {
		return n, io.EOF
	}
	return n, nil
}
