package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/pool"
	"github.com/dewrun/dew/inbound"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/services"
)

// Error is a response that is not a success, with the title and code that clients
// check.
type Error struct {
	Status int
	Code   int
	Title  string
	Detail string
}

func (e *Error) Error() string { return e.Title + ": " + e.Detail }

// Responses that several handlers use.
var (
	errTooSlow = &Error{
		Status: http.StatusRequestTimeout, Code: 10004, Title: "CF-RequestTimeout", Detail: "The request body arrived too slowly",
	}
	ErrTooLarge = &Error{
		Status: http.StatusRequestEntityTooLarge, Code: 10013, Title: "CF-RequestEntityTooLarge", Detail: "The request body is too large",
	}
)

// denials are the responses to the errors of package access.
var denials = map[error]*Error{
	access.ErrUnknownRequest: {
		Status: http.StatusNotFound, Code: v3.CodeUnknownRequest, Title: "CF-NotFound", Detail: v3.DetailUnknownRequest,
	},
	access.ErrNotAuthenticated: {
		Status: http.StatusUnauthorized, Code: v3.CodeNotAuthenticated, Title: v3.TitleNotAuthenticated, Detail: "Authentication error",
	},
	access.ErrInvalidToken: {
		Status: http.StatusUnauthorized, Code: v3.CodeInvalidAuthToken, Title: v3.TitleInvalidAuthToken, Detail: "Invalid Auth Token",
	},
	access.ErrNotAuthorized: {
		Status: http.StatusForbidden, Code: v3.CodeNotAuthorized, Title: v3.TitleNotAuthorized,
		Detail: "You are not authorized to perform the requested action",
	},
	access.ErrOrgSuspended: {
		Status: http.StatusForbidden, Code: v3.CodeOrgSuspended, Title: v3.TitleOrgSuspended, Detail: "The organization is suspended",
	},
}

// InternalError is the response to an unexpected error. The details are only in the log,
// under the id of the request.
const InternalError = `{"errors":[{"code":10001,"title":"UnknownError","detail":"An unknown error occurred."}]}`

// NotFound is the response for a resource that does not exist, or that the caller cannot see.
func NotFound(noun string) *Error {
	return &Error{Status: http.StatusNotFound, Code: v3.CodeNotFound, Title: v3.TitleNotFound, Detail: noun + " not found"}
}

// Unprocessable is the response for a request that cannot be carried out as it is.
func Unprocessable(format string, args ...any) *Error {
	return &Error{
		Status: http.StatusUnprocessableEntity, Code: v3.CodeUnprocessable, Title: v3.TitleUnprocessable,
		Detail: fmt.Sprintf(format, args...),
	}
}

// BadRequest is the response for a request that cannot be read.
func BadRequest(format string, args ...any) *Error {
	return &Error{
		Status: http.StatusBadRequest, Code: v3.CodeBadRequest, Title: v3.TitleBadRequest, Detail: fmt.Sprintf(format, args...),
	}
}

// BadQuery is the response for a wrong query parameter.
func BadQuery(format string, args ...any) *Error {
	return &Error{
		Status: http.StatusBadRequest, Code: v3.CodeBadQuery, Title: v3.TitleBadQuery,
		Detail: "The query parameter is invalid: " + fmt.Sprintf(format, args...),
	}
}

func badMessage(why string) *Error {
	return &Error{
		Status: http.StatusBadRequest, Code: v3.CodeMessageParse, Title: v3.TitleMessageParse,
		Detail: "Request invalid due to parse error: " + why,
	}
}

// Missing turns a "not found" error of another package into Cloud Foundry's response
// for the noun. Other errors are unchanged.
func Missing(noun string, err error) error {
	if platform.IsNotFound(err) {
		return NotFound(noun)
	}
	return err
}

// ToError returns the response to an error: the status and all problems.
func ToError(err error) (int, v3.Errors) {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Status, v3.Errors{Errors: []v3.Error{{Code: e.Code, Title: e.Title, Detail: e.Detail}}}
	}
	if e := (*platform.Error)(nil); errors.As(err, &e) {
		if e.NotFound {
			return ToError(&Error{Status: http.StatusNotFound, Code: v3.CodeNotFound, Title: v3.TitleNotFound, Detail: e.Detail})
		}
		return ToError(Unprocessable("%s", e.Detail))
	}
	for denial, e := range denials {
		if errors.Is(err, denial) {
			return ToError(e)
		}
	}
	if e := (*services.Refused)(nil); errors.As(err, &e) {
		return e.Status, v3.Errors{Errors: []v3.Error{{Code: e.Code, Title: e.Title, Detail: e.Detail}}}
	}
	if wrong := problems(err); len(wrong) > 0 {
		return http.StatusUnprocessableEntity, v3.Errors{Errors: wrong}
	}
	for _, known := range []struct {
		is bool
		as *Error
	}{
		{IsA[*http.MaxBytesError](err), ErrTooLarge},
		{platform.IsNotFound(err), NotFound("Resource")},
		{errors.Is(err, runtime.ErrNoInstance), NotFound("Instance")},
		{errors.Is(err, droplet.ErrNotReady), BadRequest("Bad request: Cannot stage package whose state is not ready.")},
		{errors.Is(err, droplet.ErrUploaded), &Error{
			Status: http.StatusBadRequest, Code: 150004, Title: "CF-PackageBitsAlreadyUploaded",
			Detail: "Bits may be uploaded only once. Create a new package to upload different bits.",
		}},
		{errors.Is(err, droplet.ErrNoSpace), &Error{
			Status: http.StatusServiceUnavailable, Code: 150003, Title: "CF-InsufficientResources", Detail: err.Error(),
		}},
		{errors.Is(err, runtime.ErrUnavailable), &Error{
			Status: http.StatusServiceUnavailable, Code: 10015, Title: "CF-ServiceUnavailable",
			Detail: "containerd does not respond; dewd keeps trying. Try again in a moment.",
		}},
	} {
		if known.is {
			return ToError(known.as)
		}
	}
	return http.StatusInternalServerError, v3.Errors{Errors: []v3.Error{
		{Code: v3.CodeUnknown, Title: v3.TitleUnknown, Detail: "An unknown error occurred."},
	}}
}

// problems returns all problems of a request that err contains.
func problems(err error) []v3.Error {
	var out []v3.Error
	for _, one := range leaves(err) {
		out = append(out, v3.Error{Code: v3.CodeUnprocessable, Title: v3.TitleUnprocessable, Detail: one.Error()})
	}
	return out
}

// leaves finds the errors in a tree of errors that a user can fix.
func leaves(err error) []error {
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself
	case nil:
		return nil
	case *app.Invalid, *app.ManifestError, *pool.Error, *droplet.BuildpackError, *auth.Invalid, *services.Invalid, *app.Refusal:
		return []error{err}
	case interface{ Unwrap() []error }:
		var all []error
		for _, one := range e.Unwrap() {
			all = append(all, leaves(one)...)
		}
		return all
	}
	return leaves(errors.Unwrap(err))
}

// IsA reports whether err is or wraps an error of the type.
func IsA[T error](err error) bool {
	var e T
	return errors.As(err, &e)
}

// Decode reads the body of a request. Invalid JSON is a 400. JSON of another shape is a
// 422 that names the field.
func Decode[T any](r *http.Request) (v T, err error) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return v, ReadError(err)
	}
	return DecodeBytes[T](b)
}

// ReadError returns the response to a body that could not be read completely.
func ReadError(err error) error {
	switch {
	case IsA[*http.MaxBytesError](err):
		return ErrTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errTooSlow
	}
	return badMessage("the request body is incomplete")
}

// DecodeBytes decodes a body that is already in memory, as Decode does.
func DecodeBytes[T any](b []byte) (v T, err error) {
	if err := inbound.JSON(b, &v); errors.Is(err, inbound.ErrSyntax) {
		return v, badMessage("invalid request body")
	} else if err != nil {
		return v, badMessage(err.Error())
	}
	if err := unknownKeys(b, reflect.TypeFor[T](), ""); err != nil {
		return v, err
	}
	err = json.Unmarshal(b, &v)
	if err == nil {
		return v, nil
	}
	if t := (*json.UnmarshalTypeError)(nil); errors.As(err, &t) {
		return v, Unprocessable("%s must be %s, not %s", fieldName(t.Field), kindName(t.Type.Kind().String()), t.Value)
	}
	return v, Unprocessable("%s", strings.TrimPrefix(err.Error(), "json: "))
}

// unknownKeys refuses the keys of an object that the type does not have. Like Cloud
// Foundry, it checks the keys of the body itself and of values with the tag
// `strict:"true"`. Clients send other nested objects back as they got them, with keys
// that only responses have.
func unknownKeys(b []byte, t reflect.Type, at string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var keys map[string]json.RawMessage
	if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) || json.Unmarshal(b, &keys) != nil {
		return nil // a map has any key, and the decoder refuses other types
	}
	fields := reflect.VisibleFields(t)
	var unknown []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		i := slices.IndexFunc(fields, func(f reflect.StructField) bool { return strings.EqualFold(jsonKey(f), key) })
		if i < 0 {
			unknown = append(unknown, key)
			continue
		}
		if fields[i].Tag.Get("strict") == "true" {
			if err := unknownKeys(keys[key], fields[i].Type, key); err != nil {
				return err
			}
		}
	}
	switch {
	case len(unknown) == 0:
		return nil
	case at != "":
		return Unprocessable("%s%s has unsupported key(s): %s", strings.ToUpper(at[:1]), at[1:], strings.Join(unknown, ", "))
	}
	return Unprocessable("Unknown field(s): '%s'", strings.Join(unknown, "', '"))
}

// jsonKey returns the key of a field in JSON, or nothing if it has none.
func jsonKey(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	switch {
	case name == "-" || !f.IsExported() || f.Anonymous && name == "":
		return ""
	case name == "":
		return f.Name
	}
	return name
}

func fieldName(field string) string {
	if field == "" {
		return "the request body"
	}
	return field
}

// kindName returns the JSON name of the type that Go expected.
func kindName(kind string) string {
	switch {
	case kind == "struct" || kind == "map":
		return "an object"
	case kind == "slice" || kind == "array":
		return "an array"
	case kind == "bool":
		return "true or false"
	case kind == "string":
		return "a string"
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		return "a whole number"
	}
	return "a number"
}
