package services

import (
	"context"
	"encoding/json"

	"github.com/dewrun/dew/app"
)

// NewBinding is the wish for a binding.
type NewBinding struct {
	Type       BindingType
	Name       string // of a key; may be empty for an app binding
	Instance   string // guid
	App        string // guid, of an app binding
	Route      string // guid, of a route binding
	Parameters json.RawMessage
	Multiple   bool // the app may have further bindings to the same instance
	Metadata   app.Metadata
	By         app.Actor
}

// BindingFilter chooses bindings. An empty list chooses all.
type BindingFilter struct {
	GUIDs, Names             []string
	Types                    []BindingType
	Apps, AppNames           []string // guids, names
	Instances, InstanceNames []string
	Routes                   []string // guids
	Plans, PlanNames         []string
	Offerings, OfferingNames []string
	Labels                   app.Selector
}

// Drain is where the lines of an app are to be sent as well.
type Drain struct {
	App  string // guid
	URL  string // may have secrets in it
	Name string // of the service instance
}

// Binding returns the binding with guid.
func (b *Book) Binding(guid string) (bi Binding, err error) { return bi, err }

// Bindings returns the bindings that f chooses, the oldest first. Route bindings
// are among them unless Types says otherwise.
func (b *Book) Bindings(f BindingFilter) (bs []Binding, err error) { return bs, err }

// CreateBinding keeps a binding. One to a managed instance has an operation that
// makes it; else the operation is empty.
func (b *Book) CreateBinding(n NewBinding) (bi Binding, o Operation, err error) { return bi, o, err }

// NoteBinding changes the metadata of a binding.
func (b *Book) NoteBinding(guid string, c app.MetadataChange) (bi Binding, err error) {
	return bi, err
}

// DeleteBinding removes a binding. The operation is empty when that is done already.
func (b *Book) DeleteBinding(guid string, by app.Actor) (o Operation, err error) { return o, err }

// UnbindApp begins to delete all bindings of an app.
func (b *Book) UnbindApp(guid string, by app.Actor) (os []Operation, err error) { return os, err }

// BindingParameters asks the broker for the parameters of a binding.
func (b *Book) BindingParameters(ctx context.Context, guid string) (p json.RawMessage, err error) {
	return p, err
}

// Drains returns where the lines of apps are to be sent, by app and URL.
func (b *Book) Drains() (ds []Drain, err error) { return ds, err }

// RouteServices returns the URL of the service that the requests of a route go
// through, by the guid of the route.
func (b *Book) RouteServices() (urls map[string]string, err error) { return urls, err }
