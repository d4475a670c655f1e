package services

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// doubling returns a nested schema: each level checks the level below it twice.
func doubling(floors int) json.RawMessage {
	var b strings.Builder
	for i := range floors {
		fmt.Fprintf(&b, `"a%d": {"allOf": [{"$ref": "#/definitions/a%d"}, {"$ref": "#/definitions/a%d"}]}, `, i, i+1, i+1)
	}
	return json.RawMessage(fmt.Sprintf(`{"definitions": {%s"a%d": {"type": "object"}}, "allOf": [{"$ref": "#/definitions/a0"}]}`, b.String(), floors))
}

// A small schema that would take years to check a value is refused.
func TestSchemaSteps(t *testing.T) {
	t.Parallel()
	if err := checkSchema(doubling(4)); err != nil {
		t.Errorf("a harmless one: %v", err)
	}
	if err := checkSchema(doubling(60)); err == nil || !strings.Contains(err.Error(), "Must not require more than") {
		t.Errorf("error = %v", err)
	}
	const tree = `{"definitions": {"node": {"type": "object", "properties": {"left": {"$ref": "#/definitions/node"}, "right": {"$ref": "#/definitions/node"}}}}, "$ref": "#/definitions/node"}`
	if err := checkSchema(json.RawMessage(tree)); err != nil {
		t.Errorf("a tree: %v", err)
	}
}

func FuzzParameters(f *testing.F) {
	f.Add(`{"type": "object", "properties": {"a": {"type": "integer"}}}`, `{"a": "x"}`)
	f.Add(`{"$ref": "#/definitions/x", "definitions": {"x": {"$ref": "#/definitions/x"}}}`, `{}`)
	f.Add(`{"pattern": "("}`, `{}`)
	f.Fuzz(func(t *testing.T, schema, parameters string) {
		if checkSchema(json.RawMessage(schema)) != nil {
			return
		}
		raw, err := CheckObject("parameters", json.RawMessage(parameters))
		if err != nil {
			return
		}
		if err := CheckParameters(json.RawMessage(schema), raw); err != nil {
			detail(t, err)
		}
	})
}
