package cftest

import (
	"archive/zip"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	guidA = "aaaaaaaa-0000-4000-8000-000000000001"
	guidB = "aaaaaaaa-0000-4000-8000-000000000002"
)

func tape() *Tape {
	t := NewTape(`\bwanderer-[a-z]+-[a-z]+\b`)
	t.Hide("http://127.0.0.1:4711", "$url")
	t.Hide("s3cret word", "$password-dora")
	return t
}

func raw(method, path, body string, status int, answer string) Raw {
	r := httptest.NewRequest(method, path, http.NoBody)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "cf")
	return Raw{Request: r, Body: []byte(body), Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Answered: []byte(answer)}
}

func record(t *testing.T, tape *Tape, r Raw) Exchange {
	t.Helper()
	e, err := tape.Record(r)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Values that differ from run to run become a placeholder, the same one everywhere.
func TestNormal(t *testing.T) {
	tp := tape()
	tp.learn(`{"href":"http://127.0.0.1:4711/v3/apps/` + guidA + `"}`)
	for in, want := range map[string]string{
		"http://127.0.0.1:4711/v3/apps/" + guidA + "/env":            "$url/v3/apps/$app1/env",
		"guid " + guidB + " of " + guidA:                             "guid $guid1 of $app1",
		"at 2026-01-02T03:04:05.678Z":                                "at $time",
		`{"instance":"0123abcd-0123-0123-0123-0123"}`:                `{"instance":"$instance"}`,
		`"crashtimestamp":1763160000123456789,"index":0`:             `"crashtimestamp":$number,"index":0`,
		"start_time=-6795364578871345152":                            "start_time=-6795364578871345152",
		"wanderer-brave-fox.dew.localhost":                           "$random1.dew.localhost",
		"password=s3cret+word&x=1":                                   "password=$password-dora&x=1",
		"sha " + strings.Repeat("0a", 32):                            "sha $sum",
		"the process costs $5 and $PORT":                             "the process costs $5 and $PORT",
		"http://127.0.0.1:4711/v3/routes/" + guidB + " keeps a name": "$url/v3/routes/$guid1 keeps a name",
	} {
		if got := tp.Normal(in); got != want {
			t.Errorf("Normal(%q) = %q, want %q", in, got, want)
		}
	}
}

// Only the fields that the client reads are stored.
func TestReduce(t *testing.T) {
	for name, tt := range map[string]struct{ method, path, in, want string }{
		"app":       {"GET", "/v3/apps/x", `{"guid":"g","name":"n","created_at":"t","links":{},"state":"STARTED"}`, `{"guid":"g","name":"n","state":"STARTED"}`},
		"action":    {"POST", "/v3/apps/x/actions/start", `{"guid":"g","updated_at":"t"}`, `{"guid":"g"}`},
		"scale":     {"POST", "/v3/apps/x/processes/web/actions/scale", `{"type":"web","version":"v"}`, `{"type":"web"}`},
		"by type":   {"GET", "/v3/apps/x/processes/web", `{"type":"web","version":"v"}`, `{"type":"web"}`},
		"upload":    {"POST", "/v3/packages/x/upload", `{"state":"READY","links":1}`, `{"state":"READY"}`},
		"list":      {"GET", "/v3/stacks?page=1", `{"pagination":{"total_results":1,"next":null},"resources":[{"name":"host","x":1}]}`, `{"next":null,"resources":[{"name":"host"}]}`},
		"no list":   {"GET", "/v3/stacks", `{}`, `{}`},
		"unread":    {"DELETE", "/v3/apps/x", `{"guid":"g"}`, `null`},
		"error":     {"GET", "/v3/apps/x/droplets/current", `{"errors":[{"code":10010,"title":"t","detail":"d"}]}`, `{"errors":[{"code":10010,"detail":"d","title":"t"}]}`},
		"current":   {"GET", "/v3/apps/x/droplets/current", `{"guid":"d","checksum":{}}`, `{"guid":"d"}`},
		"included":  {"GET", "/v3/roles", `{"resources":[],"included":{"users":[{"guid":"u","x":1}]}}`, `{"included":{"users":[{"guid":"u"}]},"resources":[]}`},
		"running":   {"GET", "/v3/processes/x/stats", `{"resources":[{"index":0,"state":"RUNNING","uptime":3,"host":"h","usage":{"mem":5,"time":"t","cpu_entitlement":null}}]}`, `{"resources":[{"index":0,"state":"RUNNING","uptime":"$number","usage":{"cpu_entitlement":null,"mem":"$number"}}]}`},
		"coming up": {"GET", "/v3/processes/x/stats", `{"resources":[{"index":0,"state":"STARTING","uptime":3}]}`, `{"resources":[{"index":0,"state":"STARTING|RUNNING"}]}`},
		"crash": {
			"GET", "/v3/audit_events",
			`{"resources":[{"type":"b.crash","data":{"instance":"i","crash_timestamp":17}},{"type":"app.crash","data":{"instance":"i","crash_timestamp":17}}]}`,
			`{"resources":[{"data":{"crash_timestamp":"$number","instance":"i"},"type":"app.crash"},{"data":{"crash_timestamp":"$number","instance":"i"},"type":"b.crash"}]}`,
		},
		"embedded": {"GET", "/v3/processes", `{"resources":[{"process_instances":[{"index":0,"since":7,"state":"RUNNING"}]}]}`, `{"resources":[{"process_instances":[{"index":0,"since":"$number","state":"RUNNING"}]}]}`},
		"newest":   {"GET", "/api/v1/read/x?limit=1", `{"envelopes":{"batch":[]}}`, `null`},
		"recent":   {"GET", "/api/v1/read/x?limit=1000", `{"envelopes":{"batch":[{"timestamp":"1","tags":{"source_type":"API"},"log":{"payload":"aGk=","type":"OUT"}},{"tags":{"source_type":"APP/PROC/WEB"},"log":{"payload":"aGk="}}]}}`, `{"lines":["hi"],"sources":["API"]}`},
	} {
		status := 200
		if name == "error" {
			status = 404
		}
		v, err := Reduce(tt.method, tt.path, status, "application/json", []byte(tt.in))
		got, _ := json.Marshal(v)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, tt.want)
		}
	}
}

// The client refuses lines with a field that it does not know.
func TestReadLinesIsStrict(t *testing.T) {
	for in, ok := range map[string]bool{
		`{}`: true, `{"envelopes":{}}`: true, `{"envelopes":{"batch":[]}}`: true,
		`{"envelopes":{"batch":[],"more":1}}`: false, `{"batch":[]}`: false,
		`{"envelopes":{"batch":[{"sourceId":"x"}]}}`:                                  false,
		`{"envelopes":{"batch":[{"log":{"payload":"aGk=","type":"OUT","x":1}}]}}`:     false,
		`{"envelopes":{"batch":[{"log":{"payload":"no base64!"}}]}}`:                  false,
		`{"envelopes":{"batch":[{"tags":{"index":1},"log":{"payload":"aGk="}}]}}`:     false,
		`{"envelopes":{"batch":[{"tags":{"source_type":"A"},"log":{"type":"ERR"}}]}}`: true,
	} {
		v, err := decode([]byte(in))
		if err == nil {
			_, err = ReadLines(v)
		}
		if (err == nil) != ok {
			t.Errorf("%s: %v, want accepted: %v", in, err, ok)
		}
	}
}

// The address of the SSH server and its key differ from daemon to daemon.
func TestSSHEndpointIsHidden(t *testing.T) {
	e := record(t, tape(), raw("GET", "/", "", 200, `{"links":{"app_ssh":{"href":"127.0.0.1:2","meta":{"host_key_fingerprint":"abc+/"}},"login":{"href":"http://127.0.0.1:4711/uaa"}}}`))
	want := `{"links":{"app_ssh":{"href":"$ssh1","meta":{"host_key_fingerprint":"$fingerprint1"}},"login":{"href":"$url/uaa"}}}`
	if got := show(e.Answer.Body); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Tokens are hidden in the response that has them and in all later exchanges.
func TestTokensAreHidden(t *testing.T) {
	tp := tape()
	token := "h." + base64.RawURLEncoding.EncodeToString([]byte(`{"jti":"once-only","user_id":"`+guidA+`","user_name":"dora","exp":1}`)) + ".s"
	r := raw("POST", "/uaa/oauth/token", "", 200, `{"access_token":"`+token+`","refresh_token":"r-1","token_type":"bearer","jti":"x"}`)
	r.Request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Body = []byte("grant_type=password&password=s3cret+word")
	e := record(t, tp, r)
	want := map[string]any{
		"access_token": "$token1", "refresh_token": "$refresh1", "token_type": "bearer",
		"claims": map[string]any{"jti": "$jti1", "user_id": "$user1", "user_name": "dora"},
	}
	if diff := cmp.Diff(e.Answer.Body, any(want)); diff != "" {
		t.Error(diff)
	}
	if e.Body != "grant_type=password&password=$password-dora" {
		t.Errorf("body = %v, want the password hidden", e.Body)
	}
	next := raw("GET", "/v3/apps", "", 200, `{"resources":[]}`)
	next.Request.Header.Set("Authorization", "bearer "+token)
	logout := record(t, tp, raw("DELETE", "/uaa/oauth/token/revoke/once-only", "", 200, ""))
	if logout.Path != "/uaa/oauth/token/revoke/$jti1" {
		t.Errorf("path = %s, want the token's id hidden", logout.Path)
	}
	if Claims("opaque") != nil || Claims("a.!.c") != nil || Claims("a.e30K.c") == nil {
		t.Error("claims of what is no token")
	}
	if got := record(t, tp, next).Header["Authorization"]; got != "bearer $token1" {
		t.Errorf("Authorization = %q", got)
	}
}

// An upload is recorded with its files, and created again from the recording. Big files
// are recorded as stand-ins whose checksums match the earlier requests.
func TestUploadRoundTrip(t *testing.T) {
	big := bytes.Repeat([]byte("x"), bigFile+1)
	var buf, form bytes.Buffer
	z := zip.NewWriter(&buf)
	for name, data := range map[string][]byte{"small.txt": []byte("small\n"), "program": big} {
		h := &zip.FileHeader{Name: name}
		h.SetMode(0o755)
		w, err := z.CreateHeader(h)
		if err == nil {
			_, err = w.Write(data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	w := multipart.NewWriter(&form)
	_ = w.WriteField("resources", `[{"path":"p","checksum":{"value":"`+sumOf(big)+`"},"size_in_bytes":4097}]`)
	p, _ := w.CreateFormFile("bits", "package.zip")
	_, _ = p.Write(buf.Bytes())
	_ = w.Close()
	r := raw("POST", "/v3/packages/"+guidA+"/upload", form.String(), 200, `{"guid":"`+guidA+`","state":"READY"}`)
	r.Request.Header.Set("Content-Type", w.FormDataContentType())

	tp := tape()
	if _, err := tp.Record(r); err == nil {
		t.Error("a big file that nobody announced is recorded")
	}
	tp.Pushes("program", big)
	e := record(t, tp, r)
	if e.Path != "/v3/packages/$package1/upload" || e.Header["Content-Type"] != "multipart/form-data" {
		t.Errorf("recorded %s with %v", e.Path, e.Header)
	}
	again := save(t, e)

	b := NewBindings()
	b.Set("$package1", guidB)
	req, err := b.Request("http://there", again)
	if err != nil {
		t.Fatal(err)
	}
	body := new(bytes.Buffer)
	if _, err := body.ReadFrom(req.Body); err != nil {
		t.Fatal(err)
	}
	e2 := record(t, tape(), Raw{Request: req, Body: body.Bytes(), Status: 200, Header: r.Header, Answered: r.Answered})
	if diff := cmp.Diff(show(e2.Body), show(e.Body)); diff != "" {
		t.Errorf("sent again it differs:\n%s", diff)
	}
	text := "stand-in for program\n"
	if s := show(e.Body); !strings.Contains(s, `"size_in_bytes":21`) || !strings.Contains(s, sumOf([]byte(text))) || strings.Contains(s, "xxxx") {
		t.Errorf("body = %s, want the stand-in", s)
	}
}

// save writes a recording and reads it again.
func save(t *testing.T, es ...Exchange) Exchange {
	t.Helper()
	dir := t.TempDir()
	if err := Save(dir, Recording{Name: "01-push", Command: []string{"push"}, Exchanges: es}); err != nil {
		t.Fatal(err)
	}
	all, err := Load(dir)
	if err != nil || len(all) != 1 || all[0].Name != "01-push" {
		t.Fatalf("loaded %+v, %v", all, err)
	}
	return all[0].Exchanges[0]
}

// A placeholder gets its value at its first use, and later uses must match it.
func TestMatch(t *testing.T) {
	answer := func(body string) Answer {
		v, err := decode([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		return Answer{Status: 200, Body: v}
	}
	for name, tt := range map[string]struct {
		want, got string
		ok        bool
	}{
		"same":             {`{"a":1,"b":[null,true]}`, `{"a":1,"b":[null,true]}`, true},
		"another number":   {`{"a":1}`, `{"a":2}`, false},
		"one more field":   {`{"a":1}`, `{"a":1,"b":2}`, false},
		"one field less":   {`{"a":1,"b":2}`, `{"a":1}`, false},
		"one item less":    {`[1,2]`, `[1]`, false},
		"null for a list":  {`[]`, `null`, false},
		"learned":          {`["$app1","$app1"]`, `["x","x"]`, true},
		"contradicted":     {`["$app1","$app1"]`, `["x","y"]`, false},
		"known":            {`"$app7"`, `"seven"`, true},
		"not the known":    {`"$app7"`, `"eight"`, false},
		"inside a text":    {`"$url/v3/jobs/$job1"`, `"http://h:1/v3/jobs/j"`, true},
		"any time":         {`["$time","$time"]`, `["1","2"]`, true},
		"any number":       {`["$number","$number"]`, `[1,2.5]`, true},
		"text, not number": {`1`, `"1"`, false},
		"arrived":          {`{"state":"STARTING|RUNNING"}`, `{"state":"RUNNING","uptime":1}`, true},
		"crashed":          {`{"state":"STARTING|RUNNING"}`, `{"state":"CRASHED"}`, false},
		"on its way":       {`{"state":"DOWN|STARTING|RUNNING"}`, `{"state":"STARTING|RUNNING"}`, true},
	} {
		b := NewBindings()
		b.Set("$app7", "seven")
		b.Set("$url", "http://h:1")
		err := b.Match(answer(tt.want), answer(tt.got))
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v, want ok: %v", name, err, tt.ok)
		}
		if _, learned := b.values["$app1"]; learned != (name == "learned") {
			t.Errorf("%s: learned: %v", name, learned)
		}
	}
	b := NewBindings()
	if err := b.Match(Answer{Status: 200}, Answer{Status: 201}); err == nil {
		t.Error("another status matches")
	}
	if err := b.Match(Answer{Status: 202, Location: "$url/v3/jobs/$job1"}, Answer{Status: 202}); err == nil {
		t.Error("a missing Location matches")
	}
	if _, err := b.Fill("/v3/apps/$app1"); err == nil {
		t.Error("a placeholder that nothing told is filled")
	}
}

// Repeated reads keep only their last response. Changes keep their order.
func TestSettle(t *testing.T) {
	get := func(path string, status int) Exchange {
		return Exchange{Method: "GET", Path: path, Answer: Answer{Status: status}}
	}
	post := Exchange{Method: "POST", Path: "/v3/builds"}
	got := Settle([]Exchange{
		get("/a", 1), get("/api/v1/read/x", 1), get("/b", 1), get("/a", 2), post, get("/a", 3), get("/api/v1/read/x", 2), post, get("/b", 2),
	})
	want := []Exchange{get("/b", 1), get("/a", 2), post, get("/a", 3), post, get("/b", 2), get("/api/v1/read/x", 2)}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Error(diff)
	}
}

func TestCompare(t *testing.T) {
	get := Exchange{Method: "GET", Path: "/v3/apps/$app1", Answer: Answer{Status: 200, Body: map[string]any{"guid": "$app1"}}}
	log := Exchange{Method: "GET", Path: "/api/v1/info", Answer: Answer{Status: 200}}
	post := Exchange{Method: "POST", Path: "/v3/apps", Body: map[string]any{"name": "x"}, Answer: Answer{Status: 201}}
	renamed := get
	renamed.Path, renamed.Answer.Body = "/v3/apps/$app2", map[string]any{"guid": "$app2"}
	failed := post
	failed.Answer.Status = 422
	of := func(es ...Exchange) Recording { return Recording{Command: []string{"push"}, Exchanges: es} }
	for name, tt := range map[string]struct {
		old, now Recording
		ok       bool
	}{
		"same":             {of(post, get), of(post, get), true},
		"asked more often": {of(post, get), of(get, post, get), true},
		"other numbers":    {of(post, get), of(post, renamed), true},
		"logs beside":      {of(post), of(post, log), true},
		"another answer":   {of(post), of(failed), false},
		"twice":            {of(post), of(post, post), false},
		"not asked":        {of(post, get), of(post), false},
		"asked besides":    {of(post), of(post, get), false},
		"exit status":      {Recording{Exit: 1}, Recording{}, false},
	} {
		if err := Compare(tt.old, tt.now); (err == nil) != tt.ok {
			t.Errorf("%s: %v, want ok: %v", name, err, tt.ok)
		}
	}
}

// Secrets are hidden in any response of a server.
func FuzzNormal(f *testing.F) {
	f.Add(`{"guid":"` + guidA + `","at":"2026-01-02T03:04:05Z"}`)
	f.Add("http://127.0.0.1:4711/v3 s3cret word s3cret+word $app1 $$ $time")
	f.Fuzz(func(t *testing.T, s string) {
		got := tape().Normal(s)
		for _, hidden := range []string{"http://127.0.0.1:4711", "s3cret word", "s3cret+word"} {
			if strings.Contains(got, hidden) {
				t.Errorf("%q becomes %q", s, got)
			}
		}
	})
}

// Every text matches itself, and a text without placeholders fills to itself.
func FuzzMatchString(f *testing.F) {
	f.Add("$url/v3/jobs/$job1", "http://x/v3/jobs/1")
	f.Fuzz(func(t *testing.T, want, got string) {
		b := NewBindings()
		if err := b.matchString(want, got); err != nil {
			return
		}
		filled, err := b.Fill(want)
		if err != nil {
			t.Fatalf("%q matches %q and cannot be filled: %v", want, got, err)
		}
		if filled != got && !strings.Contains(want, "$start") && !repeatsAny(want) {
			t.Errorf("%q matches %q and fills to %q", want, got, filled)
		}
	})
}

// repeatsAny reports whether a placeholder for any value occurs twice in a text.
func repeatsAny(s string) bool {
	for name := range anything {
		if strings.Count(s, name) > 1 {
			return true
		}
	}
	return false
}
