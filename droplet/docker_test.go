package droplet

import "testing"

func TestQuoteArgs(t *testing.T) {
	if got := quoteArgs([]string{"/serve", "a b", "-v"}); got != "/serve 'a b' -v" {
		t.Errorf("command = %s", got)
	}
}
