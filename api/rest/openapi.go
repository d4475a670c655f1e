package rest

import (
	"maps"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/auth"
)

// Shape describes the request and the responses of an endpoint.
type Shape struct {
	Bodies    []Content         // alternatives for the body, empty if no body is read
	Responses map[int][]Content // successful responses by status, no content means no body
	Params    []string          // query parameters
	Pages     bool              // it is a list, with the parameters of all lists
	Orders    []string          // orders of a list
	Lenient   bool              // it ignores query parameters that it does not know
	Job       bool              // a 202 response has the URL of a job in Location
}

// Content is a body: JSON of a type, or bytes of a media type.
type Content struct {
	Kind string
	Of   reflect.Type // nil for bytes
}

// MediaJSON is the media type of JSON.
const MediaJSON = "application/json"

// JSON returns a JSON body of the type.
func JSON[T any]() Content { return Content{Kind: MediaJSON, Of: reflect.TypeFor[T]()} }

// Bytes returns a body of another media type.
func Bytes(kind string) Content { return Content{Kind: kind} }

// Returns is the shape of a JSON response of the type.
func Returns[T any](status int) Shape {
	return Shape{Responses: map[int][]Content{status: {JSON[T]()}}}
}

// ReturnsBytes is the shape of a response with bytes.
func ReturnsBytes(kinds ...string) Shape {
	o := Shape{Responses: map[int][]Content{}}
	for _, kind := range kinds {
		o.Responses[http.StatusOK] = append(o.Responses[http.StatusOK], Bytes(kind))
	}
	return o
}

// Empty is the shape of a response without a body.
func Empty(status int) Shape { return Shape{Responses: map[int][]Content{status: nil}} }

// StartsJob is the shape of a response with the URL of a job.
func StartsJob() Shape {
	o := Empty(http.StatusAccepted)
	o.Job = true
	return o
}

// PageOf is the shape of a response with a page of a list.
func PageOf[T any](filters ...string) Shape {
	return Returns[v3.List[T]](http.StatusOK).Paginated().OrderedBy(defaultOrders...).Query(filters...)
}

// Paginated declares the response as a page of a list.
func (o Shape) Paginated() Shape { o.Pages = true; return o }

// Reads declares the request body.
func (o Shape) Reads(cs ...Content) Shape { o.Bodies = cs; return o }

// Query declares query parameters, in addition to those of all lists.
func (o Shape) Query(names ...string) Shape { o.Params = names; return o }

// IgnoresOthers declares that unknown query parameters are ignored.
func (o Shape) IgnoresOthers() Shape { o.Lenient = true; return o }

// OrderedBy declares the orders of a list, if they differ from the default.
func (o Shape) OrderedBy(orders ...string) Shape { o.Orders = orders; return o }

// Or adds the responses of another shape as alternatives.
func (o Shape) Or(other Shape) Shape {
	o.Responses = maps.Clone(o.Responses)
	maps.Copy(o.Responses, other.Responses)
	o.Job = o.Job || other.Job
	return o
}

// Object is a part of the description.
type Object = map[string]any

// Document returns the OpenAPI description of all endpoints.
func Document(address, version string, d Object) Object {
	return Object{
		"openapi":           "3.1.0",
		"jsonSchemaDialect": "https://spec.openapis.org/oas/3.1/dialect/base",
		"info": Object{
			"title": "dew", "version": version,
			"description": "The v3 API of Cloud Foundry, its UAA, log-cache, and dew's own endpoints. The version of the v3 API is " + APIVersion + ".",
		},
		"servers":    []Object{{"url": address}},
		"security":   []Object{{"token": []string{}}},
		"paths":      d["paths"],
		"components": d["components"],
	}
}

// DescribeAll returns the part of the description that is the same for every server.
// choices are the allowed values of some query parameters.
func DescribeAll(rows []Endpoint, choices map[string][]string) Object {
	in, out := newShapes("Request"), newShapes("")
	failed := Object{MediaJSON: Object{"schema": out.of(errorsType)}}
	paths := Object{}
	for _, e := range rows {
		method, path, _ := strings.Cut(e.Pattern, " ")
		path = strings.TrimSuffix(path, "{$}")
		item, ok := paths[path].(Object)
		if !ok {
			item = Object{}
			paths[path] = item
		}
		item[strings.ToLower(method)] = describe(e, choices, in, out)
	}
	maps.Copy(paths, auth.Description())
	schemas := Object{}
	maps.Copy(schemas, out.named)
	maps.Copy(schemas, in.named)
	return Object{"paths": paths, "components": Object{
		"schemas":   schemas,
		"responses": Object{"Errors": Object{"description": "The errors, each with its code, title and detail.", "content": failed}},
		"securitySchemes": Object{"token": Object{
			"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "A token of the UAA at /uaa. Requests on the socket of dewd need no token.",
		}},
	}}
}

// describe returns the description of one operation.
func describe(e Endpoint, choices map[string][]string, in, out *shapes) Object {
	_, path, _ := strings.Cut(e.Pattern, " ")
	o := e.Shape
	d := Object{"operationId": OperationID(e.Pattern), "tags": []string{tagOf(path)}, "responses": e.responses(out)}
	if parameters := o.parameters(path, choices); len(parameters) > 0 {
		d["parameters"] = parameters
	}
	if len(o.Bodies) > 0 {
		d["requestBody"] = Object{"required": true, "content": contents(o.Bodies, in)}
	}
	if e.Needs == access.Public {
		d["security"] = []Object{}
	}
	if e.Open {
		d["security"] = []Object{{}, {"token": []string{}}}
	}
	if e.Local {
		d["description"] = "Available only on the socket of dewd."
	}
	return d
}

// responses describes all responses. Every error has the same shape.
func (e Endpoint) responses(out *shapes) Object {
	failed := Object{"$ref": "#/components/responses/Errors"}
	d := Object{"default": failed}
	for _, status := range e.failures() {
		d[strconv.Itoa(status)] = failed
	}
	for status, cs := range e.Shape.Responses {
		r := Object{"description": http.StatusText(status)}
		if len(cs) > 0 {
			r["content"] = contents(cs, out)
		}
		if status == http.StatusAccepted && e.Shape.Job {
			r["headers"] = Object{"Location": Object{
				"description": "URL of the job.", "required": true, "schema": Object{"type": "string", "format": "uri"},
			}}
		}
		d[strconv.Itoa(status)] = r
	}
	return d
}

// failures returns the statuses of errors that the caller can fix.
func (e Endpoint) failures() []int {
	var all []int
	o := e.Shape
	if e.Needs != access.Public {
		all = append(all, http.StatusUnauthorized, http.StatusForbidden)
	}
	if e.Local || e.Hidden || strings.Contains(e.Pattern, "{") && !strings.HasSuffix(e.Pattern, "{$}") {
		all = append(all, http.StatusNotFound)
	}
	if o.Pages || len(o.Params) > 0 || len(o.Bodies) > 0 {
		all = append(all, http.StatusBadRequest)
	}
	if len(o.Bodies) > 0 {
		all = append(all, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity)
	}
	return all
}

// contents describes bodies by media type. One media type can have several shapes.
func contents(cs []Content, s *shapes) Object {
	d := Object{}
	for _, c := range cs {
		if c.Of == nil {
			d[c.Kind] = Object{} // bytes have no schema
			continue
		}
		schema := s.of(c.Of)
		if other, ok := d[c.Kind].(Object); ok {
			schema = Object{"anyOf": []any{other["schema"], schema}}
		}
		d[c.Kind] = Object{"schema": schema}
	}
	return d
}

// OperationID turns a pattern into one word.
func OperationID(pattern string) string {
	words := strings.FieldsFunc(strings.ToLower(pattern), func(r rune) bool { return strings.ContainsRune(" /{}$.-", r) })
	return strings.Join(words, "_")
}

// tagOf returns the subject of an endpoint.
func tagOf(path string) string {
	for prefix, name := range map[string]string{"/dew/v1/": "dew", "/api/v1/": "log-cache", "/stream/v1/": "streams", "/v2/read": "log stream gateway", "/routing/v1/": "router groups"} {
		if strings.HasPrefix(path, prefix) {
			return name
		}
	}
	if rest, ok := strings.CutPrefix(path, "/v3/"); ok {
		word, _, _ := strings.Cut(rest, "/")
		return strings.ReplaceAll(word, "_", " ")
	}
	return "daemon"
}
