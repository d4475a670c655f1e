package api

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/droplet/stack"
)

// The API description is valid OpenAPI 3.1, and its schemas are valid.
func TestDescriptionIsValid(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	got := w.as("", "GET", "/openapi.json", "")
	if got.Code != http.StatusOK || got.Header().Get("Content-Type") != rest.MediaJSON {
		t.Fatalf("GET /openapi.json = %d %s", got.Code, got.Header())
	}
	doc := must(jsonschema.UnmarshalJSON(bytes.NewReader(got.Body.Bytes())))(t)
	rules := must(jsonschema.UnmarshalJSON(strings.NewReader(openAPIRules)))(t)
	c := compilerOf(t, rules)
	if err := must(c.Compile("mem:description"))(t).Validate(doc); err != nil {
		t.Errorf("it is not OpenAPI 3.1: %#v", err)
	}
	c = compilerOf(t, doc)
	for name := range doc.(map[string]any)["components"].(map[string]any)["schemas"].(map[string]any) {
		if _, err := c.Compile("mem:description#/components/schemas/" + name); err != nil {
			t.Errorf("the schema %s: %v", name, err)
		}
	}
	seen := map[string]string{}
	for pattern := range operations() {
		id := rest.OperationID(pattern)
		if other := seen[id]; other != "" {
			t.Errorf("%s and %s have the same operationId %s", pattern, other, id)
		}
		seen[id] = pattern
	}
}

// The OpenAPI rules detect mistakes.
func TestOpenAPIRules(t *testing.T) {
	t.Parallel()
	rules := must(compilerOf(t, must(jsonschema.UnmarshalJSON(strings.NewReader(openAPIRules)))(t)).Compile("mem:description"))(t)
	whole := rest.Document("http://localhost", "1", description())
	whole["paths"], whole["components"] = rest.Object{"/": whole["paths"].(rest.Object)["/"]}, rest.Object{} // a small document is faster
	for name, change := range map[string]func(d, op rest.Object){
		"an older version":        func(d, _ rest.Object) { d["openapi"] = "3.0.0" },
		"no title":                func(d, _ rest.Object) { delete(d["info"].(rest.Object), "title") },
		"a path without a slash":  func(d, _ rest.Object) { d["paths"].(rest.Object)["v3"] = rest.Object{} },
		"an unknown method":       func(d, _ rest.Object) { d["paths"].(rest.Object)["/"].(rest.Object)["fetch"] = rest.Object{} },
		"an answer with no words": func(_, op rest.Object) { op["responses"] = rest.Object{"200": rest.Object{}} },
		"a status that is none":   func(_, op rest.Object) { op["responses"] = rest.Object{"20": rest.Object{"description": "x"}} },
		"a parameter from nowhere": func(_, op rest.Object) {
			op["parameters"] = []rest.Object{{"name": "x", "in": "air", "schema": rest.Object{}}}
		},
		"a path part to be left out": func(_, op rest.Object) {
			op["parameters"] = []rest.Object{{"name": "x", "in": "path", "schema": rest.Object{}}}
		},
		"a body of no kind": func(_, op rest.Object) { op["requestBody"] = rest.Object{} },
		"a schema of no type": func(d, _ rest.Object) {
			d["components"] = rest.Object{"schemas": rest.Object{"X": rest.Object{"type": "thing"}}}
		},
	} {
		d := plainCopy(t, whole)
		if err := rules.Validate(any(d)); err != nil {
			t.Fatal(err)
		}
		change(d, d["paths"].(rest.Object)["/"].(rest.Object)["get"].(rest.Object))
		if err := rules.Validate(any(plainCopy(t, d))); err == nil {
			t.Errorf("%s is passed over", name)
		}
	}
}

func plainCopy(t testing.TB, v any) (out rest.Object) {
	t.Helper()
	if err := json.Unmarshal(must(json.Marshal(v))(t), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// compilerOf returns a compiler for the schemas of a document, at mem:description.
func compilerOf(t testing.TB, doc any) *jsonschema.Compiler {
	t.Helper()
	c := newCompiler()
	if err := c.AddResource("mem:description", doc); err != nil {
		t.Fatal(err)
	}
	return c
}

// Every type with its own JSON encoding has an entry in OwnShapes. Otherwise the schema
// of its fields would be wrong.
func TestOwnShapes(t *testing.T) {
	t.Parallel()
	seen := map[reflect.Type]bool{}
	var walk func(typ reflect.Type)
	walk = func(typ reflect.Type) {
		if seen[typ] {
			return
		}
		seen[typ] = true
		_, own := rest.OwnShapes[typ]
		_, null := rest.Nullable(typ)
		marshals := typ.Implements(reflect.TypeFor[json.Marshaler]()) || reflect.PointerTo(typ).Implements(reflect.TypeFor[json.Unmarshaler]())
		known := own || null || typ == rest.IntType || typ == reflect.TypeFor[v3.Lifecycle]() // its options are optional
		if marshals && !known {
			t.Errorf("%v writes itself as JSON: say in ownShapes how", typ)
		}
		if value, ok := rest.Nullable(typ); ok {
			walk(value)
			return
		}
		switch typ.Kind() {
		case reflect.Slice, reflect.Map:
			walk(typ.Elem())
		case reflect.Struct:
			for f := range typ.Fields() {
				if !own && f.IsExported() {
					walk(f.Type)
				}
			}
		}
	}
	for _, o := range operations() {
		for _, c := range slices.Concat(append(slices.Collect(maps.Values(o.Responses)), o.Bodies)...) {
			if c.Of != nil {
				walk(c.Of)
			}
		}
	}
	if !seen[reflect.TypeFor[v3.Link]()] {
		t.Error("nothing was walked")
	}
}

var validParameters = regexp.MustCompile(`Valid parameters are: '(.*)'$`)

// The documented parameters are the ones that the handlers accept. A handler lists them
// in its error for an unknown parameter.
func TestDescribedParameters(t *testing.T) {
	t.Parallel()
	h := newOrgServer(t)
	h.guids["/v3/stacks/"] = stack.GUID("host")
	h.local = h.s.Local() // these requests do not match the description
	compared := 0
	for pattern, o := range operations() {
		method, path := h.methodAndPath(t, pattern)
		if method != http.MethodGet || rights[pattern].Local {
			continue
		}
		got := h.request(method, path+"?surprise=1", "")
		var e v3.Errors
		_ = json.Unmarshal(got.Body.Bytes(), &e) // other responses are checked below
		if got.Code != http.StatusBadRequest || len(e.Errors) != 1 {
			if o.Pages {
				t.Errorf("%s?surprise=1 = %d %s, want 400: a list refuses what it does not know", pattern, got.Code, got.Body)
			}
			continue
		}
		listed := validParameters.FindStringSubmatch(e.Errors[0].Detail)
		if listed == nil {
			continue
		}
		compared++
		names := strings.Split(listed[1], "', '")
		own := slices.DeleteFunc(names, func(name string) bool { return name == "order_by" || slices.Contains(rest.OfLists, name) })
		if diff := cmp.Diff(sorted(own), sorted(o.Params)); diff != "" {
			t.Errorf("%s knows other parameters than are described (-known +described):\n%s", pattern, diff)
		}
		h.wantOrders(t, pattern, path, o)
	}
	if compared < 30 {
		t.Errorf("only %d endpoints told their parameters", compared)
	}
}

func sorted(names []string) []string { return slices.Sorted(slices.Values(names)) }

// wantOrders checks that a list can be ordered by exactly the documented keys.
func (h *orgServer) wantOrders(t *testing.T, pattern, path string, o rest.Shape) {
	t.Helper()
	if !o.Pages {
		return
	}
	got := h.request("GET", path+"?order_by=surprise", "")
	if want := "'" + strings.Join(o.Orders, "', '") + "'"; !strings.Contains(got.Body.String(), want) {
		t.Errorf("%s?order_by=surprise = %s, want it to say %s", pattern, got.Body, want)
	}
}

// openAPIRules are the rules of OpenAPI 3.1 for the parts that are used here. All other
// parts are refused.
const openAPIRules = `{
	"$schema": "https://json-schema.org/draft/2020-12/schema",
	"type": "object", "required": ["openapi", "info", "paths"], "additionalProperties": false,
	"properties": {
		"openapi": {"pattern": "^3\\.1\\.[0-9]+$"},
		"jsonSchemaDialect": {"type": "string", "format": "uri"},
		"info": {
			"type": "object", "required": ["title", "version"], "additionalProperties": false,
			"properties": {"title": {"type": "string"}, "version": {"type": "string"}, "description": {"type": "string"}}
		},
		"servers": {"type": "array", "items": {"type": "object", "required": ["url"], "properties": {"url": {"type": "string", "format": "uri-reference"}}}},
		"security": {"$ref": "#/$defs/security"},
		"paths": {"type": "object", "additionalProperties": false, "patternProperties": {"^/": {"$ref": "#/$defs/item"}}},
		"components": {
			"type": "object", "additionalProperties": false, "properties": {
				"schemas": {"$ref": "#/$defs/named", "additionalProperties": {"$ref": "https://json-schema.org/draft/2020-12/schema"}},
				"responses": {"$ref": "#/$defs/named", "additionalProperties": {"$ref": "#/$defs/response"}},
				"securitySchemes": {"$ref": "#/$defs/named", "additionalProperties": {
					"type": "object", "required": ["type", "scheme"], "additionalProperties": false,
					"properties": {"type": {"const": "http"}, "scheme": {"type": "string"}, "bearerFormat": {"type": "string"}, "description": {"type": "string"}}
				}}
			}
		}
	},
	"$defs": {
		"named": {"type": "object", "propertyNames": {"pattern": "^[a-zA-Z0-9._-]+$"}},
		"security": {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}}},
		"item": {
			"type": "object", "propertyNames": {"enum": ["get", "put", "post", "delete", "options", "head", "patch", "trace"]},
			"additionalProperties": {"$ref": "#/$defs/operation"}
		},
		"operation": {
			"type": "object", "required": ["responses"], "additionalProperties": false,
			"properties": {
				"tags": {"type": "array", "items": {"type": "string"}}, "operationId": {"type": "string"}, "description": {"type": "string"},
				"security": {"$ref": "#/$defs/security"},
				"parameters": {"type": "array", "items": {"$ref": "#/$defs/parameter"}},
				"requestBody": {
					"type": "object", "required": ["content"], "additionalProperties": false,
					"properties": {"required": {"type": "boolean"}, "content": {"$ref": "#/$defs/content"}}
				},
				"responses": {
					"type": "object", "minProperties": 1, "additionalProperties": false,
					"properties": {"default": {"$ref": "#/$defs/response"}},
					"patternProperties": {"^[1-5]([0-9][0-9]|XX)$": {"$ref": "#/$defs/response"}}
				}
			}
		},
		"parameter": {
			"type": "object", "required": ["name", "in", "schema"], "additionalProperties": false,
			"properties": {
				"name": {"type": "string"}, "in": {"enum": ["query", "header", "path", "cookie"]}, "required": {"type": "boolean"},
				"schema": {"$ref": "https://json-schema.org/draft/2020-12/schema"},
				"style": {"enum": ["form", "spaceDelimited", "pipeDelimited", "deepObject"]}, "explode": {"type": "boolean"}
			},
			"if": {"properties": {"in": {"const": "path"}}}, "then": {"required": ["required"], "properties": {"required": {"const": true}}}
		},
		"content": {
			"type": "object", "propertyNames": {"pattern": "^[a-z]+/[a-z0-9.+-]+$"},
			"additionalProperties": {
				"type": "object", "additionalProperties": false, "properties": {"schema": {"$ref": "https://json-schema.org/draft/2020-12/schema"}}
			}
		},
		"response": {
			"type": "object", "oneOf": [
				{"required": ["$ref"], "additionalProperties": false, "properties": {"$ref": {"pattern": "^#/components/responses/"}}},
				{
					"required": ["description"], "additionalProperties": false,
					"properties": {
						"description": {"type": "string"}, "content": {"$ref": "#/$defs/content"},
						"headers": {"type": "object", "additionalProperties": {"type": "object", "required": ["schema"]}}
					}
				}
			]
		}
	}
}`
