package api

import (
	"maps"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/auth"
)

// openapiEndpoints are the endpoints of this file.
func (s *Server) openapiEndpoints() []Endpoint {
	return []Endpoint{
		{Pattern: "GET /openapi.json", Needs: public, Handler: s.getDescription, Shape: gives[map[string]any](200)},
	}
}

// operation is what an endpoint takes and gives.
type operation struct {
	takes  []content         // one of them is the body; none: no body is read
	gives  map[int][]content // what succeeds, by status; no content: no body
	asks   []string          // query parameters
	pages  bool              // it is a list, and knows the parameters of all lists
	orders []string          // of a list
	job    bool              // 202 tells in Location where to ask for a job
}

// content is a body: JSON of a type, or bytes of a kind.
type content struct {
	kind string
	of   reflect.Type // nil: bytes
}

const kindJSON = "application/json"

func jsonOf[T any]() content { return content{kind: kindJSON, of: reflect.TypeFor[T]()} }

func bytesOf(kind string) content { return content{kind: kind} }

// gives answers with JSON of a type.
func gives[T any](status int) operation {
	return operation{gives: map[int][]content{status: {jsonOf[T]()}}}
}

// givesBytes answers with bytes.
func givesBytes(kinds ...string) operation {
	o := operation{gives: map[int][]content{}}
	for _, kind := range kinds {
		o.gives[http.StatusOK] = append(o.gives[http.StatusOK], bytesOf(kind))
	}
	return o
}

// ends answers without a body.
func ends(status int) operation { return operation{gives: map[int][]content{status: nil}} }

// begins answers with the address of a job.
func begins() operation {
	o := ends(http.StatusAccepted)
	o.job = true
	return o
}

// pageOf answers with a page of a list.
func pageOf[T any](filters ...string) operation {
	return gives[v3.List[T]](http.StatusOK).paged().by(defaultOrders...).ask(filters...)
}

// paged says that the answer is a page of a list.
func (o operation) paged() operation { o.pages = true; return o }

// from says which body is read.
func (o operation) from(cs ...content) operation { o.takes = cs; return o }

// ask says which query parameters are known, besides those of all lists.
func (o operation) ask(names ...string) operation { o.asks = names; return o }

// by says what a list is ordered by, where that is not what most are.
func (o operation) by(orders ...string) operation { o.orders = orders; return o }

// or is for what answers in one way or the other.
func (o operation) or(other operation) operation {
	o.gives = maps.Clone(o.gives)
	maps.Copy(o.gives, other.gives)
	o.job = o.job || other.job
	return o
}

// object is a part of the description.
type object = map[string]any

// document is the description of all endpoints.
func document(address, version string, d object) object {
	return object{
		"openapi":           "3.1.0",
		"jsonSchemaDialect": "https://spec.openapis.org/oas/3.1/dialect/base",
		"info": object{
			"title": "dew", "version": version,
			"description": "The v3 API of the platform, its UAA, log-cache, and what is dew's own. The platform's version is " + apiVersion + ".",
		},
		"servers":    []object{{"url": address}},
		"security":   []object{{"token": []string{}}},
		"paths":      d["paths"],
		"components": d["components"],
	}
}

// describeAll is the part of the description that is the same for every server.
// choices are the values that some query parameters have.
func describeAll(rows []Endpoint, choices map[string][]string) object {
	in, out := newShapes("Request"), newShapes("")
	failed := object{kindJSON: object{"schema": out.of(errorsType)}}
	paths := object{}
	for _, e := range rows {
		method, path, _ := strings.Cut(e.Pattern, " ")
		path = strings.TrimSuffix(path, "{$}")
		item, ok := paths[path].(object)
		if !ok {
			item = object{}
			paths[path] = item
		}
		item[strings.ToLower(method)] = describe(e, choices, in, out)
	}
	maps.Copy(paths, auth.Description())
	schemas := object{}
	maps.Copy(schemas, out.named)
	maps.Copy(schemas, in.named)
	return object{"paths": paths, "components": object{
		"schemas":   schemas,
		"responses": object{"Errors": object{"description": "What is wrong, and whose fault it is.", "content": failed}},
		"securitySchemes": object{"token": object{
			"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "A token of the UAA at /uaa. Nobody needs one at the socket of the daemon.",
		}},
	}}
}

// getDescription is for everybody: it tells nothing of what there is.
func (s *Server) getDescription(*http.Request) (any, error) {
	return document(s.links.Public.String(), s.c.Version, s.described()), nil
}

// describe is one operation.
func describe(e Endpoint, choices map[string][]string, in, out *shapes) object {
	_, path, _ := strings.Cut(e.Pattern, " ")
	o := e.Shape
	d := object{"operationId": operationID(e.Pattern), "tags": []string{tagOf(path)}, "responses": e.responses(out)}
	if parameters := o.parameters(path, choices); len(parameters) > 0 {
		d["parameters"] = parameters
	}
	if len(o.takes) > 0 {
		d["requestBody"] = object{"required": true, "content": contents(o.takes, in)}
	}
	if e.Needs == public {
		d["security"] = []object{}
	}
	if e.Open {
		d["security"] = []object{{}, {"token": []string{}}}
	}
	if e.Local {
		d["description"] = "Answered at the socket of the daemon alone."
	}
	return d
}

// responses are what may come of it. Every failure has the same shape.
func (e Endpoint) responses(out *shapes) object {
	failed := object{"$ref": "#/components/responses/Errors"}
	d := object{"default": failed}
	for _, status := range e.failures() {
		d[strconv.Itoa(status)] = failed
	}
	for status, cs := range e.Shape.gives {
		r := object{"description": http.StatusText(status)}
		if len(cs) > 0 {
			r["content"] = contents(cs, out)
		}
		if status == http.StatusAccepted && e.Shape.job {
			r["headers"] = object{"Location": object{
				"description": "Where to ask for the job.", "required": true, "schema": object{"type": "string", "format": "uri"},
			}}
		}
		d[strconv.Itoa(status)] = r
	}
	return d
}

// failures are the statuses of what the one who asks can put right.
func (e Endpoint) failures() []int {
	var all []int
	o := e.Shape
	if e.Needs != public {
		all = append(all, http.StatusUnauthorized, http.StatusForbidden)
	}
	if e.Local || e.Hidden || strings.Contains(e.Pattern, "{") && !strings.HasSuffix(e.Pattern, "{$}") {
		all = append(all, http.StatusNotFound)
	}
	if o.pages || len(o.asks) > 0 || len(o.takes) > 0 {
		all = append(all, http.StatusBadRequest)
	}
	if len(o.takes) > 0 {
		all = append(all, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity)
	}
	return all
}

// contents are bodies by their kind. Of one kind there may be several shapes.
func contents(cs []content, s *shapes) object {
	d := object{}
	for _, c := range cs {
		if c.of == nil {
			d[c.kind] = object{} // bytes have no schema
			continue
		}
		schema := s.of(c.of)
		if other, ok := d[c.kind].(object); ok {
			schema = object{"anyOf": []any{other["schema"], schema}}
		}
		d[c.kind] = object{"schema": schema}
	}
	return d
}

// operationID is the pattern in one word.
func operationID(pattern string) string {
	words := strings.FieldsFunc(strings.ToLower(pattern), func(r rune) bool { return strings.ContainsRune(" /{}$.-", r) })
	return strings.Join(words, "_")
}

// tagOf is what an endpoint is about.
func tagOf(path string) string {
	for prefix, name := range map[string]string{"/dew/v1/": "dew", "/api/v1/": "log-cache", "/stream/v1/": "streams", "/routing/v1/": "router groups"} {
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
