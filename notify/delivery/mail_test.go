package delivery

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"strings"
	"testing"
)

func write(t testing.TB, m Mail) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := m.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestMailHeaders(t *testing.T) {
	m := sampleMail(1)
	m.Subject, m.ReplyTo = "Grüße an alle", "Support <help@example.com>"
	got := readMail(t, write(t, m)).Header
	for name, want := range map[string]string{
		"From":                               `"Dew" <no-reply@dew.localhost>`,
		"To":                                 "<user-1@example.com>",
		"Reply-To":                           `"Support" <help@example.com>`,
		"Message-Id":                         "<id-1@dew.localhost>",
		"Date":                               "Fri, 02 Jan 2026 03:04:06 +0000",
		"Mime-Version":                       "1.0",
		"X-CF-Client-ID":                     "mailer",
		"X-CF-Notification-ID":               "id-1",
		"X-CF-Notification-Timestamp":        "2026-01-02T03:04:06Z",
		"X-CF-Notification-Request-Received": "2026-01-02T03:04:05.000000006Z",
	} {
		if got.Get(name) != want {
			t.Errorf("%s = %q, want %q", name, got.Get(name), want)
		}
	}
	if !strings.HasPrefix(got.Get("Subject"), "=?UTF-8?") {
		t.Errorf("Subject = %q, want it encoded", got.Get("Subject"))
	}
	if s, err := new(mime.WordDecoder).DecodeHeader(got.Get("Subject")); err != nil || s != m.Subject {
		t.Errorf("Subject = %q, %v; want %q", s, err, m.Subject)
	}
}

// Text and HTML are alternatives, in this order. A single one is the whole body.
func TestMailParts(t *testing.T) {
	long := strings.Repeat("ein längerer Text ", 20)
	for _, tt := range []struct {
		name       string
		text, html string
		want       []string
	}{
		{"both", long, "<p>Grüße</p>", []string{"text/plain", "text/html"}},
		{"text", long, "", []string{"text/plain"}},
		{"html", "", "<p>Grüße</p>", []string{"text/html"}},
		{"lines that look like an end", "a\n.\nQUIT\n..b", "", []string{"text/plain"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := sampleMail(1)
			m.Text, m.HTML = tt.text, tt.html
			raw := write(t, m)
			for _, line := range bytes.Split(raw, []byte("\r\n")) {
				if len(line) > 78 {
					t.Errorf("a line has %d bytes: %s", len(line), line)
				}
			}
			got := parts(t, readMail(t, raw))
			if len(got) != len(tt.want) {
				t.Fatalf("parts = %v, want %v", got, tt.want)
			}
			for i, want := range tt.want {
				body := tt.text
				if want == "text/html" {
					body = tt.html
				}
				if got[i].media != want || got[i].charset != "UTF-8" || got[i].body != body {
					t.Errorf("part %d = %+v, want %s %q", i, got[i], want, body)
				}
			}
		})
	}
}

type mailPart struct{ media, charset, body string }

func parts(t testing.TB, m *mail.Message) (all []mailPart) {
	t.Helper()
	media, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	read := func(r io.Reader) string {
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(string(b), "\r\n", "\n")
	}
	if media != "multipart/alternative" {
		if enc := m.Header.Get("Content-Transfer-Encoding"); enc != "quoted-printable" {
			t.Errorf("encoding = %q", enc)
		}
		return []mailPart{{media, params["charset"], strings.TrimSuffix(read(quotedprintable.NewReader(m.Body)), "\n")}}
	}
	for r := multipart.NewReader(m.Body, params["boundary"]); ; {
		p, err := r.NextPart() // decodes quoted-printable
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		kind, ps, err := mime.ParseMediaType(p.Header.Get("Content-Type"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, mailPart{kind, ps["charset"], read(p)})
	}
}

// hostile are texts that try to inject headers.
var hostile = []string{
	"x\r\nBcc: thief@example.com", "x\nBcc: thief@example.com\n\nbody", "x\rBcc: thief@example.com", "\x00\x1b[31m",
	"a@example.com\r\nBcc: thief@example.com", "<a@example.com>, <thief@example.com>", "a@example.com>\r\nRCPT TO:<thief@example.com",
	"\"a\r\nBcc: thief@example.com\" <a@example.com>", "=?UTF-8?q?a=0D=0ABcc:_thief@example.com?= <a@example.com>",
}

func TestMailHeaderInjection(t *testing.T) {
	for _, evil := range hostile {
		m := sampleMail(1)
		m.Subject, m.ReplyTo, m.Client = evil, evil, evil
		checkHarmless(t, m)
		m = sampleMail(1)
		m.To = evil
		if to, err := Address(evil); err == nil && to == "a@example.com" {
			checkHarmless(t, m)
		} else if _, err := m.Encode(); err == nil {
			t.Errorf("a mail to %q was made", evil)
		}
	}
}

// checkHarmless looks for injected headers and recipients.
func checkHarmless(t testing.TB, m Mail) {
	t.Helper()
	msg, err := m.Encode()
	if err != nil {
		return // refused
	}
	to, err := msg.GetRecipients()
	if err != nil || len(to) != 1 || strings.ContainsAny(to[0], "\r\n") {
		t.Errorf("recipients = %q, %v; want one", to, err)
	}
	h := readMail(t, write(t, m)).Header
	known := map[string]bool{
		"From": true, "To": true, "Reply-To": true, "Subject": true, "Date": true, "Message-Id": true, "Mime-Version": true,
		"Content-Type": true, "Content-Transfer-Encoding": true, "X-Cf-Client-Id": true, "X-Cf-Notification-Id": true,
		"X-Cf-Notification-Timestamp": true, "X-Cf-Notification-Request-Received": true,
	}
	for name := range h {
		if !known[name] {
			t.Errorf("header %s came from %+v", name, m)
		}
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(h.Get("Subject"))
	if err != nil || strings.ContainsAny(subject, "\r\n\x00") {
		t.Errorf("subject = %q, %v", subject, err)
	}
}

func FuzzMail(f *testing.F) {
	for _, evil := range hostile {
		f.Add(evil, "a@example.com", evil, "text", "<p>html")
	}
	f.Add("Hello", "b@example.com", "", "", "")
	f.Fuzz(func(t *testing.T, subject, to, reply, text, html string) {
		m := sampleMail(1)
		m.Subject, m.To, m.ReplyTo, m.Text, m.HTML = subject, to, reply, text, html
		checkHarmless(t, m)
	})
}

// A subject arrives exactly as it was written.
func TestMailSubjects(t *testing.T) {
	for _, want := range []string{"", "plain", "Grüße", "=?UTF-8?q?looks_encoded?=", "=?UTF-8?b?" + strings.Repeat("ä", 200), strings.Repeat("long ", 100) + "end", "日本語"} {
		m := sampleMail(1)
		m.Subject = want
		got, err := new(mime.WordDecoder).DecodeHeader(readMail(t, write(t, m)).Header.Get("Subject"))
		if err != nil || got != want {
			t.Errorf("subject = %q, %v; want %q", got, err, want)
		}
	}
}

// The link to unsubscribe is in one line, however long it is, with the header for one
// click.
func TestMailUnsubscribe(t *testing.T) {
	m := sampleMail(1)
	for _, link := range []string{"", "https://example.com/notify/unsubscribe/" + strings.Repeat("a", 850)} {
		m.Unsubscribe = link
		var raw bytes.Buffer
		if _, err := m.WriteTo(&raw); err != nil {
			t.Fatal(err)
		}
		h := readMail(t, raw.Bytes()).Header
		want, click := "", ""
		if link != "" {
			want, click = "<"+link+">", "List-Unsubscribe=One-Click"
		}
		if h.Get("List-Unsubscribe") != want || h.Get("List-Unsubscribe-Post") != click {
			t.Errorf("headers = %q, %q, want %q", h.Get("List-Unsubscribe"), h.Get("List-Unsubscribe-Post"), want)
		}
		for line := range bytes.Lines(raw.Bytes()) {
			if len(line) > 1000 {
				t.Errorf("a line has %d bytes", len(line))
			}
		}
	}
}
