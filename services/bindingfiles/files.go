// Package bindingfiles creates the files from which an app reads its service bindings,
// instead of VCAP_SERVICES. The rules and messages are those of Cloud Foundry.
package bindingfiles

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
)

// Dir is the folder of the files in a container.
const Dir = "/etc/cf-service-bindings"

// vcapFile is the file with the whole document.
const vcapFile = "vcap_services"

// MaxBytes is the maximum size of all files with their names.
const MaxBytes = 1_000_000

// Form is a kind of files.
type Form int

// The forms of files.
const (
	None Form = iota // the app reads VCAP_SERVICES
	VCAP             // one file with the document of VCAP_SERVICES
	K8s              // a folder for each binding, with a file for each value
)

// Of returns the form for the features of an app.
func Of(k8s, vcap bool) Form {
	switch {
	case k8s:
		return K8s
	case vcap:
		return VCAP
	}
	return None
}

// Variable returns the variable that names the files, and its value.
func (f Form) Variable() (name, value string) {
	switch f {
	case VCAP:
		return "VCAP_SERVICES_FILE_PATH", Dir + "/" + vcapFile
	case K8s:
		return "SERVICE_BINDING_ROOT", Dir
	}
	return "", ""
}

var (
	bindingName = regexp.MustCompile(`^[a-z0-9\-.]{1,253}$`)
	fileName    = regexp.MustCompile(`^[a-z0-9\-._]{1,253}$`)
)

// Files returns the files for a value of VCAP_SERVICES, by their path below Dir.
func (f Form) Files(vcapServices string) (map[string]string, error) {
	out, err := f.files(vcapServices)
	if err != nil {
		return nil, fmt.Errorf("Cannot build service binding files for app - %w", err) //nolint:staticcheck // Cloud Foundry's words
	}
	return out, nil
}

func (f Form) files(vcapServices string) (out map[string]string, err error) {
	out = map[string]string{}
	switch f {
	case VCAP:
		out[vcapFile] = vcapServices
	case K8s:
		out, err = folders(vcapServices)
	}
	if err != nil {
		return nil, err
	}
	size := 0
	for name, text := range out {
		size += len(name) + len(text)
	}
	if size > MaxBytes {
		return nil, fmt.Errorf("Bindings exceed the maximum allowed bytesize of %d: %d", MaxBytes, size) //nolint:staticcheck // Cloud Foundry's words
	}
	return out, nil
}

// folders returns the files of all bindings, in a folder for each.
func folders(vcapServices string) (map[string]string, error) {
	var all map[string][]map[string]json.RawMessage
	if err := json.Unmarshal([]byte(vcapServices), &all); err != nil {
		return nil, errors.New("VCAP_SERVICES of the app is not a JSON object of bindings") // the error of the parser would quote credentials
	}
	out, seen := map[string]string{}, map[string]bool{}
	for _, label := range slices.Sorted(maps.Keys(all)) {
		for _, b := range all[label] {
			name := text(b["name"])
			switch {
			case !bindingName.MatchString(name) || dots(name):
				return nil, fmt.Errorf("Invalid binding name: '%s'. Name must match /%s/", name, bindingName) //nolint:staticcheck // Cloud Foundry's words
			case seen[name]:
				return nil, fmt.Errorf("Duplicate binding name: %s", name) //nolint:staticcheck // Cloud Foundry's words
			}
			seen[name] = true
			if err := addBinding(out, name, b); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// addBinding adds the files of one binding: its credentials, and then the other values,
// which replace credentials with the same name.
func addBinding(out map[string]string, name string, b map[string]json.RawMessage) error {
	var credentials map[string]json.RawMessage
	_ = json.Unmarshal(b["credentials"], &credentials) // credentials that are no object have no names
	rest := maps.Clone(b)
	delete(rest, "credentials")
	rest["type"], rest["provider"] = b["label"], b["label"]
	for _, part := range []map[string]json.RawMessage{credentials, rest} {
		for key, value := range part {
			if !fileName.MatchString(key) || dots(key) {
				return fmt.Errorf("Invalid file name: %s", key) //nolint:staticcheck // Cloud Foundry's words
			}
			if t := text(value); t != "" || bytes.Equal(value, []byte(`""`)) {
				out[name+"/"+key] = t
			}
		}
	}
	return nil
}

// dots reports whether a name is that of a folder itself or of its parent.
func dots(name string) bool { return name == "." || name == ".." }

// text returns a value as the content of a file: a text as it is, and others as JSON.
// Null, an empty list and an empty object have none.
func text(value json.RawMessage) string {
	var s string
	if json.Unmarshal(value, &s) == nil {
		return s
	}
	var b bytes.Buffer
	if json.Compact(&b, value) != nil {
		return ""
	}
	switch b.String() {
	case "null", "[]", "{}":
		return ""
	}
	return b.String()
}
