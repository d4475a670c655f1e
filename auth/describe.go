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

// endpointDescription holds the request and the response of an endpoint, for OpenAPI.
// All errors have the same shape.
type endpointDescription struct {
	body     reflect.Type // JSON body, nil for none
	form     []string     // fields of a form, instead of a JSON body
	required []string     // the required ones of them
	response any          // a type, or a schema written by hand; nil for no body
	status   int          // 0 means 200
	query    []string     // query parameters
	public   bool         // needs no token
}

type schema = map[string]any

// objectSchema returns the schema of an object whose keys are all required, each with
// its type.
func objectSchema(keys map[string]any) schema {
	return schema{"type": "object", "properties": keys, "required": slices.Sorted(maps.Keys(keys))}
}

var (
	textSchema     = schema{"type": "string"}
	numberSchema   = schema{"type": "integer"}
	textListSchema = schema{"type": "array", "items": textSchema}
	emptySchema    = schema{"type": "object", "maxProperties": 0}
	messageSchema  = objectSchema(schema{"status": textSchema, "message": textSchema})
	problemSchema  = schema{
		"type": "object", "required": []string{"error", "error_description"},
		"properties": schema{"error": textSchema, "error_description": textSchema, "scope": textSchema},
	}
	listQuery   = []string{"filter", "sortBy", "sortOrder", "startIndex", "count", "attributes"}
	loginSchema = objectSchema(schema{
		"app": schema{"type": "object"}, "zone_name": textSchema, "entityID": textSchema, "links": schema{"type": "object"},
		"prompts": schema{"type": "object", "additionalProperties": textListSchema},
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

var descriptions = map[string]endpointDescription{
	"GET /uaa/login":      {response: loginSchema, public: true},
	"GET /uaa/info":       {response: loginSchema, public: true},
	"GET /uaa/healthz":    {response: objectSchema(schema{"status": textSchema}), public: true},
	"GET /uaa/token_key":  {response: typeOf[publicKey](), public: true},
	"GET /uaa/token_keys": {response: objectSchema(schema{"keys": schema{"type": "array", "items": schemaOf(typeOf[publicKey]())}}), public: true},
	"GET /uaa/.well-known/openid-configuration": {public: true, response: objectSchema(schema{
		"issuer": textSchema, "authorization_endpoint": textSchema, "token_endpoint": textSchema, "userinfo_endpoint": textSchema, "jwks_uri": textSchema, "grant_types_supported": textListSchema,
	})},

	"POST /uaa/oauth/token": {public: true, response: typeOf[tokenReply](), query: []string{"login_hint"}, required: []string{"grant_type"}, form: []string{
		"grant_type", "username", "password", "passcode", "login_hint", "refresh_token", "code", "redirect_uri", "client_id", "client_secret", "scope", "token_format", "response_type", "assertion",
	}},
	"GET /uaa/oauth/authorize":                   {status: http.StatusFound, query: []string{"client_id", "response_type", "redirect_uri", "scope", "state", "grant_type"}},
	"DELETE /uaa/oauth/token/revoke/{jti}":       {response: emptySchema},
	"DELETE /uaa/oauth/token/revoke/user/{id}":   {response: emptySchema},
	"DELETE /uaa/oauth/token/revoke/client/{id}": {response: emptySchema},
	"POST /uaa/check_token":                      {response: typeOf[claims](), form: []string{"token", "scopes"}, required: []string{"token"}},
	"POST /uaa/introspect":                       {response: schema{"type": "object", "required": []string{"active"}, "properties": schema{"active": schema{"type": "boolean"}}}, form: []string{"token", "token_type_hint"}, required: []string{"token"}},
	"GET /uaa/userinfo":                          {response: objectSchema(schema{"user_id": textSchema, "sub": textSchema, "user_name": textSchema, "origin": textSchema, "name": textSchema, "given_name": textSchema, "family_name": textSchema, "email": textSchema, "email_verified": schema{"type": "boolean"}})},
	"GET /uaa/passcode":                          {response: objectSchema(schema{"passcode": textSchema, "expires_in": numberSchema})},

	"GET /uaa/Users":               {response: pageOf[scimUser](), query: listQuery},
	"POST /uaa/Users":              {body: typeOf[userBody](), response: typeOf[scimUser](), status: http.StatusCreated},
	"GET /uaa/Users/{id}":          {response: typeOf[scimUser]()},
	"PUT /uaa/Users/{id}":          {body: typeOf[userBody](), response: typeOf[scimUser]()},
	"PATCH /uaa/Users/{id}":        {body: typeOf[userBody](), response: typeOf[scimUser]()},
	"DELETE /uaa/Users/{id}":       {response: typeOf[scimUser]()},
	"PUT /uaa/Users/{id}/password": {body: typeOf[newPassword](), response: messageSchema},

	"GET /uaa/Groups":                          {response: pageOf[group](), query: listQuery},
	"GET /uaa/Groups/{id}":                     {response: typeOf[group]()},
	"POST /uaa/Groups":                         {body: typeOf[groupBody](), response: typeOf[group](), status: http.StatusCreated},
	"PUT /uaa/Groups/{id}":                     {body: typeOf[groupBody](), response: typeOf[group]()},
	"PATCH /uaa/Groups/{id}":                   {body: typeOf[groupPatch](), response: typeOf[group]()},
	"DELETE /uaa/Groups/{id}":                  {response: typeOf[group]()},
	"GET /uaa/Groups/{id}/members":             {response: typeOf[[]groupMember](), query: []string{"returnEntities"}},
	"POST /uaa/Groups/{id}/members":            {body: typeOf[groupMember](), response: typeOf[groupMember](), status: http.StatusCreated},
	"DELETE /uaa/Groups/{id}/members/{member}": {response: typeOf[groupMember]()},

	"GET /uaa/oauth/clients":             {response: pageOf[shownClient](), query: listQuery},
	"POST /uaa/oauth/clients":            {body: typeOf[clientBody](), response: typeOf[shownClient](), status: http.StatusCreated},
	"GET /uaa/oauth/clients/{id}":        {response: typeOf[shownClient]()},
	"PUT /uaa/oauth/clients/{id}":        {body: typeOf[clientBody](), response: typeOf[shownClient]()},
	"DELETE /uaa/oauth/clients/{id}":     {response: typeOf[shownClient]()},
	"PUT /uaa/oauth/clients/{id}/secret": {body: typeOf[newSecret](), response: messageSchema},
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

func (d endpointDescription) operation(pattern, path string) map[string]any {
	words := strings.FieldsFunc(strings.ToLower(pattern), func(r rune) bool { return strings.ContainsRune(" /{}.-", r) })
	good := map[string]any{"description": http.StatusText(d.code())}
	if d.response != nil {
		good["content"] = asJSON(responseSchema(d.response))
	}
	failed := map[string]any{"description": "The error, in the format of OAuth and SCIM.", "content": asJSON(problemSchema)}
	out := map[string]any{
		"operationId": strings.Join(words, "_"), "tags": []string{"uaa"},
		"responses": map[string]any{strconv.Itoa(d.code()): good, "default": failed},
	}
	if ps := d.parameters(path); len(ps) > 0 {
		out["parameters"] = ps
	}
	switch {
	case d.body != nil:
		out["requestBody"] = map[string]any{"required": true, "content": asJSON(requestSchema(schemaOf(d.body)))}
	case d.form != nil:
		fields := schema{}
		for _, name := range d.form {
			fields[name] = textSchema
		}
		out["requestBody"] = map[string]any{"required": true, "content": map[string]any{
			"application/x-www-form-urlencoded": map[string]any{"schema": schema{"type": "object", "properties": fields, "required": d.required}},
		}}
	}
	if d.public {
		out["security"] = []any{}
	}
	return out
}

func (d endpointDescription) code() int {
	if d.status == 0 {
		return http.StatusOK
	}
	return d.status
}

func (d endpointDescription) parameters(path string) (out []map[string]any) {
	for part := range strings.SplitSeq(path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			out = append(out, map[string]any{"name": strings.TrimSuffix(name, "}"), "in": "path", "required": true, "schema": textSchema})
		}
	}
	for _, name := range d.query {
		out = append(out, map[string]any{"name": name, "in": "query", "schema": textSchema})
	}
	return out
}

func asJSON(s schema) map[string]any {
	return map[string]any{"application/json": map[string]any{"schema": s}}
}

func responseSchema(response any) schema {
	if t, ok := response.(reflect.Type); ok {
		return schemaOf(t)
	}
	return response.(schema)
}

// requestSchema returns the schema of a request body: a client can leave out any key.
func requestSchema(s schema) schema {
	out := maps.Clone(s)
	delete(out, "required")
	if of, ok := s["items"].(schema); ok {
		out["items"] = requestSchema(of)
	}
	if keys, ok := s["properties"].(schema); ok {
		optional := schema{}
		for name, of := range keys {
			optional[name] = requestSchema(of.(schema))
		}
		out["properties"] = optional
	}
	return out
}

// schemaOf returns the JSON schema of a type.
func schemaOf(t reflect.Type) schema {
	switch t {
	case typeOf[stringList]():
		return schema{"anyOf": []any{textSchema, textListSchema}}
	case typeOf[jwt.NumericDate]():
		return schema{"type": "number"}
	case typeOf[jwt.ClaimStrings]():
		return schema{"anyOf": []any{textSchema, textListSchema}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.String:
		return textSchema
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return numberSchema
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
