package probe

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pageFile is the page with the table.
const pageFile = "../docs/security.md"

func TestTable(t *testing.T) {
	probes := []Probe{
		{Group: "Files", Name: "read a|b", Want: "refused", Seen: "EPERM"},
		{Group: "Files", Name: "write", Want: "refused", Seen: "EROFS\nEPERM"},
		{Group: "Network", Name: "dial", Want: "no <answer>", Seen: "none"},
	}
	page, err := Replace("a\n"+beginMark+"old"+endMark+"\nb\n", probes)
	if err != nil {
		t.Fatal(err)
	}
	want := "a\n" + beginMark + "\n\n### Files\n\n| attempt | must happen | seen |\n|---|---|---|\n| read a\\|b | refused | EPERM |\n| write | refused | EROFS EPERM |\n" +
		"\n### Network\n\n| attempt | must happen | seen |\n|---|---|---|\n| dial | no &lt;answer> | none |\n\n" + endMark + "\nb\n"
	if diff := cmp.Diff(want, page); diff != "" {
		t.Errorf("page (-want +got):\n%s", diff)
	}
	listed, err := Listed(page)
	if err != nil {
		t.Fatal(err)
	}
	if missing, unknown := Difference(listed, probes); len(missing)+len(unknown) > 0 {
		t.Errorf("the page lacks %v and has %v", missing, unknown)
	}
	if missing, unknown := Difference(listed, append(probes[1:], Probe{Group: "New"})); len(missing) != 1 || len(unknown) != 1 {
		t.Errorf("lacks %v, has %v; want one each", missing, unknown)
	}
	if _, err := Replace("no marks", probes); err == nil {
		t.Error("a page without marks was changed")
	}
}

// docs/security.md lists exactly the probes of the table.
func TestPage(t *testing.T) {
	b, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	listed, err := Listed(string(b))
	if err != nil {
		t.Fatal(err)
	}
	var probes []Probe
	for _, a := range attacks() {
		probes = append(probes, a.Probe)
	}
	if missing, unknown := Difference(listed, probes); len(missing)+len(unknown) > 0 {
		t.Errorf("%s is not current: run make probes\nmissing:\n%s\nunknown:\n%s", pageFile, strings.Join(missing, "\n"), strings.Join(unknown, "\n"))
	}
}

// Every probe has its own name.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range attacks() {
		key := a.Group + ": " + a.Name
		if seen[key] || a.Name == "" || a.Want == "" || a.run == nil {
			t.Errorf("probe %q is not complete, or there are two", key)
		}
		seen[key] = true
	}
	const least = 40
	if len(seen) < least {
		t.Errorf("%d probes, want at least %d", len(seen), least)
	}
}
