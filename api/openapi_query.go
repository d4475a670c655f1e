package api

import (
	"regexp"
	"slices"
	"strings"
)

// pathPart is a part of a path that has a name.
var pathPart = regexp.MustCompile(`\{([a-z_]+)\}`)

// ofLists are the parameters that every list knows, besides order_by.
var ofLists = []string{"page", "per_page", paramCreated, paramUpdated}

// operators are those of times.
var operators = []string{"gt", "gte", "lt", "lte"}

// parameters are all that may be said beside the body.
func (o operation) parameters(path string, choices map[string][]string) []object {
	var all []object
	for _, part := range pathPart.FindAllStringSubmatch(path, -1) {
		all = append(all, object{"name": part[1], "in": "path", "required": true, "schema": object{"type": "string"}})
	}
	if o.pages {
		all = append(all, asked("order_by", object{"type": "string", "enum": bothWays(o.orders)}))
		for _, name := range ofLists {
			all = append(all, parameter(name, choices))
		}
		for _, name := range []string{paramCreated, paramUpdated} {
			for _, op := range operators {
				all = append(all, asked(name+"["+op+"]", timeSchema()))
			}
		}
	}
	for _, name := range o.asks {
		all = append(all, parameter(name, choices))
	}
	return all
}

// asked is a query parameter with one value.
func asked(name string, schema object) object {
	return object{"name": name, "in": "query", "schema": schema}
}

// parameter is a query parameter. Most have values with commas between them.
func parameter(name string, choices map[string][]string) object {
	if schema, ok := single[name]; ok {
		return asked(name, schema)
	}
	items := object{"type": "string"}
	if name == paramCreated || name == paramUpdated {
		items = timeSchema()
	}
	if names, ok := choices[name]; ok {
		items = object{"enum": names}
	}
	p := asked(name, object{"type": "array", "items": items})
	p["style"], p["explode"] = "form", name == "envelope_types"
	return p
}

func timeSchema() object { return object{"type": "string", "format": "date-time"} }

// single are the parameters that have one value.
var single = map[string]object{
	"page":     {"type": "integer", "minimum": 1},
	"per_page": {"type": "integer", "minimum": 1, "maximum": maxPerPage},

	paramSelector: {"type": "string"},
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
	"instance": {"type": "integer", "minimum": 0}, "stream": {"enum": []string{"OUT", "ERR"}},
	"since": timeSchema(), "until": timeSchema(),

	"to": {"type": "string"}, "kind": {"type": "string"}, "subject": {"type": "string"},
	"after": {"type": "integer", "minimum": 0}, "timeout": {"type": "string"},
}

// bothWays are orders, and the same from the end.
func bothWays(orders []string) []string {
	all := slices.Clone(orders)
	for _, name := range orders {
		all = append(all, "-"+name)
	}
	return all
}

// knows tells whether an operation has a query parameter.
func (o operation) knows(name string) bool {
	if slices.Contains(o.asks, name) {
		return true
	}
	bare, _, _ := strings.Cut(name, "[")
	return o.pages && (name == "order_by" || slices.Contains(ofLists, bare))
}
