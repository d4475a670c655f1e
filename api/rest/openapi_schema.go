package rest

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/dewrun/dew/api/v3"
)

// shapes creates the schemas of JSON types, and stores those that have a name. Requests
// differ from responses: a number can be text, and most keys can be left out.
type shapes struct {
	suffix string // suffix of schema names in requests, empty for responses
	named  Object
	inner  bool // within another object, whose unknown keys are ignored in requests
}

func newShapes(suffix string) *shapes { return &shapes{suffix: suffix, named: Object{}} }

func (s *shapes) asked() bool { return s.suffix != "" }

var (
	errorsType = reflect.TypeFor[v3.Errors]()
	// IntType is a number that can be text.
	IntType = reflect.TypeFor[v3.Int]()
	rawType = reflect.TypeFor[json.RawMessage]()

	// OwnShapes are the types with their own encoding, or of any shape.
	OwnShapes = map[reflect.Type]func() Object{
		reflect.TypeFor[time.Time]():      timeSchema,
		reflect.TypeFor[v3.Time]():        timeSchema,
		rawType:                           func() Object { return Object{} },
		reflect.TypeFor[v3.RouteOption](): func() Object { return Object{"type": []string{"string", "number"}} },
		reflect.TypeFor[[]byte]():         func() Object { return Object{"type": "string", "contentEncoding": "base64"} },
	}

	// notWord matches the characters of a type name that a schema name cannot have.
	notWord = regexp.MustCompile(`[^A-Za-z0-9]+`)
)

// of returns the schema of a type.
func (s *shapes) of(t reflect.Type) Object {
	if own, ok := OwnShapes[t]; ok {
		return own()
	}
	if t == IntType && s.asked() {
		return Object{"anyOf": []Object{{"type": "integer"}, {"type": "string", "pattern": `^[+-]?[0-9]+$`}}}
	}
	if value, ok := Nullable(t); ok {
		return orNull(s.of(value))
	}
	switch t.Kind() {
	case reflect.Bool:
		return Object{"type": "boolean"}
	case reflect.String:
		return Object{"type": "string"}
	case reflect.Float32, reflect.Float64:
		return Object{"type": "number"}
	case reflect.Slice, reflect.Array:
		return Object{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		return Object{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.Struct:
		return s.ref(t)
	case reflect.Interface:
		return Object{}
	}
	if t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64 {
		return Object{"type": "integer"}
	}
	panic("cannot create a schema of " + t.String()) // the test of the description finds it first
}

// Nullable reports whether a type can be null, and returns its type without null.
func Nullable(t reflect.Type) (reflect.Type, bool) {
	if t.Kind() == reflect.Pointer {
		return t.Elem(), true
	}
	if t.Kind() == reflect.Struct && strings.HasPrefix(t.Name(), "Nullable[") {
		value, _ := t.FieldByName("Value")
		return value.Type, true
	}
	return nil, false
}

func orNull(schema Object) Object {
	if len(schema) == 0 {
		return schema
	}
	return Object{"anyOf": []Object{schema, {"type": "null"}}}
}

// ref returns a reference to the schema of a struct, by its name.
func (s *shapes) ref(t reflect.Type) Object {
	if t.Name() == "" {
		return s.object(t)
	}
	name := schemaName(t) + s.suffix
	if _, known := s.named[name]; !known {
		s.named[name] = Object{} // the type can contain itself
		s.named[name] = s.object(t)
	}
	return Object{"$ref": "#/components/schemas/" + name}
}

// schemaName returns the schema name of a type: List[v3.App] becomes ListApp.
func schemaName(t reflect.Type) string {
	name := t.Name()
	if whole, inner, ok := strings.Cut(name, "["); ok {
		name = whole + inner[strings.LastIndex(inner, ".")+1:]
	}
	return notWord.ReplaceAllString(name, "")
}

// object returns the schema of a struct. A response must not have undescribed keys. In a
// request the decoder refuses them as unknownKeys describes.
func (s *shapes) object(t reflect.Type) Object {
	properties, required := Object{}, []string{}
	s.fields(t, properties, &required)
	d := Object{"type": "object", "properties": properties}
	if !s.asked() || !s.inner {
		d["additionalProperties"] = false
	}
	if len(required) > 0 {
		d["required"] = required
	}
	return d
}

func (s *shapes) fields(t reflect.Type, properties Object, required *[]string) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
		case f.Anonymous && name == "":
			s.fields(f.Type, properties, required)
		default:
			if name == "" {
				name = f.Name
			}
			properties[name] = s.field(f)
			if strings.Contains(options, "string") {
				properties[name] = Object{"type": "string"} // a number as text
			}
			if !s.optional(t, f, options) {
				*required = append(*required, name)
			}
		}
	}
}

// field returns the schema of the type of a field.
func (s *shapes) field(f reflect.StructField) Object {
	before := s.inner
	defer func() { s.inner = before }()
	s.inner = f.Tag.Get("strict") != "true"
	return s.of(f.Type)
}

// optional reports whether a field can be missing. In a request, that includes every
// field that is not a text or an object: clients need not send an empty list or 0.
func (s *shapes) optional(t reflect.Type, f reflect.StructField, options string) bool {
	if strings.Contains(options, "omit") || t == reflect.TypeFor[v3.LifecycleData]() { // images have no settings
		return true
	}
	if !s.asked() {
		return false
	}
	kind := f.Type.Kind()
	return kind != reflect.String && kind != reflect.Struct
}
