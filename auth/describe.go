package auth

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/golang-jwt/jwt/v5"
)

// described holds the request and the response of an endpoint, for OpenAPI. All errors
// have the same shape.
type described struct {
	takes  reflect.Type // JSON body, nil for none
	form   []string     // fields of a form, instead of a JSON body
	must   []string     // the required ones of them
	gives  any          // a type, or a schema written by hand; nil for no body
	status int          // 0 means 200
	asks   []string     // query parameters
	open   bool         // needs no token
}

type schema = map[string]any

// written returns the schema of an object whose keys are all required, each with its
// type.
func written(keys map[string]any) schema {
	return schema{"type": "object", "properties": keys, "required": slices.Sorted(maps.Keys(keys))}
}

var (
	aText    = schema{"type": "string"}
	aNumber  = schema{"type": "integer"}
	texts    = schema{"type": "array", "items": aText}
	nothing  = schema{"type": "object", "maxProperties": 0}
	done     = written(schema{"status": aText, "message": aText})
	aProblem = schema{
		"type": "object", "required": []string{"error", "error_description"},
		"properties": schema{"error": aText, "error_description": aText, "scope": aText},
	}
	listAsks = []string{"filter", "sortBy", "sortOrder", "startIndex", "count", "attributes"}
	loginWay = written(schema{
		"app": schema{"type": "object"}, "zone_name": aText, "entityID": aText, "links": schema{"type": "object"},
		"prompts": schema{"type": "object", "additionalProperties": texts},
	})
)

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

// pageOf is the schema of a list of one kind. No attribute is required, because a
// client can request only some of them.
func pageOf[T any]() schema {
	one := schemaOf(typeOf[T]())
	delete(one, "required")
	page := schemaOf(typeOf[scimList]())
	page["properties"].(schema)["resources"] = schema{"type": "array", "items": one}
	return page
}

var descriptions = map[string]described{
	"GET /uaa/login":      {gives: loginWay, open: true},
	"GET /uaa/info":       {gives: loginWay, open: true},
	"GET /uaa/healthz":    {gives: written(schema{"status": aText}), open: true},
	"GET /uaa/token_key":  {gives: typeOf[publicKey](), open: true},
	"GET /uaa/token_keys": {gives: written(schema{"keys": schema{"type": "array", "items": schemaOf(typeOf[publicKey]())}}), open: true},
	"GET /uaa/.well-known/openid-configuration": {open: true, gives: written(schema{
		"issuer": aText, "authorization_endpoint": aText, "token_endpoint": aText, "userinfo_endpoint": aText, "jwks_uri": aText, "grant_types_supported": texts,
	})},

	"POST /uaa/oauth/token": {open: true, gives: typeOf[tokenReply](), asks: []string{"login_hint"}, must: []string{"grant_type"}, form: []string{
		"grant_type", "username", "password", "passcode", "login_hint", "refresh_token", "code", "redirect_uri", "client_id", "client_secret", "scope", "token_format", "response_type", "assertion",
	}},
	"GET /uaa/oauth/authorize":                   {status: http.StatusFound, asks: []string{"client_id", "response_type", "redirect_uri", "scope", "state", "grant_type"}},
	"DELETE /uaa/oauth/token/revoke/{jti}":       {gives: nothing},
	"DELETE /uaa/oauth/token/revoke/user/{id}":   {gives: nothing},
	"DELETE /uaa/oauth/token/revoke/client/{id}": {gives: nothing},
	"POST /uaa/check_token":                      {gives: typeOf[claims](), form: []string{"token", "scopes"}, must: []string{"token"}},
	"POST /uaa/introspect":                       {gives: schema{"type": "object", "required": []string{"active"}, "properties": schema{"active": schema{"type": "boolean"}}}, form: []string{"token", "token_type_hint"}, must: []string{"token"}},
	"GET /uaa/userinfo":                          {gives: written(schema{"user_id": aText, "sub": aText, "user_name": aText, "origin": aText, "name": aText, "given_name": aText, "family_name": aText, "email": aText, "email_verified": schema{"type": "boolean"}})},
	"GET /uaa/passcode":                          {gives: written(schema{"passcode": aText, "expires_in": aNumber})},

	"GET /uaa/Users":               {gives: pageOf[scimUser](), asks: listAsks},
	"POST /uaa/Users":              {takes: typeOf[userBody](), gives: typeOf[scimUser](), status: http.StatusCreated},
	"GET /uaa/Users/{id}":          {gives: typeOf[scimUser]()},
	"PUT /uaa/Users/{id}":          {takes: typeOf[userBody](), gives: typeOf[scimUser]()},
	"PATCH /uaa/Users/{id}":        {takes: typeOf[userBody](), gives: typeOf[scimUser]()},
	"DELETE /uaa/Users/{id}":       {gives: typeOf[scimUser]()},
	"PUT /uaa/Users/{id}/password": {takes: typeOf[newPassword](), gives: done},

	"GET /uaa/Groups":                          {gives: pageOf[group](), asks: listAsks},
	"GET /uaa/Groups/{id}":                     {gives: typeOf[group]()},
	"POST /uaa/Groups":                         {takes: typeOf[groupBody](), gives: typeOf[group](), status: http.StatusCreated},
	"PUT /uaa/Groups/{id}":                     {takes: typeOf[groupBody](), gives: typeOf[group]()},
	"PATCH /uaa/Groups/{id}":                   {takes: typeOf[groupPatch](), gives: typeOf[group]()},
	"DELETE /uaa/Groups/{id}":                  {gives: typeOf[group]()},
	"GET /uaa/Groups/{id}/members":             {gives: typeOf[[]groupMember](), asks: []string{"returnEntities"}},
	"POST /uaa/Groups/{id}/members":            {takes: typeOf[groupMember](), gives: typeOf[groupMember](), status: http.StatusCreated},
	"DELETE /uaa/Groups/{id}/members/{member}": {gives: typeOf[groupMember]()},

	"GET /uaa/oauth/clients":             {gives: pageOf[shownClient](), asks: listAsks},
	"POST /uaa/oauth/clients":            {takes: typeOf[clientBody](), gives: typeOf[shownClient](), status: http.StatusCreated},
	"GET /uaa/oauth/clients/{id}":        {gives: typeOf[shownClient]()},
	"PUT /uaa/oauth/clients/{id}":        {takes: typeOf[clientBody](), gives: typeOf[shownClient]()},
	"DELETE /uaa/oauth/clients/{id}":     {gives: typeOf[shownClient]()},
	"PUT /uaa/oauth/clients/{id}/secret": {takes: typeOf[newSecret](), gives: done},
}

// Description returns the OpenAPI descriptions of all paths of this package, by path
// and method.
func Description() map[string]any {
	paths := map[string]any{}
	for pattern, d := range descriptions {
		method, path, _ := strings.Cut(pattern, " ")
		item, ok := paths[path].(map[string]any)
		if !ok {
			item = map[string]any{}
			paths[path] = item
		}
		item[strings.ToLower(method)] = d.operation(pattern, path)
	}
	return paths
}

func (d described) operation(pattern, path string) map[string]any {
	words := strings.FieldsFunc(strings.ToLower(pattern), func(r rune) bool { return strings.ContainsRune(" /{}.-", r) })
	good := map[string]any{"description": http.StatusText(d.code())}
	if d.gives != nil {
		good["content"] = asJSON(shapeOf(d.gives))
	}
	failed := map[string]any{"description": "The error, in the format of OAuth and SCIM.", "content": asJSON(aProblem)}
	out := map[string]any{
		"operationId": strings.Join(words, "_"), "tags": []string{"uaa"},
		"responses": map[string]any{strconv.Itoa(d.code()): good, "default": failed},
	}
	if ps := d.parameters(path); len(ps) > 0 {
		out["parameters"] = ps
	}
	switch {
	case d.takes != nil:
		out["requestBody"] = map[string]any{"required": true, "content": asJSON(asked(schemaOf(d.takes)))}
	case d.form != nil:
		fields := schema{}
		for _, name := range d.form {
			fields[name] = aText
		}
		out["requestBody"] = map[string]any{"required": true, "content": map[string]any{
			"application/x-www-form-urlencoded": map[string]any{"schema": schema{"type": "object", "properties": fields, "required": d.must}},
		}}
	}
	if d.open {
		out["security"] = []any{}
	}
	return out
}

func (d described) code() int {
	if d.status == 0 {
		return http.StatusOK
	}
	return d.status
}

func (d described) parameters(path string) (out []map[string]any) {
	for part := range strings.SplitSeq(path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			out = append(out, map[string]any{"name": strings.TrimSuffix(name, "}"), "in": "path", "required": true, "schema": aText})
		}
	}
	for _, name := range d.asks {
		out = append(out, map[string]any{"name": name, "in": "query", "schema": aText})
	}
	return out
}

func asJSON(s schema) map[string]any {
	return map[string]any{"application/json": map[string]any{"schema": s}}
}

func shapeOf(gives any) schema {
	if t, ok := gives.(reflect.Type); ok {
		return schemaOf(t)
	}
	return gives.(schema)
}

// asked returns the schema of a request body: a client can leave out any key.
func asked(s schema) schema {
	out := maps.Clone(s)
	delete(out, "required")
	if of, ok := s["items"].(schema); ok {
		out["items"] = asked(of)
	}
	if keys, ok := s["properties"].(schema); ok {
		loose := schema{}
		for name, of := range keys {
			loose[name] = asked(of.(schema))
		}
		out["properties"] = loose
	}
	return out
}

// schemaOf returns the JSON schema of a type.
func schemaOf(t reflect.Type) schema {
	switch t {
	case typeOf[stringList]():
		return schema{"anyOf": []any{aText, texts}}
	case typeOf[jwt.NumericDate]():
		return schema{"type": "number"}
	case typeOf[jwt.ClaimStrings]():
		return schema{"anyOf": []any{aText, texts}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.String:
		return aText
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return aNumber
	case reflect.Slice:
		return schema{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Struct:
		return structSchema(t)
	}
	return schema{}
}

func structSchema(t reflect.Type) schema {
	keys, required := schema{}, []string{}
	for f := range t.Fields() {
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			of := schemaOf(f.Type)
			maps.Copy(keys, of["properties"].(schema))
			required = append(required, of["required"].([]string)...)
			continue
		}
		if !f.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		keys[name] = schemaOf(f.Type)
		if !strings.Contains(rest, "omit") {
			required = append(required, name)
		}
	}
	return schema{"type": "object", "properties": keys, "required": required}
}
