package cli

import (
	"testing"
)

func TestNoHome(t *testing.T) {
	t.Setenv("DEW_HOME", "")
	t.Setenv("HOME", "")
	runDew(t.Context(), "apps").must(t, 2, "DEW_HOME")
}
