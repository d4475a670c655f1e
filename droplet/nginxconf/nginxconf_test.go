package nginxconf

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// filesOf returns the files of an app.
func filesOf(files map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, text := range files {
		out[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

// rendered reads and renders an app.
func rendered(t *testing.T, files map[string]string, o Options) (Files, error) {
	t.Helper()
	app := filesOf(files)
	in, err := Read(app)
	if err != nil {
		return nil, err
	}
	plain, err := PlainVariables(app)
	if err != nil {
		return nil, err
	}
	return Render(in, o, app, plain)
}

// The templates have the results of Cloud Foundry's buildpack.
func TestRender(t *testing.T) {
	resolv := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolv, []byte("search x\nnameserver 10.0.0.1\nnameserver 10.0.0.2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	o := Options{Port: "8080", Modules: "/usr/lib/nginx/modules", Home: "/home/vcap/app", Resolv: resolv, Env: func(name string) string {
		return map[string]string{"NAME": "a", "TEXT": `say "<hi>"`, "PLAIN": `say "<hi>"`}[name]
	}}
	got, err := rendered(t, map[string]string{
		"nginx.conf": `{{module "ngx_stream_module"}}
{{ module "mine" }}
resolver {{nameservers}};
http { include conf/server.conf; include mime.types; include /etc/x.conf; include ../y.conf;
 set $a "{{env "NAME"}}"; set $b "{{env "TEXT"}}"; set $c '{{env "PLAIN"}}'; set $d "{{env "NONE"}}"; }`,
		"conf/server.conf": "server { listen {{port}}; }",
		"mime.types":       "types { {{not rendered}} }",
		"modules/mine.so":  "",
		"buildpack.yml":    "nginx:\n  plaintext_env_vars: [PLAIN]\n",
	}, o)
	want := Files{
		"nginx.conf": `load_module /usr/lib/nginx/modules/ngx_stream_module.so;
load_module /home/vcap/app/modules/mine.so;
resolver 10.0.0.1 10.0.0.2;
http { include conf/server.conf; include mime.types; include /etc/x.conf; include ../y.conf;
 set $a "a"; set $b "say &#34;&lt;hi&gt;&#34;"; set $c 'say "<hi>"'; set $d ""; }`,
		"conf/server.conf": "server { listen 8080; }",
	}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v\n%q\nwant\n%q", err, got, want)
	}
	if got := (Options{Resolv: "/nonexistent"}).nameServers(); got != "169.254.0.2" {
		t.Errorf("without resolv.conf: %s", got)
	}
}

// A fault names the file and its line.
func TestFaults(t *testing.T) {
	const mark = "THEPORT"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"port": {
			map[string]string{"nginx.conf": "http {\n server {\n  listen 8080 default_server; } }"},
			"nginx.conf line 3: `listen 8080 default_server` does not use the port of the app. Write `listen {{port}};`, which is filled in when the app starts",
		},
		"port in a comment": {
			map[string]string{"nginx.conf": "# listen 80;\nhttp { include a.conf; }", "a.conf": "server {\nlisten 80; }"},
			"a.conf line 2: `listen 80` does not use the port of the app. Write `listen {{port}};`, which is filled in when the app starts",
		},
		"no listen":          {map[string]string{"nginx.conf": "http { }"}, "nginx.conf: it has no {{port}}. Write `listen {{port}};` in a server block. The port is filled in when the app starts"},
		"background":         {map[string]string{"nginx.conf": "worker_processes 1;\ndaemon on;\nhttp { server { listen {{port}}; } }"}, "nginx.conf line 2: `daemon on` puts nginx into the background, and the app would exit. Remove the line"},
		"no file":            {map[string]string{}, "nginx.conf: the file does not exist"},
		"included":           {map[string]string{"nginx.conf": "http {\n include a/b.conf; }"}, "nginx.conf line 2: cannot include a/b.conf: the file does not exist"},
		"a folder":           {map[string]string{"nginx.conf/x": ""}, "nginx.conf: it is not a file"},
		"too large":          {map[string]string{"nginx.conf": strings.Repeat("#", maxConfig+1)}, "nginx.conf: the file is larger than 4 MiB"},
		"unknown function":   {map[string]string{"nginx.conf": "\n{{prot}}"}, "nginx.conf line 2: cannot fill in the template: function \"prot\" not defined. dew has {{port}}, {{env \"NAME\"}}, {{module \"name\"}} and {{nameservers}}"},
		"no argument":        {map[string]string{"nginx.conf": "{{env}}"}, "nginx.conf line 1: cannot fill in the template: executing \"\" at <env>: wrong number of args for env: want 1 got 0. dew has {{port}}, {{env \"NAME\"}}, {{module \"name\"}} and {{nameservers}}"},
		"buildpack.yml":      {map[string]string{"nginx.conf": "", "buildpack.yml": "nginx: {plaintext_env_vars: NAME}"}, "buildpack.yml: nginx.plaintext_env_vars must be a list of names"},
		"bad buildpack.yml":  {map[string]string{"nginx.conf": "", "buildpack.yml": "nginx: ["}, "buildpack.yml: "},
		"port and no daemon": {map[string]string{"nginx.conf": "daemon off; http { include a.conf; }", "a.conf": "server { listen {{port}}; }"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := rendered(t, c.files, Options{Port: mark, Env: func(string) string { return "" }})
			if err == nil {
				err = Check(got, mark)
			}
			if bad := (*Error)(nil); c.want == "" != (err == nil) || err != nil && (!errors.As(err, &bad) || !strings.HasPrefix(err.Error(), c.want)) {
				t.Errorf("%v\nwant %s", err, c.want)
			}
		})
	}
}

// Files that nginx would write to folders of root are written below the app, unless the
// configuration says where.
func TestPrepare(t *testing.T) {
	n := ParseNginx("nginx version: nginx/1.22.1\nconfigure arguments: --prefix=/usr/share/nginx --modules-path=/usr/lib/nginx/modules --without-http_scgi_module")
	if n.Version != "1.22.1" || n.Modules != "/usr/lib/nginx/modules" {
		t.Errorf("nginx is %+v", n)
	}
	if other := ParseNginx("nginx version: openresty/1.25\n--prefix=/opt/nginx"); other.Modules != "/opt/nginx/modules" || other.Version != "1.25" {
		t.Errorf("nginx is %+v", other)
	}
	const temps = "client_body_temp_path client_body_temp; proxy_temp_path proxy_temp; fastcgi_temp_path fastcgi_temp; uwsgi_temp_path uwsgi_temp;"
	for name, c := range map[string]struct {
		files  Files
		main   string
		global string
	}{
		"bare":           {Files{Main: "events {}\nhttp {\n}"}, "events {}\nhttp { " + temps + " access_log off;\n}", "daemon off; pid logs/nginx.pid;"},
		"in quotes":      {Files{Main: "daemon off; pid 'a;b{'; http{access_log /dev/stdout;}"}, "daemon off; pid 'a;b{'; http{ " + temps + "access_log /dev/stdout;}", ""},
		"of a server":    {Files{Main: "http { server { access_log /dev/stdout; proxy_temp_path x; } }"}, "http { " + temps + " access_log off; server { access_log /dev/stdout; proxy_temp_path x; } }", "daemon off; pid logs/nginx.pid;"},
		"included":       {Files{Main: "http { include log.conf; }", "log.conf": "access_log /dev/stdout;"}, "http { " + temps + " include log.conf; }", "daemon off; pid logs/nginx.pid;"},
		"with all":       {Files{Main: "http { client_body_temp_path a; proxy_temp_path b; fastcgi_temp_path c; uwsgi_temp_path d; access_log off; }"}, "http { client_body_temp_path a; proxy_temp_path b; fastcgi_temp_path c; uwsgi_temp_path d; access_log off; }", "daemon off; pid logs/nginx.pid;"},
		"a comment":      {Files{Main: "# http {\nstream { }"}, "# http {\nstream { }", "daemon off; pid logs/nginx.pid;"},
		"a variable":     {Files{Main: "http { set $a x${b}y; access_log off; }"}, "http { " + temps + " set $a x${b}y; access_log off; }", "daemon off; pid logs/nginx.pid;"},
		"not closed":     {Files{Main: "http { \"abc"}, "http { " + temps + " access_log off; \"abc", "daemon off; pid logs/nginx.pid;"},
		"closed too far": {Files{Main: "} } ; { } http"}, "} } ; { } http", "daemon off; pid logs/nginx.pid;"},
	} {
		t.Run(name, func(t *testing.T) {
			got, global := Prepare(c.files, n)
			if got[Main] != c.main || global != c.global {
				t.Errorf("%q with %q\nwant %q with %q", got[Main], global, c.main, c.global)
			}
			if again, _ := Prepare(got, n); again[Main] != got[Main] {
				t.Errorf("the second time %q", again[Main])
			}
		})
	}
}

func TestNoAccessLog(t *testing.T) {
	for text, want := range map[string]bool{
		"http { }": true, "http { access_log off; }": true, "http { server { access_log /dev/stdout main; } }": false, "# access_log /dev/stdout;\n": true,
	} {
		if got := NoAccessLog(Files{Main: text}); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

// The message of nginx -t names the file of the app.
func TestTestError(t *testing.T) {
	for output, want := range map[string]string{
		"nginx: [emerg] unknown directive \"foo\" in /tmp/c/nginx.conf:12\nnginx: configuration file /tmp/c/nginx.conf test failed\n":            `nginx.conf line 12: unknown directive "foo"`,
		"2026/11/17 15:56:52 [emerg] 26901#26901: open() \"/tmp/c/mime.types\" failed (2: No such file or directory) in /tmp/c/conf/a.conf:10\n": `conf/a.conf line 10: open() "mime.types" failed (2: No such file or directory)`,
		"nginx: [emerg] no \"events\" section in configuration\n":                                                                                `nginx.conf: no "events" section in configuration`,
		"Killed\n": "nginx.conf: nginx -t failed: Killed",
	} {
		if got := TestError(output, "/tmp/c"); got.Error() != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// No text makes the parser fail, and a prepared configuration stays the same.
func FuzzPrepare(f *testing.F) {
	for _, text := range []string{"http { server { listen {{port}}; } }", "a 'b\\'' \"c\" ${d} # e\n;", "http{access_log off;}", "include a.conf;", "\\", "$", "${"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		files := Files{Main: text, "a.conf": text}
		got, _ := Prepare(files, Nginx{})
		if strings.Count(got[Main], "\n") != strings.Count(text, "\n") {
			t.Errorf("%q became %q", text, got[Main])
		}
		if again, _ := Prepare(got, Nginx{}); again[Main] != got[Main] {
			t.Errorf("%q became %q, then %q", text, got[Main], again[Main])
		}
		_ = Check(files, "no such text") // must not panic
		_ = NoAccessLog(files)
	})
}
