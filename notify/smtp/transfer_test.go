package smtp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/testkit"
)

// scriptedServer answers every command with a function of the test. The function gets
// the command, or "." for the end of a mail; if it returns "", the connection is closed.
func scriptedServer(t *testing.T, answer func(command string) string) string {
	t.Helper()
	l := testkit.Listen(t)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serveScript(c, answer)
		}
	}()
	return l.Addr().String()
}

func serveScript(c net.Conn, answer func(string) string) {
	defer c.Close()
	say := func(s string) bool {
		if s == "" {
			return false
		}
		_, err := fmt.Fprintf(c, "%s\r\n", s)
		return err == nil
	}
	if !say("220 ready") {
		return
	}
	lines := bufio.NewScanner(c)
	for content := false; lines.Scan(); {
		line := lines.Text()
		if content && line != "." {
			continue
		}
		a := answer(line)
		content = line == "DATA" && strings.HasPrefix(a, "354")
		if !say(a) {
			return
		}
	}
}

// polite accepts everything.
func polite(command string) string {
	switch verb, _, _ := strings.Cut(command, " "); verb {
	case "DATA":
		return "354 go on"
	case "QUIT":
		return "221 bye"
	default:
		return "250 ok"
	}
}

// answering replaces one answer of a polite server.
func answering(prefix, answer string) func(string) string {
	return func(command string) string {
		if strings.HasPrefix(command, prefix) {
			return answer
		}
		return polite(command)
	}
}

func TestFinalAnswers(t *testing.T) {
	for _, tt := range []struct {
		name, prefix, answer string
		want                 error // nil: dewd tries again
		text                 string
	}{
		{"sender refused", "MAIL", "550 5.7.1 not you", nil, "answer to MAIL FROM: 550 5.7.1 not you"},
		{"login required", "MAIL", "530 5.7.0 log in first", nil, "530"},
		{"too large", "MAIL", "552 5.3.4 too large", delivery.ErrRefused, "552"},
		{"unknown recipient", "RCPT", "550 5.1.1 unknown", delivery.ErrRefused, "answer to RCPT TO: 550 5.1.1 unknown"},
		{"several lines", "RCPT", "550-first\r\n550 second", delivery.ErrRefused, "550 first second"},
		{"busy", "RCPT", "451 4.3.0 later", nil, "451"},
		{"data refused", "DATA", "554 5.5.1 no", delivery.ErrRefused, "554"},
		{"content refused", ".", "554 5.6.0 spam", delivery.ErrRefused, "answer to the end of the content: 554"},
		{"content postponed", ".", "452 4.3.1 full", nil, "452"},
		{"closed after the content", ".", "", delivery.ErrUnanswered, "no answer to the end of the content"},
		{"closed before the content", "DATA", "", nil, "no answer to DATA"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSMTP(t, Config{Address: scriptedServer(t, answering(tt.prefix, tt.answer))})
			err := s.Send(t.Context(), sampleMail(1))
			if err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Fatalf("Send = %v, want an error with %q", err, tt.text)
			}
			for _, one := range []error{delivery.ErrRefused, delivery.ErrUnanswered} {
				if errors.Is(err, one) != (one == tt.want) { //nolint:errorlint // the identity is meant
					t.Errorf("Send = %v: is %q = %t", err, one, errors.Is(err, one))
				}
			}
		})
	}
}

// A refused mail does not cost the connection.
func TestRefusalKeepsConnection(t *testing.T) {
	var greetings atomic.Int32
	refuse := answering("RCPT TO:<user-1@", "550 unknown")
	s := newSMTP(t, Config{Address: scriptedServer(t, func(command string) string {
		if strings.HasPrefix(command, "EHLO") {
			greetings.Add(1)
		}
		return refuse(command)
	})})
	for n := range 3 {
		if err := s.Send(t.Context(), sampleMail(n)); (err != nil) != (n == 1) {
			t.Errorf("mail %d: %v", n, err)
		}
	}
	if greetings.Load() != 1 {
		t.Errorf("connections = %d, want 1", greetings.Load())
	}
}

// handoverFunc is a Handover.
type handoverFunc func() error

func (f handoverFunc) BeforeData() error { return f() }

// The hand-over is announced after the recipient is accepted and before DATA.
func TestHandover(t *testing.T) {
	var commands []string
	asked := make(chan struct{}, 10)
	s := newSMTP(t, Config{Address: scriptedServer(t, func(command string) string {
		verb, _, _ := strings.Cut(command, " ")
		commands = append(commands, verb)
		asked <- struct{}{}
		return polite(command)
	})})
	m := sampleMail(1)
	m.Handover = handoverFunc(func() error {
		for range 3 { // EHLO, MAIL, RCPT
			<-asked
		}
		if got := strings.Join(commands, " "); got != "EHLO MAIL RCPT" {
			t.Errorf("commands before the hand-over = %s", got)
		}
		return nil
	})
	if err := s.Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	m.Handover = handoverFunc(func() error { return errors.New("disk full") })
	if err := s.Send(t.Context(), m); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("Send = %v, want the error of the hand-over", err)
	}
}

// Each step has its own limit: a slow answer to the end of a mail is awaited even if it
// takes longer than the other steps may.
func TestTimeoutsPerStep(t *testing.T) {
	release := make(chan struct{})
	slow := func(command string) string {
		if command == "." {
			<-release
		}
		return polite(command)
	}
	address := scriptedServer(t, slow)
	short := 50 * time.Millisecond
	patient := newSMTP(t, Config{Address: address, Timeouts: Timeouts{Command: time.Minute, Data: time.Minute, Block: time.Minute}})
	time.AfterFunc(4*short, func() { close(release) })
	if err := patient.Send(t.Context(), sampleMail(1)); err != nil {
		t.Errorf("Send = %v, want the slow answer", err)
	}
	never := scriptedServer(t, func(command string) string {
		if command == "." {
			select {}
		}
		return polite(command)
	})
	hasty := newSMTP(t, Config{Address: never, Timeouts: Timeouts{Accept: short}})
	if err := hasty.Send(t.Context(), sampleMail(1)); !errors.Is(err, delivery.ErrUnanswered) {
		t.Errorf("Send = %v, want ErrUnanswered", err)
	}
}

func TestDefaultTimeouts(t *testing.T) {
	got := Timeouts{Data: time.Second}.withDefaults()
	want := Timeouts{Connect: 15 * time.Second, Command: 5 * time.Minute, Data: time.Second, Block: 3 * time.Minute, Accept: 10 * time.Minute}
	if got != want {
		t.Errorf("timeouts = %+v, want %+v", got, want)
	}
}

// logLines collects the messages of a logger.
type logLines struct {
	slog.Handler
	lines chan string
}

func (l logLines) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	l.lines <- text
	return nil
}

// With AuthOptional, mails go out without authentication where it is not possible, as
// those of the original service do, and dewd warns about it once.
func TestAuthOptional(t *testing.T) {
	users := map[string]string{"dew": "secret"}
	for _, tt := range []struct {
		name   string
		server *mailServer
		client Config
		user   string
		warns  string
	}{
		{"not offered", &mailServer{}, Config{Auth: AuthPlain, User: "dew", Password: "secret"}, "", "does not support SMTP AUTH"},
		{"not offered, no TLS", &mailServer{}, Config{TLS: TLSNone, Auth: AuthCRAMMD5, User: "dew", Password: "secret"}, "", "does not support SMTP AUTH"},
		{"no user", &mailServer{users: users, open: true}, Config{Auth: AuthPlain}, "", "not set"},
		{"offered", &mailServer{users: users}, Config{Auth: AuthPlain, User: "dew", Password: "secret"}, "dew", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := tt.server.start(t)
			lines := make(chan string, 10)
			tt.client.Address, tt.client.AuthOptional = srv.Address, true
			tt.client.Logger = slog.New(logLines{slog.NewTextHandler(nil, nil), lines})
			s := newSMTP(t, tt.client)
			for n := range 2 {
				srv.closeConnections()
				if err := s.Send(t.Context(), sampleMail(n)); err != nil {
					t.Fatal(err)
				}
			}
			if got := srv.all(); len(got) != 2 || got[0].User != tt.user {
				t.Errorf("mails = %+v, want 2 of user %q", got, tt.user)
			}
			close(lines)
			var all []string
			for line := range lines {
				all = append(all, line)
			}
			if warned := strings.Join(all, "\n"); (tt.warns == "") == strings.Contains(warned, "without authentication") || strings.Count(warned, "without authentication") > 1 || !strings.Contains(warned, tt.warns) || strings.Contains(warned, "secret") {
				t.Errorf("log = %q, want one line with %q", all, tt.warns)
			}
		})
	}
}

// A password never goes over an unencrypted connection to another machine.
func TestAuthUnencrypted(t *testing.T) {
	s := newSMTP(t, Config{Address: "mail.example.com:25", TLS: TLSNone, Auth: AuthPlain, User: "u", Password: "p", AuthOptional: true})
	client, server := net.Pipe()
	defer client.Close()
	go serveScript(server, func(command string) string {
		if strings.HasPrefix(command, "EHLO") {
			return "250-hello\r\n250 AUTH PLAIN"
		}
		if strings.HasPrefix(command, "AUTH") {
			t.Errorf("the password was sent: %s", command)
		}
		return polite(command)
	})
	if err := s.greet(&connection{conn: client}); err != nil {
		t.Fatal(err)
	}
}
