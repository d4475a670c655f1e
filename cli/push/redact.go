package push

import (
	"slices"
	"strings"

	"github.com/dewrun/dew/api/v3"
)

// hidden replaces the value of a variable.
const hidden = "<redacted>"

// redacted hides the values of environment variables in differences.
func redacted(diff []v3.Difference) []v3.Difference {
	out := slices.Clone(diff)
	for i := range out {
		inside := strings.Contains(out[i].Path+"/", "/env/")
		out[i].Value, out[i].Was = redact(out[i].Value, inside), redact(out[i].Was, inside)
	}
	return out
}

// redact hides the values of all env maps in v, or all values if v is inside of one.
func redact(v any, inside bool) any {
	switch v := v.(type) {
	case nil:
		return nil
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			out[key] = redact(value, inside || key == "env")
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = redact(value, inside)
		}
		return out
	}
	if inside {
		return hidden
	}
	return v
}
