package smoke

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
)

// Neither the stored environment nor any text contains a secret.
func TestMask(t *testing.T) {
	e := v3.Env{
		Environment: map[string]string{"DB_PASSWORD": "s3cret-pw", "API_KEY": "key-0123", "MONKEY": "see", "PORT": "8080", "URL": "http://me:inline-pw@host/x", "Github_Token": "tok-999999"},
		Running:     map[string]string{"PROXY_AUTH": "proxy-pw"},
		System: map[string]any{"VCAP_SERVICES": map[string]any{"postgres": []any{map[string]any{
			"name": "db", "credentials": map[string]any{"uri": "postgres://u:uri-pw-1@10.0.0.1/x", "password": "cred-pw-2", "hostname": "10.0.0.1", "port": json.Number("5432"), "nested": []any{"deep-pw"}},
		}}}},
		Application: map[string]any{"VCAP_APPLICATION": map[string]any{"name": "shop"}},
	}
	var m masker
	b, err := json.Marshal(m.env(e))
	if err != nil {
		t.Fatal(err)
	}
	text := string(b) + m.text("the app says s3cret-pw, key-0123, cred-pw-2 and amqp://a:other-pw@b on 10.0.0.1 with uri-pw-1")
	for _, secret := range []string{"s3cret-pw", "key-0123", "inline-pw", "tok-999999", "proxy-pw", "uri-pw-1", "cred-pw-2", "deep-pw", "5432", "other-pw"} {
		if strings.Contains(text, secret) {
			t.Errorf("%s is told: %s", secret, text)
		}
	}
	for _, plain := range []string{`"MONKEY":"see"`, `"PORT":"8080"`, `"name":"db"`, `"name":"shop"`, "on 10.0.0.1 with", "http://me:***@host/x"} {
		if !strings.Contains(text, plain) {
			t.Errorf("%s is hidden: %s", plain, text)
		}
	}
}
