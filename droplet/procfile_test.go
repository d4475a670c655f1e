package droplet

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseProcfile(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want map[string]string
	}{
		"empty":           {"", map[string]string{}},
		"one":             {"web: ./server", map[string]string{"web": "./server"}},
		"several":         {"web: ./server -p $PORT\nworker_2:./work\nclock-1:   tick  \n", map[string]string{"web": "./server -p $PORT", "worker_2": "./work", "clock-1": "tick"}},
		"comments":        {"---\n# web: old\n\n  # more\nweb: ./server # new\n", map[string]string{"web": "./server # new"}},
		"windows":         {"\xef\xbb\xbfweb: ./server\r\nworker: ./work\r\n", map[string]string{"web": "./server", "worker": "./work"}},
		"colons":          {"web: java -cp a:b --x='y: z'", map[string]string{"web": "java -cp a:b --x='y: z'"}},
		"double quotes":   {`web: "echo \"hi\" \\ there"`, map[string]string{"web": `echo "hi" \ there`}},
		"single quotes":   {`web: 'it''s'`, map[string]string{"web": "it's"}},
		"quotes of shell": {"web: \"a b\"/run \"c\"\nworker: 'a' 'b'", map[string]string{"web": `"a b"/run "c"`, "worker": "'a' 'b'"}},
		"other escapes":   {`web: "a\nb"`, map[string]string{"web": `"a\nb"`}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseProcfile([]byte(tt.text))
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}

func TestParseProcfileRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		text   string
		line   int
		reason string
	}{
		"no colon":     {"web: a\nnonsense", 2, "type: command"},
		"no type":      {": a", 1, "type: command"},
		"bad type":     {"w/b: a", 1, "type: command"},
		"space":        {"web : a", 1, "type: command"},
		"indented":     {"web: a\n  -p 1", 2, "type: command"},
		"no command":   {"# x\nweb:  ", 2, "'web' has no command"},
		"empty quotes": {`web: ""`, 1, "'web' has no command"},
		"block":        {"web: |\n  a", 1, "same line"},
		"twice":        {"web: a\nweb: b", 2, "'web' occurs twice"},
		"binary":       {"web: \xff", 0, "is not a text file"},
		"zero":         {"web: a\x00", 0, "is not a text file"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseProcfile([]byte(tt.text))
			var bad *ProcfileError
			if !errors.As(err, &bad) || bad.Line != tt.line || !strings.Contains(bad.Reason, tt.reason) {
				t.Errorf("parsed %v, %v, want an error of line %d with %q", got, err, tt.line, tt.reason)
			}
			if !strings.HasPrefix(err.Error(), "Procfile ") {
				t.Errorf("text %q does not name the file", err)
			}
		})
	}
}

// An accepted Procfile is accepted again when it is written line by line, unless a
// command looks like YAML quotes.
func FuzzProcfile(f *testing.F) {
	f.Add("web: ./server\nworker: ./work # x\n")
	f.Add("web: \"a \\\" b\"\r\n---\n")
	f.Add("web: 'it''s'\nweb: |")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseProcfile([]byte(text))
		if err != nil {
			return
		}
		var again strings.Builder
		for name, command := range got {
			if name == "" || command == "" || command != strings.TrimSpace(command) || strings.ContainsAny(command, "\n\x00") {
				t.Fatalf("%q has the command %q", name, command)
			}
			if strings.HasPrefix(command, `"`) || strings.HasPrefix(command, "'") {
				return
			}
			again.WriteString(name + ": " + command + "\n")
		}
		same, err := parseProcfile([]byte(again.String()))
		if diff := cmp.Diff(got, same); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
	})
}
