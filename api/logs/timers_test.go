package logs

import (
	"testing"
	"time"
)

func TestParseAccess(t *testing.T) {
	const head = `shop.dew.localhost - [2026-01-02T03:04:05.000000006Z] `
	for text, ok := range map[string]bool{
		head + `"GET / HTTP/1.1" 200 0 1 "-" "-" "c" "i" vcap_request_id:"r" response_time:0.25 app_id:"a"`: true,
		head + `"GET / HTTP/1.1" 200 0 1 "-" "-" "c" "i" response_time:-1`:                                  false,
		head + `"GET / HTTP/1.1" 200 0 1 "-" "-" "c" "i" response_time:NaN`:                                 false,
		head + `"GET / HTTP/1.1" 200 0 1 "-" "-" "c" "i"`:                                                   false,
		head + `"GET / HTTP/1.1`:  false,
		head:                      false,
		"42 access lines dropped": false,
		"":                        false,
	} {
		a, got := parseAccess(text)
		if got != ok {
			t.Errorf("parseAccess(%s) = %v, want %v", text, got, ok)
		}
		if ok && (a.took != 250*time.Millisecond || a.uri != "http://shop.dew.localhost/" || a.values["app_id"] != "a" || a.status != "200" || a.client != "c") {
			t.Errorf("parseAccess(%s) = %+v", text, a)
		}
	}
}

func FuzzParseAccess(f *testing.F) {
	f.Add(`h - [2026-01-02T03:04:05.000000006Z] "GET / HTTP/1.1" 200 0 1 "-" "a \"b\"" "c" "i" vcap_request_id:"r" response_time:0.25 app_id:"a"`)
	f.Add(`h - [2026-01-02T03:04:05Z] " " 1 1 1 : :`)
	f.Fuzz(func(t *testing.T, text string) {
		if a, ok := parseAccess(text); ok && (a.took < 0 || a.start.IsZero()) {
			t.Errorf("parseAccess(%q) = %+v", text, a)
		}
	})
}
