//go:build integration

package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/mail"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dewrun/dew/testkit"
)

// originalEnvironment returns the variables with which the original service is deployed,
// and no others.
func originalEnvironment(f *remotePlatform, smtp, port string) []string {
	host, smtpPort, _ := net.SplitHostPort(smtp)
	return []string{
		"PATH=" + os.Getenv("PATH"), "PORT=" + port, "CC_HOST=" + f.base, "UAA_HOST=" + f.base + "/uaa",
		"UAA_CLIENT_ID=notifications", "UAA_CLIENT_SECRET=notifications-secret", "CORS_ORIGIN=*", "DOMAIN=example.com", "ENCRYPTION_KEY=key",
		"SENDER=no-reply@example.com", "SMTP_HOST=" + host, "SMTP_PORT=" + smtpPort, "SMTP_AUTH_MECHANISM=plain", "SMTP_USER=", "SMTP_PASS=",
		"SMTP_TLS=false", "SMTP_LOGGING_ENABLED=true", "VERIFY_SSL=true", "TEST_MODE=false", "DATABASE_URL=tcp://user:password@127.0.0.1:3306/notifications",
		"DB_MAX_OPEN_CONNS=5", "DB_LOGGING_ENABLED=false", "ROOT_PATH=/home/vcap/app", "GOBBLE_WAIT_MAX_DURATION=5000", "DEFAULT_UAA_SCOPES=openid,uaa.user",
	}
}

// startOriginal runs dewd notify with no flags, only with the variables of the original
// service. A mount namespace hides the default root of this machine.
func startOriginal(t *testing.T, f *remotePlatform, smtp string) (base string) {
	t.Helper()
	listen := freeAddress(t)
	_, port, _ := net.SplitHostPort(listen)
	var said bytes.Buffer
	cmd := exec.Command("unshare", "--mount", "sh", "-c", `mount -t tmpfs none /var/lib && exec "$0" notify`, filepath.Join(programs, "dewd"))
	cmd.Env = originalEnvironment(f, smtp, port)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	base = "http://127.0.0.1:" + port
	err := testkit.Until(func() error {
		resp, err := http.Get(base + "/info")
		if err != nil {
			return err
		}
		return errors.Join(resp.Body.Close(), func() error {
			if resp.StatusCode != http.StatusOK {
				return errors.New(resp.Status)
			}
			return nil
		}())
	})
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("dewd notify: %s", &said)
		}
	})
	if err != nil {
		t.Fatalf("the service does not answer: %v", err)
	}
	return base
}

// The document of the service as a script, from the client to the mail, against the
// service in dewd and against dewd notify with the variables of the original service.
func TestNotifyDocument(t *testing.T) {
	runParallel(t)
	f, smtpServer := newRemotePlatform(t), newMailServer(t)
	f.user("ann")
	f.client("notifications", "cloud_controller.admin", "scim.read")
	run := func(base, client string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", filepath.Join("testdata", "notify", "document.sh"))
		cmd.Env = append(os.Environ(), "base_url="+base, "auth_url="+f.base+"/uaa", "client_id="+client, "secret=s3cret", "kind_id=weather", "admin_token="+f.token)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", base, err, out)
		}
	}

	run(startOriginal(t, f, smtpServer.address), "remote-client")
	const subject = "Maintenance: Urgent"
	for _, to := range []string{"ann@example.com", "admin@dew.localhost"} {
		arrives(t, &notifyService{n: &notifier{}}, smtpServer, to, subject)
	}
	smtpServer.mu.Lock()
	mails := slices.Clone(smtpServer.mails["ann@example.com"])
	smtpServer.mu.Unlock()
	if len(mails) != 1 {
		t.Fatalf("mails = %d, want 1", len(mails))
	}
	checkDocumentMail(t, mails[0])

	run(f.base+"/notify", "local-client")
	wait := string(f.send(http.StatusOK, "GET", "/dew/v1/inbox/wait?to=ann@example.com&subject=Urgent&timeout=1m", ""))
	if !strings.Contains(wait, subject) || !strings.Contains(wait, "The site has gone down. This is the plain text") {
		t.Errorf("the inbox of dewd has no such mail: %s", wait)
	}
}

func checkDocumentMail(t *testing.T, m *mail.Message) {
	t.Helper()
	body, err := io.ReadAll(m.Body)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(body), "=\r\n", "") // soft line breaks
	for _, want := range []string{"The site has gone down. This is the plain text", "<h1>A header</h1>"} {
		if !strings.Contains(text, want) {
			t.Errorf("the mail does not have %q: %s", want, text)
		}
	}
	for header, want := range map[string]string{
		"Subject": "Maintenance: Urgent", "Reply-To": "help@example.com", "From": "<no-reply@example.com>", "X-CF-Client-ID": "remote-client",
		"List-Unsubscribe": "", // it is critical
	} {
		if got := m.Header.Get(header); got != want {
			t.Errorf("%s = %q, want %q", header, got, want)
		}
	}
	if !strings.HasPrefix(m.Header.Get("Content-Type"), "multipart/alternative") {
		t.Errorf("content type = %q, want text and HTML", m.Header.Get("Content-Type"))
	}
}
