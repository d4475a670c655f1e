package bindingfiles

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const document = `{"postgres":[{"label":"postgres","provider":null,"plan":"small","name":"db","tags":["sql"],"instance_name":"db","binding_name":null,` +
	`"credentials":{"uri":"postgres://x","port":5432,"name":"ignored","hosts":["a","b"],"none":null,"empty":"","nothing":{}},"volume_mounts":[]}],` +
	`"user-provided":[{"label":"user-provided","name":"my.mail-1","tags":[],"credentials":{}}]}`

func TestFiles(t *testing.T) {
	t.Parallel()
	got, err := K8s.Files(document)
	want := map[string]string{
		"db/uri": "postgres://x", "db/port": "5432", "db/name": "db", "db/hosts": `["a","b"]`, "db/empty": "", "db/label": "postgres", "db/plan": "small",
		"db/tags": `["sql"]`, "db/instance_name": "db", "db/type": "postgres", "db/provider": "postgres",
		"my.mail-1/label": "user-provided", "my.mail-1/name": "my.mail-1", "my.mail-1/type": "user-provided", "my.mail-1/provider": "user-provided",
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	got, err = VCAP.Files(document)
	if diff := cmp.Diff(map[string]string{"vcap_services": document}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if got, err := None.Files(document); len(got) != 0 || err != nil {
		t.Error(got, err)
	}
}

func TestRefusedFiles(t *testing.T) {
	t.Parallel()
	binding := func(name, credentials string) string {
		return `{"label":"x","name":"` + name + `","credentials":` + credentials + `}`
	}
	for text, want := range map[string]string{
		`{"x":[` + binding("My_DB", "{}") + `]}`:                                       `Invalid binding name: 'My_DB'. Name must match /^[a-z0-9\-.]{1,253}$/`,
		`{"x":[` + binding("..", "{}") + `]}`:                                          "Invalid binding name: '..'",
		`{"x":[` + binding("a/b", "{}") + `]}`:                                         "Invalid binding name: 'a/b'",
		`{"x":[` + binding("db", "{}") + "," + binding("db", "{}") + `]}`:              "Duplicate binding name: db",
		`{"x":[` + binding("db", `{"A B":1}`) + `]}`:                                   "Invalid file name: A B",
		`{"x":[` + binding("db", `{"../../up":"1"}`) + `]}`:                            "Invalid file name: ../../up",
		`{"x":[` + binding("db", `{"big":"`+strings.Repeat("x", MaxBytes)+`"}`) + `]}`: "Bindings exceed the maximum allowed bytesize of 1000000: 1000",
		`[]`: "VCAP_SERVICES of the app is not a JSON object",
	} {
		_, err := K8s.Files(text)
		switch {
		case want == "" && err == nil:
			t.Errorf("%.80s is accepted", text)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%.80s: %v, want %s", text, err, want)
		}
	}
	if _, err := VCAP.Files(strings.Repeat("x", MaxBytes)); err == nil || !strings.Contains(err.Error(), ": 1000013") {
		t.Errorf("a document that is too long: %v", err)
	}
}

// The names of files never leave the folder.
func FuzzFiles(f *testing.F) {
	f.Add(document)
	f.Add(`{"x":[{"name":"..","credentials":{"..":"y"}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		files, err := K8s.Files(text)
		if err != nil {
			return
		}
		for name := range files {
			for _, part := range strings.Split(name, "/") {
				if part == "" || part == "." || part == ".." {
					t.Errorf("the file %q is outside of the folder", name)
				}
			}
			if strings.Count(name, "/") != 1 {
				t.Errorf("the file %q is not in a folder of its own", name)
			}
		}
	})
}
