package nginxconf

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Nginx is what the program of a stack reports about itself.
type Nginx struct {
	Version string
	Modules string   // folder of its modules
	without []string // parts of http that it was built without
}

var (
	nginxVersion = regexp.MustCompile(`nginx version: [^/\n]*/(\S+)`)
	modulesPath  = regexp.MustCompile(`--modules-path=(\S+)`)
	prefixPath   = regexp.MustCompile(`--prefix=(\S+)`)
	withoutPart  = regexp.MustCompile(`--without-http_(\w+)_module`)
)

// ParseNginx parses the output of nginx -V.
func ParseNginx(text string) Nginx {
	var n Nginx
	if m := nginxVersion.FindStringSubmatch(text); m != nil {
		n.Version = m[1]
	}
	if m := modulesPath.FindStringSubmatch(text); m != nil {
		n.Modules = m[1]
	} else if m := prefixPath.FindStringSubmatch(text); m != nil {
		n.Modules = m[1] + "/modules"
	}
	for _, m := range withoutPart.FindAllStringSubmatch(text, -1) {
		n.without = append(n.without, m[1])
	}
	return n
}

// tempParts are the parts of http that write temporary files.
var tempParts = []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"}

// Prepare sets folders below the app for files that nginx would write elsewhere. It
// changes no line numbers. The result has the global directives for nginx -g.
func Prepare(f Files, n Nginx) (out Files, global string) {
	all := f.all()
	has := func(block, name string) bool {
		return slices.ContainsFunc(all, func(d directive) bool { return d.block == block && d.name == name })
	}
	if !has("", "daemon") {
		global = "daemon off;"
	}
	if !has("", "pid") {
		global = strings.TrimSpace(global + " pid logs/nginx.pid;")
	}
	var set []string
	for _, part := range tempParts {
		if name := part + "_temp_path"; !slices.Contains(n.without, part) && !has("http", name) {
			set = append(set, name+" "+part+"_temp;")
		}
	}
	if !has("http", "access_log") {
		set = append(set, "access_log off;")
	}
	out = Files{}
	for name, text := range f {
		out[name] = text
	}
	// Only nginx.conf can have a block http of which the place is known.
	for _, d := range all {
		if d.file == Main && d.block == "" && d.name == "http" && d.open > 0 && len(set) > 0 {
			text := f[Main]
			out[Main] = text[:d.open] + " " + strings.Join(set, " ") + text[d.open:]
			break
		}
	}
	return out, global
}

// Check returns the faults that nginx itself does not find. f has no templates any
// more: port is the text that {{port}} became, which occurs nowhere else.
func Check(f Files, port string) error {
	for _, text := range f {
		if strings.Contains(text, port) {
			return daemonError(f)
		}
	}
	for _, d := range f.all() {
		if d.name == "listen" && len(d.args) > 0 {
			return &Error{d.file, d.line, fmt.Sprintf("`listen %s` does not use the port of the app. Write `listen {{port}};`, which is filled in when the app starts", strings.Join(d.args, " "))}
		}
	}
	return &Error{File: Main, Reason: "it has no {{port}}. Write `listen {{port}};` in a server block. The port is filled in when the app starts"}
}

// daemonError refuses a configuration that puts nginx into the background.
func daemonError(f Files) error {
	for _, d := range f.all() {
		if d.block == "" && d.name == "daemon" && len(d.args) == 1 && d.args[0] == "on" {
			return &Error{d.file, d.line, "`daemon on` puts nginx into the background, and the app would exit. Remove the line"}
		}
	}
	return nil
}

// NoAccessLog reports whether requests leave no line in the app's log.
func NoAccessLog(f Files) bool {
	return !slices.ContainsFunc(f.all(), func(d directive) bool {
		return d.name == "access_log" && len(d.args) > 0 && d.args[0] != "off"
	})
}

// emergency matches the error of nginx, with its place.
var emergency = regexp.MustCompile(`(?m)\[emerg\](?: \d+#\d+:)? (.*?)(?: in (\S+):(\d+))?$`)

// TestError turns the output of nginx -t into an error about a file of the app. folder
// is where the files were.
func TestError(output, folder string) error {
	m := emergency.FindStringSubmatch(output)
	if m == nil {
		lines := strings.Split(strings.TrimSpace(output), "\n")
		return &Error{File: Main, Reason: "nginx -t failed: " + lines[len(lines)-1]}
	}
	clean := strings.NewReplacer(strings.TrimSuffix(folder, "/")+"/", "").Replace
	e := &Error{File: Main, Reason: clean(m[1])}
	if m[2] != "" {
		e.File = clean(m[2])
		_, _ = fmt.Sscan(m[3], &e.Line) // only digits
	}
	return e
}
