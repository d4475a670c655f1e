package command

import (
	"testing"
	"time"
)

func TestAPIURL(t *testing.T) {
	for typed, want := range map[string]string{
		"dew.example.com": "https://dew.example.com", "http://H:1/": "http://h:1", "HTTPS://h/v3": "https://h",
		"http://": "", "ftp://x": "", "http://[::1": "", "[::1]:8484": "https://[::1]:8484",
	} {
		if got, err := APIURL(typed); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", typed, got, err)
		}
	}
}

// Reading a token does not fail, whatever it contains.
func FuzzReadClaims(f *testing.F) {
	f.Add("a.e30.b")
	f.Add("e30.eyJleHAiOjF9.sig")
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		c := ReadClaims(token)
		if c.Expires == 0 && expiresSoon(token, time.Unix(1<<40, 0)) {
			t.Errorf("%q ends and does not say when", token)
		}
	})
}

// Whatever the file contains, a proof matches only the password that it was created
// from.
func FuzzProof(f *testing.F) {
	f.Add("", "x")
	f.Add("AAAAAAAAAAAAAAAAAAAAAA", "x")
	f.Add("AAAAAAAAAAAAAAAAAAAAAAAA", "x")
	f.Add("%", "")
	f.Fuzz(func(t *testing.T, proof, password string) {
		if matchesPassword(proof, password) {
			t.Errorf("%q proves %q", proof, password)
		}
		if !matchesPassword(newProof(password), password) || matchesPassword(newProof(password), password+"x") {
			t.Errorf("%q: the proof does not hold", password)
		}
	})
}
