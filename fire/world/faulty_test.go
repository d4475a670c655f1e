package world

import (
	"os"
	"strings"
	"testing"
)

// A dewd that starts while the checks run removes the instance then, so its newest output
// counts. A data race in that output is not lost for the next check.
func TestUnfinished(t *testing.T) {
	t.Parallel()
	w := &World{Dir: t.TempDir(), unfinished: map[string]bool{}}
	output := ""
	write := func(line string) {
		t.Helper()
		output += line + "\n"
		if err := os.WriteFile(w.LogFile(), []byte(output), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := func(id string, want bool, text string) {
		t.Helper()
		got, err := w.Unfinished(id)
		if got != want || (err == nil) != (text == "") || err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("Unfinished(%s) = %v, %v, want %v and %q", id, got, err, want, text)
		}
	}
	write(`level=INFO msg=ready`)
	if err := w.Faulty(); err != nil {
		t.Fatal(err)
	}
	want("a", false, "")
	write(`level=INFO msg="swept container" container=dew-a started=false same_boot=true build=false`)
	write(`level=INFO msg="swept container" container=dew-b started=true same_boot=true build=false`)
	want("a", true, "")
	want("b", false, "")
	write(`level=WARN msg="cannot use the prepared instance; dewd creates another one" process=p index=1 instance=d err="x"`)
	want("d", true, "")
	write("WARNING: DATA RACE")
	want("c", false, "DATA RACE")
	want("a", true, "")
	if err := w.Faulty(); err == nil || !strings.Contains(err.Error(), "DATA RACE") {
		t.Errorf("Faulty() = %v, want the data race", err)
	}
}
