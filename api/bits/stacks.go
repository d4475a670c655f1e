package bits

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/platform"
)

// stackHandlers answers requests about stacks.
type stackHandlers struct{ *Handlers }

func (h stackHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "GET /v3/stacks", Needs: access.Authenticated, Handler: h.listStacks, Shape: rest.PageOf[v3.Stack]("names", "guids", "default", rest.ParamSelector)},
		{Pattern: "GET /v3/stacks/{guid}", Needs: access.Authenticated, Handler: h.getStack, Shape: rest.Returns[v3.Stack](200)},
		{
			Pattern: "PATCH /v3/stacks/{guid}", Needs: access.Administer, Resource: h.stackResource(),
			Handler: h.updateStack, Shape: rest.Returns[v3.Stack](200).Reads(rest.JSON[v3.UpdateStack]()),
		},
		{Pattern: "POST /v3/stacks", Needs: access.Administer, Handler: h.createStack, Shape: rest.Returns[v3.Stack](201).Reads(rest.JSON[v3.CreateStack]())},
		{Pattern: "DELETE /v3/stacks/{guid}", Needs: access.Administer, Resource: h.stackResource(), Handler: h.deleteStack, Shape: rest.Empty(204)},
		{Pattern: "GET /dew/v1/stacks", Needs: access.Authenticated, Handler: h.listStackDetails, Shape: rest.Returns[v3.Stacks](200)},
		{Pattern: "POST /dew/v1/stacks", Needs: access.Administer, Handler: h.makeStack, Shape: rest.Returns[v3.StackDetails](202).Reads(rest.JSON[v3.MakeStack]())},
		{
			Pattern: "POST /dew/v1/stacks/upload", Needs: access.Administer,
			Handler: h.uploadStack, Shape: rest.Returns[v3.StackDetails](201).Reads(rest.Bytes("application/octet-stream")).Query("name"),
		},
		{Pattern: "GET /dew/v1/stacks/{guid}", Needs: access.Authenticated, Handler: h.getStackDetails, Shape: rest.Returns[v3.StackDetails](200)},
		{Pattern: "DELETE /dew/v1/stacks/{guid}", Needs: access.Administer, Handler: h.deleteStack, Shape: rest.Empty(204)},
	}
}

func (h stackHandlers) listStacks(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	at, err := h.since()
	if err != nil {
		return nil, err
	}
	some, err := h.Platform.UsableStacks()
	if err != nil {
		return nil, err
	}
	all, err := withNotes(h.Platform.Registry, some, func(k stack.Record) string { return k.GUID })
	if err != nil {
		return nil, err
	}
	standings := map[string]stack.Access{}
	var found []annotated[stack.Record]
	for _, k := range all {
		if standings[k.resource.GUID], err = h.Platform.Stacks().Access(k.resource.GUID); err != nil {
			return nil, err
		}
		is := strconv.FormatBool(k.resource.Default)
		if q.Matches("names", k.resource.Name) && q.Matches("guids", k.resource.GUID) && q.Matches("default", is) {
			found = append(found, k)
		}
	}
	return rest.List(h.Links, r, q, found, rest.View[annotated[stack.Record], v3.Stack]{
		Key: func(k annotated[stack.Record]) rest.Key {
			from, to := stackTimes(k.resource, at)
			return rest.Key{Name: k.resource.Name, Created: from, Updated: to, GUID: k.resource.GUID}
		},
		Present: func(k annotated[stack.Record]) v3.Stack { return h.presentStack(k, standings[k.resource.GUID], at) },
		Labels:  func(k annotated[stack.Record]) map[string]string { return k.notes.Labels },
	}), nil
}

// stackTimes returns when a stack was created and last changed; at is the time for the
// machine's own stack.
func stackTimes(k stack.Record, at time.Time) (created, updated time.Time) {
	if k.CreatedAt.IsZero() {
		return at, at
	}
	return k.CreatedAt, k.UpdatedAt
}

func (h stackHandlers) getStack(r *http.Request) (any, error) {
	k, err := h.Present.Stack(r)
	if err != nil {
		return nil, err
	}
	m, err := h.Platform.Registry.Notes(k.GUID)
	if err != nil {
		return nil, err
	}
	is, err := h.Platform.Stacks().Access(k.GUID)
	if err != nil {
		return nil, err
	}
	at, err := h.since()
	return h.presentStack(annotated[stack.Record]{k, m}, is, at), err
}

func (h stackHandlers) updateStack(r *http.Request) (any, error) {
	k, err := h.Present.Stack(r)
	if err != nil {
		return nil, err
	}
	body, err := rest.Decode[v3.UpdateStack](r)
	if err != nil {
		return nil, err
	}
	if err := h.setStanding(k, body); err != nil {
		return nil, err
	}
	if _, err := h.Platform.Registry.UpdateNotes(k.GUID, platform.MetadataChange(body.Metadata)); err != nil {
		return nil, err
	}
	if err := h.recordStack(r, "update", k, map[string]any{"request": body}); err != nil {
		return nil, err
	}
	return h.getStack(r)
}

// setStanding changes the state of a stack and its reason, if the body names them.
func (h stackHandlers) setStanding(k stack.Record, body v3.UpdateStack) error {
	if body.State == nil && body.StateReason == nil {
		return nil
	}
	is, err := h.Platform.Stacks().Access(k.GUID)
	if err != nil {
		return err
	}
	if body.State != nil {
		is.State = *body.State
	}
	if body.StateReason != nil {
		is.Reason = *body.StateReason
	}
	err = h.Platform.Stacks().SetAccess(k.GUID, is)
	if errors.Is(err, stack.ErrState) {
		return rest.Unprocessable("%v", err)
	}
	return err
}

// recordStack records an event about a stack.
func (h stackHandlers) recordStack(r *http.Request, what string, k stack.Record, data map[string]any) error {
	return h.Platform.Change(r.Context(), func(w platform.Tx) error {
		return w.RecordAt("audit.stack."+what, app.Target{GUID: k.GUID, Type: "stack", Name: k.Name}, access.Place{}, data)
	})
}

// createStack returns an error that names the commands to add a stack. Cloud Foundry's
// request creates only a name without files.
func (h stackHandlers) createStack(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CreateStack](r)
	if err != nil {
		return nil, err
	}
	return nil, rest.Unprocessable("A stack needs files: add '%s' with 'dew stack add' (a tarball or an image) or 'dew stack build'.", body.Name)
}

func (h stackHandlers) presentStack(k annotated[stack.Record], is stack.Access, at time.Time) v3.Stack {
	created, updated := stackTimes(k.resource, at)
	var why *string
	if is.Reason != "" {
		why = &is.Reason
	}
	return v3.Stack{
		GUID: k.resource.GUID, CreatedAt: v3.At(created), UpdatedAt: v3.At(updated), Name: k.resource.Name, Description: k.resource.Description,
		State: is.State, StateReason: why, Default: k.resource.Default, Metadata: rest.PresentMetadata(k.notes),
		Links: v3.Links{"self": {Href: h.Links.Href("v3", "stacks", k.resource.GUID)}},
	}
}

func (h stackHandlers) listStackDetails(*http.Request) (any, error) {
	all, err := h.Platform.Stacks().All()
	if err != nil {
		return nil, err
	}
	out := v3.Stacks{Stacks: []v3.StackDetails{}}
	for _, k := range all {
		out.Stacks = append(out.Stacks, presentStackDetails(k))
	}
	return out, nil
}

func (h stackHandlers) getStackDetails(r *http.Request) (any, error) {
	k, err := h.Present.Stack(r)
	if err != nil {
		return nil, err
	}
	return presentStackDetails(k), nil
}

func presentStackDetails(k stack.Record) v3.StackDetails {
	return v3.StackDetails{
		GUID: k.GUID, Name: k.Name, Kind: string(k.Kind), State: string(k.State), ID: k.ID, Size: k.Size, Source: k.Source,
		Description: k.Description, Default: k.Default, Progress: k.Progress, Error: k.Error, CreatedAt: k.CreatedAt,
	}
}

// makeStack starts to create a stack, which takes a while. The stack's details show the
// progress.
func (h stackHandlers) makeStack(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.MakeStack](r)
	if err != nil {
		return nil, err
	}
	var from stack.Source
	if body.Debian != nil {
		from.Debian = &stack.DebianSource{Include: body.Debian.Include}
	}
	if body.Image != nil {
		from.Image = &stack.ImageSource{Ref: body.Image.Image, Username: body.Image.Username, Password: body.Image.Password}
	}
	k, err := h.Platform.Stacks().Begin(body.Name, from)
	if err != nil {
		return nil, stackError(err)
	}
	err = h.recordStack(r, "create", k, map[string]any{"request": map[string]any{"name": k.Name}})
	return rest.Answer{Status: http.StatusAccepted, Body: presentStackDetails(k)}, err
}

// uploadStack creates a stack from the file in the request body.
func (h stackHandlers) uploadStack(r *http.Request) (any, error) {
	name := r.URL.Query().Get("name")
	k, err := h.Platform.Stacks().Upload(r.Context(), name, r.Body)
	if rest.IsA[*http.MaxBytesError](err) || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, rest.ReadError(err)
	}
	if err != nil {
		return nil, stackError(err)
	}
	err = h.recordStack(r, "create", k, map[string]any{"request": map[string]any{"name": k.Name}})
	return rest.Answer{Status: http.StatusCreated, Body: presentStackDetails(k)}, err
}

// stackError returns the response for a refused stack.
func stackError(err error) error {
	switch {
	case errors.Is(err, droplet.ErrNotFound):
		return rest.NotFound("Stack")
	case errors.Is(err, stack.ErrTaken), errors.Is(err, stack.ErrOwn), errors.Is(err, stack.ErrBusy),
		errors.Is(err, stack.ErrRefused), rest.IsA[*archive.Error](err):
		return rest.Unprocessable("%v", err)
	}
	return err
}

// deleteStack removes a stack that is not in use.
func (h stackHandlers) deleteStack(r *http.Request) (any, error) {
	k, err := h.Present.Stack(r)
	if err != nil {
		return nil, err
	}
	users, err := h.usersOf(k)
	if err != nil {
		return nil, err
	}
	if len(users) > 0 && k.Kind != stack.KindHost {
		return nil, rest.Unprocessable("Cannot delete stack '%s' because apps are using it: %s", k.Name, strings.Join(users, ", "))
	}
	if err := h.Platform.Stacks().Remove(k.GUID); err != nil {
		return nil, stackError(err)
	}
	return rest.Answer{Status: http.StatusNoContent}, h.recordStack(r, "delete", k, nil)
}

// usersOf returns the names of the apps that run on a stack or were staged for it.
func (h stackHandlers) usersOf(k stack.Record) ([]string, error) {
	apps, err := h.Platform.Registry.Apps()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, a := range apps {
		uses := platform.RunsOn(a, k)
		if !uses && a.Droplet != "" {
			d, err := h.Platform.Droplets.Get(a.Droplet)
			if err != nil && !errors.Is(err, droplet.ErrNotFound) {
				return nil, err
			}
			uses = d.Stack == k.Name
		}
		if uses {
			names = append(names, fmt.Sprintf("'%s'", a.Name))
		}
	}
	slices.Sort(names)
	return names, nil
}

// stackResource is the access resource for a stack in the path.
func (h stackHandlers) stackResource() access.Resource {
	return access.Resource{Name: "Stack", Look: func(r *http.Request) error {
		_, err := h.Present.Stack(r)
		return err
	}}
}
