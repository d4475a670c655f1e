package services

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// ReadableJSON undoes the HTML escapes that the store writes: &, < and > are common in
// addresses and passwords.
func ReadableJSON(text []byte) string {
	var out bytes.Buffer
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			out.WriteByte(text[i])
			continue
		}
		if i+6 <= len(text) {
			if c, known := map[string]byte{`\u0026`: '&', `\u003c`: '<', `\u003e`: '>'}[string(text[i:i+6])]; known {
				out.WriteByte(c)
				i += 5
				continue
			}
		}
		out.Write(text[i : i+2]) // includes an escaped backslash, which starts no other escape
		i++
	}
	return out.String()
}

// AppVolumeMounts removes from volume mounts the data that an app must not see.
func AppVolumeMounts(raw json.RawMessage) ([]json.RawMessage, error) {
	out := []json.RawMessage{}
	if len(raw) == 0 {
		return out, nil
	}
	var all []map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("cannot read volume mounts: %w", err)
	}
	for _, m := range all {
		known := map[string]json.RawMessage{}
		for _, k := range []string{"container_dir", "mode", "device_type"} {
			if v, has := m[k]; has {
				known[k] = v
			}
		}
		one, err := json.Marshal(known)
		if err != nil {
			return nil, fmt.Errorf("cannot encode volume mounts: %w", err)
		}
		out = append(out, one)
	}
	return out, nil
}

// MergeTags returns both lists without duplicates.
func MergeTags(a, b []string) (all []string) {
	for _, s := range slices.Concat(a, b) {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}
