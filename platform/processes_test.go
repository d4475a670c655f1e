package platform

import "testing"

// A server that listens on all addresses is at the host at which the client reached the
// API.
func TestSSHEndpointFor(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:2222": "127.0.0.1:2222", "0.0.0.0:2222": "api.example.com:2222", "[::]:2022": "api.example.com:2022", "broken": "broken",
	} {
		if got := (SSHEndpoint{Address: address}).For("api.example.com"); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}
