package rest

import (
	"regexp"
	"slices"
	"strings"
)

// pathPart matches a named part of a path.
var pathPart = regexp.MustCompile(`\{([a-z_]+)\}`)

// OfLists are the parameters of every list, in addition to order_by.
var OfLists = []string{"page", "per_page", ParamCreated, ParamUpdated}

// Operators are the operators of time filters.
var Operators = []string{"gt", "gte", "lt", "lte"}

// parameters describes the path and query parameters.
func (o Shape) parameters(path string, choices map[string][]string) []Object {
	var all []Object
	for _, part := range pathPart.FindAllStringSubmatch(path, -1) {
		all = append(all, Object{"name": part[1], "in": "path", "required": true, "schema": Object{"type": "string"}})
	}
	if o.Pages {
		all = append(all, singleParameter("order_by", Object{"type": "string", "enum": bothDirections(o.Orders)}))
		for _, name := range OfLists {
			all = append(all, parameter(name, choices))
		}
		for _, name := range []string{ParamCreated, ParamUpdated} {
			for _, op := range Operators {
				all = append(all, singleParameter(name+"["+op+"]", timeSchema()))
			}
		}
	}
	for _, name := range o.Params {
		all = append(all, parameter(name, choices))
	}
	return all
}

// singleParameter describes a query parameter with one value.
func singleParameter(name string, schema Object) Object {
	return Object{"name": name, "in": "query", "schema": schema}
}

// parameter describes a query parameter. Most have values separated by commas.
func parameter(name string, choices map[string][]string) Object {
	if schema, ok := Single[name]; ok {
		return singleParameter(name, schema)
	}
	items := Object{"type": "string"}
	if name == ParamCreated || name == ParamUpdated {
		items = timeSchema()
	}
	if names, ok := choices[name]; ok {
		items = Object{"enum": names}
	}
	p := singleParameter(name, Object{"type": "array", "items": items})
	p["style"], p["explode"] = "form", name == "envelope_types"
	return p
}

func timeSchema() Object { return Object{"type": "string", "format": "date-time"} }

// Single are the parameters that have one value.
var Single = map[string]Object{
	"page":     {"type": "integer", "minimum": 1},
	"per_page": {"type": "integer", "minimum": 1, "maximum": MaxPerPage},

	ParamSelector: {"type": "string"},
	"purge":       {"type": "boolean"}, "available": {"type": "boolean"}, "default": {"type": "boolean"}, "current": {"type": "boolean"},
	"unmapped":   {"const": "true"},
	"deployable": {"type": "boolean"}, "source_guid": {"type": "string"},
	"host": {"type": "string"}, "path": {"type": "string"}, "name": {"type": "string"},
	"port": {"type": "integer", "minimum": 1, "maximum": 65535},
	"type": {"type": "string"},

	"start_time": {"type": "integer"}, "end_time": {"type": "integer"}, "descending": {"type": "boolean"},
	"limit": {"type": "integer", "minimum": 1},

	"follow": {"type": "boolean"}, "no_sidecars": {"type": "boolean"}, "no_platform": {"type": "boolean"}, "since_last_start": {"type": "boolean"},
	"from": {"type": "integer", "minimum": 0}, "newest": {"type": "integer", "minimum": 0}, "crash": {"type": "integer", "minimum": 1},
	"source": {"type": "string"}, "process": {"type": "string"}, "sidecar": {"type": "string"}, "contains": {"type": "string"},
	"index": {"type": "integer", "minimum": 0}, "cols": {"type": "integer", "minimum": 1}, "rows": {"type": "integer", "minimum": 1},
	"instance": {"type": "integer", "minimum": 0}, "stream": {"enum": []string{"OUT", "ERR"}},
	"since": timeSchema(), "until": timeSchema(),

	"to": {"type": "string"}, "kind": {"type": "string"}, "subject": {"type": "string"},
	"after": {"type": "integer", "minimum": 0}, "timeout": {"type": "string"},
}

// bothDirections returns the orders, ascending and descending.
func bothDirections(orders []string) []string {
	all := slices.Clone(orders)
	for _, name := range orders {
		all = append(all, "-"+name)
	}
	return all
}

// HasParam reports whether an operation has a query parameter.
func (o Shape) HasParam(name string) bool {
	if o.Lenient || slices.Contains(o.Params, name) {
		return true
	}
	bare, _, _ := strings.Cut(name, "[")
	return o.Pages && (name == "order_by" || slices.Contains(OfLists, bare))
}
