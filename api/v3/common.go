package v3

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"time"
)

// GUID identifies a resource.
type GUID struct {
	GUID string `json:"guid"`
}

// ToOne is a relationship to at most one resource. Data is null for none.
type ToOne struct {
	Data *GUID `json:"data"`
}

// To returns the relationship to the resource guid. An empty guid means none.
func To(guid string) ToOne {
	if guid == "" {
		return ToOne{}
	}
	return ToOne{Data: &GUID{GUID: guid}}
}

// ID returns the guid of the related resource, or an empty string.
func (r ToOne) ID() string {
	if r.Data == nil {
		return ""
	}
	return r.Data.GUID
}

// Link is the URL of a related resource.
type Link struct {
	Href   string `json:"href"`
	Method string `json:"method,omitempty"`
}

// Links are a resource's links by name.
type Links map[string]Link

// Metadata are a resource's labels and annotations. Neither is null.
type Metadata struct {
	Labels      map[string]*string `json:"labels"`
	Annotations map[string]*string `json:"annotations"`
}

// NoMetadata returns the metadata of a resource without labels.
func NoMetadata() Metadata {
	return Metadata{Labels: map[string]*string{}, Annotations: map[string]*string{}}
}

// UpdateMetadata is the body of PATCH where only metadata can be changed.
type UpdateMetadata struct {
	Metadata *Metadata `json:"metadata,omitempty"`
}

// Checksum of some bytes. Type is sha1 or sha256, and empty in resource matches.
type Checksum struct {
	Type  string `json:"type,omitempty"`
	Value string `json:"value"`
}

// Lifecycle says how an app's files become a droplet.
type Lifecycle struct {
	Type string        `json:"type"` // LifecycleBuildpack or LifecycleDocker
	Data LifecycleData `json:"data"`
}

// LifecycleBuildpack is the type of a Lifecycle that stages with buildpacks.
const LifecycleBuildpack = "buildpack"

// LifecycleDocker is the type of a Lifecycle of images, which are not staged. It has no
// data.
const LifecycleDocker = "docker"

// MarshalJSON leaves out the settings that an image does not have.
func (l Lifecycle) MarshalJSON() ([]byte, error) {
	if l.Type == LifecycleDocker {
		return []byte(`{"type":"` + LifecycleDocker + `","data":{}}`), nil
	}
	type plain Lifecycle
	return json.Marshal(plain(l))
}

// LifecycleData are the settings of a buildpack lifecycle. Without buildpacks, they are
// detected.
type LifecycleData struct {
	Buildpacks []string `json:"buildpacks"`
	Stack      string   `json:"stack,omitempty"`
}

// Time is a time in Cloud Foundry's format: UTC, whole seconds.
type Time struct{ time.Time }

// At returns t in Cloud Foundry's format.
func At(t time.Time) Time { return Time{t} }

// MarshalJSON returns "2026-01-01T00:00:00Z".
func (t Time) MarshalJSON() ([]byte, error) {
	return []byte(`"` + t.UTC().Truncate(time.Second).Format(time.RFC3339) + `"`), nil
}

// Nullable is a value in a change. It can be absent (no change), null (back to the
// default) or given. Use it with omitzero.
type Nullable[T any] struct {
	Given bool // not absent
	Null  bool
	Value T
}

// Set returns a given value.
func Set[T any](v T) Nullable[T] { return Nullable[T]{Given: true, Value: v} }

// SetNull returns the value null.
func SetNull[T any]() Nullable[T] { return Nullable[T]{Given: true, Null: true} }

// IsZero reports whether the value is absent.
func (n Nullable[T]) IsZero() bool { return !n.Given }

// MarshalJSON returns null or the value.
func (n Nullable[T]) MarshalJSON() ([]byte, error) {
	if !n.Given || n.Null {
		return []byte("null"), nil
	}
	return json.Marshal(n.Value)
}

// UnmarshalJSON is called only for keys that are present.
func (n *Nullable[T]) UnmarshalJSON(b []byte) error {
	*n = Nullable[T]{Given: true}
	if bytes.Equal(b, []byte("null")) {
		n.Null = true
		return nil
	}
	return json.Unmarshal(b, &n.Value)
}

// Int is a whole number that can also be written as a string ("2"), as some Cloud
// Foundry clients do.
type Int int

// UnmarshalJSON accepts 2 and "2".
func (i *Int) UnmarshalJSON(b []byte) error {
	text := string(bytes.Trim(b, `"`))
	n, err := strconv.Atoi(text)
	if err != nil {
		// encoding/json adds the name of the field to this type of error.
		return &json.UnmarshalTypeError{Value: strconv.Quote(text), Type: reflect.TypeFor[int]()}
	}
	*i = Int(n)
	return nil
}
