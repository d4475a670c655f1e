package main

import (
	"bytes"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/notify/smtp"
)

// enough returns the minimum settings of the standalone service.
func enough() map[string]string {
	return map[string]string{
		"CC_HOST": "https://api.example.com", "UAA_HOST": "https://uaa.example.com/", "UAA_CLIENT_ID": "notifications", "UAA_CLIENT_SECRET": "s3cr3t",
		"DOMAIN": "example.com", "ENCRYPTION_KEY": "key", "SENDER": "no-reply@example.com",
		"SMTP_HOST": "mail.example.com", "SMTP_PORT": "587", "SMTP_AUTH_MECHANISM": "none",
	}
}

// readNotifyConfig reads settings as if the flags had been given.
func readNotifyConfig(env map[string]string, flags ...string) (*notifyConfig, error) {
	a := newNotifyConfig()
	err := a.readFrom(func(name string) string { return env[name] }, func(flag string) bool { return slices.Contains(flags, flag) })
	return a, err
}

func TestNotifySettings(t *testing.T) {
	a, err := readNotifyConfig(enough())
	if err != nil {
		t.Fatal(err)
	}
	if a.API != "https://api.example.com" || a.ClientID != "notifications" || a.Secret != "s3cr3t" || a.EncryptionKey != "key" || a.CORSOrigin != "*" ||
		a.KeysEvery != time.Minute || a.Unverified || a.TestMode || a.DefaultScopes != nil || a.Listen != "127.0.0.1:3000" || a.Domain != "example.com" {
		t.Errorf("settings = %+v", a)
	}
	if want := (mailing{SMTP: "mail.example.com:587", TLS: string(smtp.TLSIfOffered), Auth: "none", From: "no-reply@example.com", Original: true}); a.Mailing != want {
		t.Errorf("mailing = %+v, want %+v", a.Mailing, want)
	}
	if err := a.validate(); err != nil {
		t.Error(err)
	}

	env := enough()
	maps.Copy(env, map[string]string{
		"SMTP_AUTH_MECHANISM": "cram-md5", "SMTP_USER": "me", "SMTP_PASS": "no", "SMTP_CRAMMD5_SECRET": "yes", "SMTP_TLS": "false", "PORT": "8080",
		"CORS_ORIGIN": "https://example.com", "DEFAULT_UAA_SCOPES": "openid, uaa.user,", "UAA_KEY_REFRESH_INTREVAL": "5000", "VERIFY_SSL": "false",
		"DATABASE_URL": "mysql://x", "VCAP_APPLICATION": "{}",
	})
	a, err = readNotifyConfig(env)
	if err != nil {
		t.Fatal(err)
	}
	if a.Listen != "0.0.0.0:8080" || a.CORSOrigin != "https://example.com" || !slices.Equal(a.DefaultScopes, []string{"openid", "uaa.user"}) ||
		a.KeysEvery != 5*time.Second || !a.Unverified || !a.trust().InsecureSkipVerify || !slices.Equal(a.idle, []string{"DATABASE_URL"}) {
		t.Errorf("settings = %+v", a)
	}
	if want := (mailing{SMTP: "mail.example.com:587", TLS: "none", Auth: "cram-md5", User: "me", Password: "yes", From: "no-reply@example.com", Original: true, Unverified: true}); a.Mailing != want {
		t.Errorf("mailing = %+v, want %+v", a.Mailing, want)
	}
	if err := a.validate(); err != nil {
		t.Error(err)
	}
}

// Every missing or wrong variable is named. No secret is printed.
func TestNotifySettingsRefused(t *testing.T) {
	for name := range enough() {
		env := enough()
		delete(env, name)
		if _, err := readNotifyConfig(env); err == nil || !strings.Contains(err.Error(), name+" is missing") {
			t.Errorf("without %s: %v", name, err)
		}
	}
	for name, values := range map[string][]string{
		"CC_HOST": {"api.example.com", "ftp://x"}, "UAA_HOST": {"https://", "https://u:p@uaa.example.com"}, "SENDER": {"nobody"}, "SMTP_PORT": {"0", "smtp", "65536"},
		"SMTP_AUTH_MECHANISM": {"login"}, "SMTP_TLS": {"maybe"}, "PORT": {"-1", "http"}, "VERIFY_SSL": {"2"}, "TEST_MODE": {"on"},
		"UAA_KEY_REFRESH_INTREVAL": {"1", "1m", "99999999999"},
	} {
		for _, v := range values {
			env := enough()
			env[name] = v
			if _, err := readNotifyConfig(env); err == nil || !strings.Contains(err.Error(), name+": ") || strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("%s=%s: %v", name, v, err)
			}
		}
	}
}

// Settings with which the original service starts are accepted: authentication without
// encryption, and without a user.
func TestNotifySettingsOriginal(t *testing.T) {
	for _, more := range []map[string]string{
		{"SMTP_AUTH_MECHANISM": "plain"},
		{"SMTP_AUTH_MECHANISM": "cram-md5"},
		{"SMTP_AUTH_MECHANISM": "plain", "SMTP_TLS": "false", "SMTP_USER": "me", "SMTP_PASS": "yes"},
		{"SMTP_AUTH_MECHANISM": "plain", "SMTP_TLS": "false", "VERIFY_SSL": "false", "DB_LOGGING_ENABLED": "true", "GOBBLE_WAIT_MAX_DURATION": "1"},
	} {
		env := enough()
		maps.Copy(env, more)
		a, err := readNotifyConfig(env)
		if err == nil {
			err = a.validate()
		}
		if err == nil {
			_, err = a.Mailing.post(slog.New(slog.DiscardHandler))
		}
		if err != nil {
			t.Errorf("%v: %v", more, err)
		}
	}
	a := newNotifyConfig()
	a.Mailing = mailing{SMTP: "nowhere", Original: true, TLS: "none", Auth: "none"}
	if errs := a.Mailing.validate(); len(errs) != 1 || !strings.Contains(errs[0].Error(), "SMTP_HOST") || strings.Contains(errs[0].Error(), "--smtp") {
		t.Errorf("errors = %v, want the variables", errs)
	}
}

// A flag has precedence over its variable, which can then be missing or wrong. The test
// mode needs no mail server.
func TestNotifySettingsAndFlags(t *testing.T) {
	env := enough()
	for _, name := range []string{"DOMAIN", "SENDER", "SMTP_HOST", "SMTP_PORT", "SMTP_AUTH_MECHANISM"} {
		delete(env, name)
	}
	env["SMTP_TLS"], env["PORT"] = "maybe", "http"
	a, err := readNotifyConfig(env, "domain", "mail-from", "smtp", "listen")
	if err != nil {
		t.Fatal(err)
	}
	if a.Mailing != defaultMailing() || a.Listen != newNotifyConfig().Listen {
		t.Errorf("settings = %+v, want the flags alone", a)
	}
	env = enough()
	for _, name := range []string{"SMTP_HOST", "SMTP_PORT", "SMTP_AUTH_MECHANISM"} {
		delete(env, name)
	}
	env["TEST_MODE"] = "true"
	if a, err = readNotifyConfig(env); err != nil || !a.TestMode {
		t.Errorf("test mode: %v", err)
	}
}

// The command names the missing settings, and prints a help text.
func TestNotifyCommand(t *testing.T) {
	for name := range enough() {
		t.Setenv(name, "")
	}
	a := newApp(defaultConfig())
	a.Writer, a.ErrWriter = io.Discard, io.Discard
	err := a.Run([]string{"dewd", "notify", "--root", t.TempDir()})
	if statusOf(err) != statusUsage || !strings.Contains(err.Error(), "CC_HOST is missing") || !strings.Contains(err.Error(), "SMTP_HOST is missing") {
		t.Errorf("error = %v, status %d, want %d", err, statusOf(err), statusUsage)
	}
	var out bytes.Buffer
	a = newApp(defaultConfig())
	a.Writer = &out
	if err := a.Run([]string{"dewd", "notify", "--help"}); err != nil {
		t.Fatal(err)
	}
	for _, s := range newNotifyConfig().settings() {
		if !strings.Contains(out.String(), s.name) {
			t.Errorf("help does not tell of %s", s.name)
		}
	}
	// No server responds there. That is an error of the machine, and it names the
	// setting.
	for name, v := range enough() {
		t.Setenv(name, v)
	}
	t.Setenv("UAA_HOST", "http://127.0.0.1:1")
	err = newApp(defaultConfig()).Run([]string{"dewd", "notify", "--root", t.TempDir(), "--listen", "127.0.0.1:0"})
	if statusOf(err) != statusInfrastructure || !strings.Contains(err.Error(), "UAA_HOST: cannot get the token keys") {
		t.Errorf("error = %v, status %d, want %d", err, statusOf(err), statusInfrastructure)
	}
}
