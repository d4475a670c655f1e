package main

import "testing"

// The service is found in a container and outside, even on another port.
func TestServiceURL(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		base string
	}{
		"default":      {nil, "http://api.dew.internal:8484/notify"},
		"another port": {map[string]string{"VCAP_APPLICATION": `{"cf_api":"http://127.0.0.1:40047"}`}, "http://api.dew.internal:40047/notify"},
		"no port":      {map[string]string{"VCAP_APPLICATION": `{"cf_api":"https://api.example.com"}`}, "http://api.dew.internal:8484/notify"},
		"elsewhere":    {map[string]string{"API_URL": "http://127.0.0.1:1/"}, "http://127.0.0.1:1/notify"},
		"of its own":   {map[string]string{"NOTIFY_URL": "http://127.0.0.1:2"}, "http://127.0.0.1:2"},
	} {
		t.Run(name, func(t *testing.T) {
			env := map[string]string{"CLIENT_SECRET": "x"}
			for k, v := range c.env {
				env[k] = v
			}
			if s, err := settingsFrom(lookupIn(env)); err != nil || s.BaseURL != c.base {
				t.Errorf("the service is at %q, %v; want %q", s.BaseURL, err, c.base)
			}
		})
	}
}
