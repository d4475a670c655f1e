package main

import (
	"strings"
	"testing"
)

func TestFindRedis(t *testing.T) {
	const bound = `{"postgres":[{"label":"postgres","credentials":{"uri":"postgres://u:p@10.0.0.1:5432/d"}}],
		"cache":[{"label":"cache","tags":["redis"],"credentials":{"uri":"redis://u:p@10.0.0.2:6379"}}]}`
	for name, c := range map[string]struct{ vcap, local, address, failure string }{
		"bound":          {bound, "redis://elsewhere:1", "10.0.0.2:6379", ""},
		"another bound":  {`{"postgres":[{"label":"postgres","credentials":{"uri":"postgres://u:p@10.0.0.1:5432/d"}}]}`, "redis://elsewhere:1", "elsewhere:1", ""},
		"local":          {"", "redis://elsewhere:1", "elsewhere:1", ""},
		"nothing":        {"", "", "127.0.0.1:6379", ""},
		"no JSON":        {"{", "", "", "VCAP_SERVICES is not as expected"},
		"no address":     {"", "http://u:secret@x", "", "REDIS_URL is no address of Redis"},
		"bound nonsense": {`{"redis":[{"label":"redis","credentials":{"uri":"redis://u:secret@ x"}}]}`, "", "", "the uri of the bound service"},
	} {
		o, err := findRedis(func(key string) string { return map[string]string{"VCAP_SERVICES": c.vcap, "REDIS_URL": c.local}[key] })
		switch {
		case c.failure != "":
			if err == nil || !strings.Contains(err.Error(), c.failure) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: error %v, want one with %q and without the password", name, err, c.failure)
			}
		case err != nil || o.Addr != c.address:
			t.Errorf("%s: %+v, %v, want %s", name, o, err, c.address)
		}
	}
}
