package push

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

func TestRedacted(t *testing.T) {
	var whole any
	if err := json.Unmarshal([]byte(`{"name":"shop","env":{"KEY":"secret","MORE":{"deep":["secret"]}},"memory":"1M"}`), &whole); err != nil {
		t.Fatal(err)
	}
	got := console.CompactJSON(redacted([]v3.Difference{
		{Op: "add", Path: "/applications/0", Value: whole},
		{Op: "replace", Path: "/applications/0/env/KEY", Value: "secret", Was: "secret"},
		{Op: "remove", Path: "/applications/0/env", Was: map[string]any{"KEY": "secret"}},
		{Op: "replace", Path: "/applications/0/environment", Value: "open"},
	}))
	if strings.Contains(got, "secret") || !strings.Contains(got, `"memory":"1M"`) || !strings.Contains(got, `"value":"open"`) || strings.Count(got, "redacted") != 5 {
		t.Errorf("got %s", got)
	}
}
