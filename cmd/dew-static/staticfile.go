package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Settings files that an app can have.
const (
	staticfileName = "Staticfile"
	authName       = "Staticfile.auth"
)

// maxConfig limits the size of each of them.
const maxConfig = 1 << 20

// options are the settings of a Staticfile.
type options struct {
	root      string // folder in the app whose files are served, "" for the app itself
	listing   bool   // folders without an index are listed
	pushState bool   // the index is served for files that do not exist
	dotFiles  bool
	https     bool // requests over http are redirected to https
	hsts      string
	pages     map[int]string // error pages by status
	ignored   []string       // keys that dew-static does not support
}

// parseStaticfile parses the lines of a Staticfile: key: value, and under status_codes
// one line for each status.
func parseStaticfile(text string) (options, error) {
	o := options{pages: map[int]string{}}
	lines := bufio.NewScanner(strings.NewReader(text))
	section := ""
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if i := strings.Index(" "+line, " #"); i >= 0 {
			line = line[:i]
		}
		if trimmed := strings.TrimSpace(line); trimmed == "" || trimmed == "---" {
			continue
		}
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			return o, fmt.Errorf("%s line %d: must have the form KEY: VALUE", staticfileName, n)
		}
		indented := line[0] == ' ' || line[0] == '\t'
		key, value = strings.TrimSpace(key), strings.Trim(strings.TrimSpace(value), `"'`)
		var err error
		switch {
		case indented && section == "status_codes":
			err = o.page(strings.Trim(key, `"'`), value)
		case indented: // belongs to an unsupported section
		default:
			section = key
			err = o.set(key, value)
		}
		if err != nil {
			return o, fmt.Errorf("%s line %d: %w", staticfileName, n, err)
		}
	}
	return o, lines.Err()
}

// set sets one key.
func (o *options) set(key, value string) error {
	var on *bool
	switch key {
	case "root":
		clean := path.Clean("/" + value)[1:]
		if path.IsAbs(value) || strings.Contains("/"+value+"/", "/../") {
			return fmt.Errorf("root must be a folder in the app, not %q", value)
		}
		o.root = clean
		return nil
	case "directory":
		o.listing = value == "visible"
		return nil
	case "http_strict_transport_security":
		if value == "true" {
			o.hsts = "max-age=31536000"
		}
		return nil
	case "http_strict_transport_security_include_subdomains", "http_strict_transport_security_preload", "status_codes":
		return nil
	case "pushstate":
		on = &o.pushState
	case "host_dot_files":
		on = &o.dotFiles
	case "force_https":
		on = &o.https
	default:
		o.ignored = append(o.ignored, key)
		return nil
	}
	*on = slices.Contains([]string{"enabled", "true", "on", "yes"}, strings.ToLower(value))
	return nil
}

// page sets the page of a status.
func (o *options) page(status, file string) error {
	n, err := strconv.Atoi(status)
	if err != nil || n < 400 || n > 599 {
		return fmt.Errorf("status_codes: %q is not the status code of an error", status)
	}
	o.pages[n] = path.Clean("/" + file)[1:]
	return nil
}

// readConfig reads a small file of the app. A missing file is empty.
func readConfig(root *os.Root, name string) (string, error) {
	f, err := root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err == nil && len(b) > maxConfig {
		err = fmt.Errorf("%s is larger than %d bytes", name, maxConfig)
	}
	return string(b), err
}

// printSettings prints the settings, for the staging log.
func (s *site) printSettings(out io.Writer) {
	say := func(yes bool, format string, args ...any) {
		if yes {
			fmt.Fprintf(out, "       "+format+"\n", args...)
		}
	}
	where := "the app"
	if s.o.root != "" {
		where = s.o.root
	}
	say(true, "Serving the files of %s", where)
	say(s.o.listing, "Listing the files of folders without index.html")
	say(s.o.pushState, "Serving index.html for paths that do not exist")
	say(s.o.https, "Redirecting clients to https")
	say(len(s.users) > 0, "Users of %s: %d", authName, len(s.users))
	for _, key := range s.o.ignored {
		say(true, "%s: %s is ignored", staticfileName, key)
	}
}
