package v3

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"time"
)

// GUID names a resource.
type GUID struct {
	GUID string `json:"guid"`
}

// ToOne is a relationship to at most one resource; Data is null for none.
type ToOne struct {
	Data *GUID `json:"data"`
}

// To is the relationship to the resource guid; an empty one is to none.
func To(guid string) ToOne {
	if guid == "" {
		return ToOne{}
	}
	return ToOne{Data: &GUID{GUID: guid}}
}

// ID is the guid at the other end, or nothing.
func (r ToOne) ID() string {
	if r.Data == nil {
		return ""
	}
	return r.Data.GUID
}

// Link is where something related is found.
type Link struct {
	Href   string `json:"href"`
	Method string `json:"method,omitempty"`
}

// Links are a resource's links by name.
type Links map[string]Link

// Metadata are a resource's labels and annotations; neither is null.
type Metadata struct {
	Labels      map[string]*string `json:"labels"`
	Annotations map[string]*string `json:"annotations"`
}

// NoMetadata is what a resource without labels has.
func NoMetadata() Metadata {
	return Metadata{Labels: map[string]*string{}, Annotations: map[string]*string{}}
}

// UpdateMetadata is the body of PATCH where nothing but metadata can be changed.
type UpdateMetadata struct {
	Metadata *Metadata `json:"metadata,omitempty"`
}

// Checksum of some bytes. Type is sha1 or sha256, and empty in resource matches.
type Checksum struct {
	Type  string `json:"type,omitempty"`
	Value string `json:"value"`
}

// Lifecycle says how bits become something that runs.
type Lifecycle struct {
	Type string        `json:"type"` // LifecycleBuildpack or LifecycleDocker
	Data LifecycleData `json:"data"`
}

// LifecycleBuildpack is the type of a Lifecycle that stages with buildpacks.
const LifecycleBuildpack = "buildpack"

// LifecycleDocker is the type of a Lifecycle of images, which are not staged. It
// has no data.
const LifecycleDocker = "docker"

// MarshalJSON leaves out the choices that an image does not have.
func (l Lifecycle) MarshalJSON() ([]byte, error) {
	if l.Type == LifecycleDocker {
		return []byte(`{"type":"` + LifecycleDocker + `","data":{}}`), nil
	}
	type plain Lifecycle
	return json.Marshal(plain(l))
}

// LifecycleData are the choices of a buildpack lifecycle. No buildpacks: they
// are detected.
type LifecycleData struct {
	Buildpacks []string `json:"buildpacks"`
	Stack      string   `json:"stack,omitempty"`
}

// Time is a moment as the platform writes it: UTC, whole seconds.
type Time struct{ time.Time }

// At is t as the platform writes it.
func At(t time.Time) Time { return Time{t} }

// MarshalJSON gives "2026-01-01T00:00:00Z".
func (t Time) MarshalJSON() ([]byte, error) {
	return []byte(`"` + t.UTC().Truncate(time.Second).Format(time.RFC3339) + `"`), nil
}

// Nullable is a value in a change that may be absent (leave it as it is), null
// (back to the default) or given. It is written with omitzero.
type Nullable[T any] struct {
	Given bool // not absent
	Null  bool
	Value T
}

// Set is a given value.
func Set[T any](v T) Nullable[T] { return Nullable[T]{Given: true, Value: v} }

// SetNull is the value null.
func SetNull[T any]() Nullable[T] { return Nullable[T]{Given: true, Null: true} }

// IsZero tells whether the value is absent.
func (n Nullable[T]) IsZero() bool { return !n.Given }

// MarshalJSON gives null or the value.
func (n Nullable[T]) MarshalJSON() ([]byte, error) {
	if !n.Given || n.Null {
		return []byte("null"), nil
	}
	return json.Marshal(n.Value)
}

// UnmarshalJSON is called only for what is there.
func (n *Nullable[T]) UnmarshalJSON(b []byte) error {
	*n = Nullable[T]{Given: true}
	if bytes.Equal(b, []byte("null")) {
		n.Null = true
		return nil
	}
	return json.Unmarshal(b, &n.Value)
}

// Int is a whole number that may also be written as a string ("2"), as some
// clients of the platform do.
type Int int

// UnmarshalJSON accepts 2 and "2".
func (i *Int) UnmarshalJSON(b []byte) error {
	text := string(bytes.Trim(b, `"`))
	n, err := strconv.Atoi(text)
	if err != nil {
		// This type of error is told the name of the field on its way out.
		return &json.UnmarshalTypeError{Value: strconv.Quote(text), Type: reflect.TypeFor[int]()}
	}
	*i = Int(n)
	return nil
}
