package smtp

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dewrun/dew/testkit"
)

// answerWith starts a server that sends all replies at once, to the first connection, and
// then reads until the client leaves.
func answerWith(t testing.TB, replies []byte) (address string) {
	t.Helper()
	l := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := conn.Write(replies); err != nil {
			return
		}
		_ = conn.(*net.TCPConn).CloseWrite()
		for r := bufio.NewReader(conn); err == nil; {
			_, err = r.Discard(1)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

// wantClean sends a mail to a server with these replies and checks the error.
func wantClean(t testing.TB, replies []byte, auth AuthUse) error {
	t.Helper()
	c := Config{Address: answerWith(t, replies), TLS: TLSNone, Auth: auth, User: "u", Password: "p"}
	limit := 5 * time.Second
	c.Timeouts = Timeouts{Connect: limit, Command: limit, Data: limit, Block: limit, Accept: limit}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Send(t.Context(), sampleMail(1))
	if cerr := s.Close(); cerr != nil {
		t.Error(cerr)
	}
	if err == nil {
		return nil
	}
	if text := err.Error(); !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		t.Errorf("the error %q has control characters", text)
	}
	return err
}

const evil = "\x1b[31mred\x07\x00\u202e\xff"

// Replies cannot put control characters into messages of dewd, at any step.
func TestRepliesAreCleaned(t *testing.T) {
	t.Parallel()
	ehlo := "220 ok\r\n250-x\r\n250 AUTH PLAIN\r\n"
	for step, c := range map[string]struct {
		replies string
		auth    AuthUse
	}{
		"greeting":   {"554 " + evil + "\r\n", AuthNone},
		"two lines":  {"554-" + evil + "\r\n554 " + evil + "\r\n", AuthNone},
		"no reply":   {evil + "\r\n", AuthNone},
		"mechanisms": {"220 ok\r\n250-x\r\n250 AUTH " + evil + "\r\n", AuthPlain},
		"login":      {ehlo + "535 " + evil + "\r\n", AuthPlain},
		"recipient":  {ehlo + "250 ok\r\n550 " + evil + "\r\n250 ok\r\n", AuthNone},
	} {
		if err := wantClean(t, []byte(c.replies), c.auth); err == nil || !strings.Contains(err.Error(), "red") {
			t.Errorf("%s: error = %v, want one with the reply", step, err)
		}
	}
}

func FuzzReplies(f *testing.F) {
	for _, s := range []string{"", "554 " + evil + "\r\n", "220 ok\r\n250 ok\r\n250 ok\r\n550-a\tb\r\n550 " + evil + "\r\n", "220 ok\r\n250-x\r\n250 AUTH " + evil + "\r\n"} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, replies []byte, login bool) {
		auth := AuthNone
		if login {
			auth = AuthPlain
		}
		_ = wantClean(t, replies, auth) // whether the mail is accepted does not matter
	})
}
