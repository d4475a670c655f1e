//go:build integration

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/testkit"
)

// remotePlatform is a dewd that acts as the Cloud Foundry installation of another program.
type remotePlatform struct {
	t    testing.TB
	base string
	*notifyCaller
}

// newRemotePlatform starts the dewd of a cell, and logs in as its admin.
func newRemotePlatform(t *testing.T) *remotePlatform {
	t.Helper()
	listen := freeAddress(t)
	c := newCell(t, "--listen", listen)
	c.start()
	password, err := os.ReadFile(filepath.Join(c.root, "admin-password"))
	if err != nil {
		t.Fatal(err)
	}
	f := &remotePlatform{t: t, base: "http://" + listen}
	f.notifyCaller = userToken(t, f.base, "admin", strings.TrimSpace(string(password)))
	f.notifyCaller.base = f.base
	return f
}

// post creates a resource and returns the member of the response that identifies it.
func (f *remotePlatform) post(path, member string, body any) string {
	f.t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		f.t.Fatal(err)
	}
	var made map[string]any
	if err := json.Unmarshal(f.send(http.StatusCreated, "POST", path, string(raw)), &made); err != nil {
		f.t.Fatal(err)
	}
	name, _ := made[member].(string)
	return name
}

// send is do for a body with a content type.
func (f *remotePlatform) send(want int, method, path, body string) []byte {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), method, f.base+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+f.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		f.t.Fatal(err)
	}
	if resp.StatusCode != want {
		f.t.Fatalf("%s %s = %d %s, want %d", method, path, resp.StatusCode, b.Bytes(), want)
	}
	return b.Bytes()
}

// first returns the guid of the first resource of a list.
func (f *remotePlatform) first(path string) string {
	f.t.Helper()
	var list struct {
		Resources []struct {
			GUID string `json:"guid"`
		} `json:"resources"`
	}
	if err := json.Unmarshal(f.send(http.StatusOK, "GET", path, ""), &list); err != nil || len(list.Resources) == 0 {
		f.t.Fatalf("%s: nothing, %v", path, err)
	}
	return list.Resources[0].GUID
}

func (f *remotePlatform) user(name string) string {
	f.t.Helper()
	return f.post("/uaa/Users", "id", map[string]any{
		"userName": name, "password": name + "-password", "emails": []any{map[string]any{"value": name + "@example.com", "primary": true}},
	})
}

func (f *remotePlatform) role(kind, user, place, guid string) {
	f.t.Helper()
	to := func(guid string) any { return map[string]any{"data": map[string]string{"guid": guid}} }
	f.post("/v3/roles", "guid", map[string]any{"type": kind, "relationships": map[string]any{"user": to(user), place: to(guid)}})
}

func (f *remotePlatform) client(id string, authorities ...string) {
	f.t.Helper()
	f.post("/uaa/oauth/clients", "client_id", map[string]any{
		"client_id": id, "client_secret": id + "-secret", "authorized_grant_types": []string{"client_credentials"}, "authorities": authorities,
	})
}

// startStandalone runs dewd notify until the end of the test, and returns its URL.
func startStandalone(t *testing.T, f *remotePlatform, smtp string) (base string, cmd *exec.Cmd, said *bytes.Buffer) {
	t.Helper()
	listen := freeAddress(t)
	host, port, _ := strings.Cut(smtp, ":")
	cmd = exec.Command(filepath.Join(programs, "dewd"), "notify", "--listen", listen, "--root", filepath.Join(t.TempDir(), "notify"))
	cmd.Env = append(os.Environ(), "CC_HOST="+f.base, "UAA_HOST="+f.base+"/uaa", "UAA_CLIENT_ID=notifications", "UAA_CLIENT_SECRET=notifications-secret",
		"DOMAIN=example.com", "ENCRYPTION_KEY=key", "SENDER=no-reply@example.com", "SMTP_HOST="+host, "SMTP_PORT="+port, "SMTP_AUTH_MECHANISM=none", "SMTP_TLS=false")
	said = &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	base = "http://" + listen
	err := testkit.Until(func() error {
		resp, err := http.Get(base + "/healthz")
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("the service does not answer: %v\n%s", err, said)
	}
	return base, cmd, said
}

// The standalone service, in its own process, uses another dewd as Cloud Foundry.
// Tokens, users, roles and scopes come from there, and mails arrive.
func TestNotifyStandalone(t *testing.T) {
	runParallel(t)
	f, smtpServer := newRemotePlatform(t), newMailServer(t)
	org := f.first("/v3/organizations?names=local")
	space := f.first("/v3/spaces?names=dev&organization_guids=" + org)
	ann, bob, cid := f.user("ann"), f.user("bob"), f.user("cid")
	f.role("organization_user", ann, "organization", org)
	f.role("space_developer", ann, "space", space)
	f.role("organization_manager", bob, "organization", org)
	f.send(http.StatusCreated, "POST", "/uaa/Groups", `{"displayName":"special.scope"}`)
	f.send(http.StatusCreated, "POST", "/uaa/Groups/special.scope/members", `{"value":"`+cid+`","type":"USER","origin":"uaa"}`)
	f.client("notifications", "cloud_controller.admin", "scim.read")
	f.client("mailer", "notifications.manage", "notifications.write", "emails.write")
	f.client("powerless", "uaa.none")

	base, cmd, said := startStandalone(t, f, smtpServer.address)
	c := clientToken(t, f.base, "mailer", "mailer-secret")
	c.base = base
	c.do(204, "PUT", "/notifications", `{"source_name":"Mailer","notifications":{"news":{"description":"News"}}}`)
	send := func(path, subject, role string, to ...string) {
		t.Helper()
		var queued []struct {
			ID string `json:"notification_id"`
		}
		body := `{"kind_id":"news","subject":"` + subject + `","text":"t","role":"` + role + `"}`
		if err := json.Unmarshal(c.do(200, "POST", path, body), &queued); err != nil || len(queued) != len(to) {
			t.Errorf("%s: %d queued, %v, want %d", path, len(queued), err, len(to))
		}
		for _, who := range to {
			arrives(t, &notifyService{n: &notifier{}}, smtpServer, who, subject)
		}
		for _, q := range queued {
			waitStatus(t, c, q.ID, string(delivery.Delivered))
		}
	}
	send("/users/"+bob, "to-one", "", "bob@example.com")
	send("/spaces/"+space, "to-space", "", "ann@example.com")
	send("/organizations/"+org, "to-managers", delivery.RoleManager, "bob@example.com")
	send("/uaa_scopes/special.scope", "to-scope", "", "cid@example.com")
	send("/everyone", "to-all", "", "ann@example.com", "bob@example.com", "cid@example.com", "admin@dew.localhost")
	c.do(404, "POST", "/spaces/nowhere", `{"kind_id":"news","text":"t"}`)

	weak := clientToken(t, f.base, "powerless", "powerless-secret")
	weak.base = base
	weak.do(403, "POST", "/everyone", `{"kind_id":"news","text":"t"}`)
	(&notifyCaller{t: t, base: base, token: c.token + "x"}).do(401, "POST", "/everyone", `{"kind_id":"news","text":"t"}`)
	me := userToken(t, f.base, "ann", "ann-password")
	me.base = base
	if got := me.do(200, "GET", "/user_preferences", ""); !strings.Contains(string(got), `"mailer"`) {
		t.Errorf("preferences = %s, want those of mailer", got)
	}

	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("left with %v, want status 0\n%s", err, said)
	}
	if s := said.String(); strings.Contains(s, "DATA RACE") || strings.Contains(s, "notifications-secret") {
		t.Errorf("it said:\n%s", s)
	}
}
