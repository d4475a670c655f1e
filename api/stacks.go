package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
)

// stack is a stack as answers show it.
type stack struct{ guid, name, description string }

// stacks are all that there are. The platform's own names stand for the default
// one, and are no stacks of their own.
func stacks() []stack {
	return []stack{{
		guid: droplet.StackGUID(droplet.DefaultStack), name: droplet.DefaultStack,
		description: "The system of this machine, read-only",
	}}
}

func (s *Server) listStacks(r *http.Request) (any, error) {
	q, err := readQuery(r, "names", "guids", "default", paramSelector)
	if err != nil {
		return nil, err
	}
	at, err := s.since()
	if err != nil {
		return nil, err
	}
	all, err := withNotes(s.c.Registry, stacks(), func(st stack) string { return st.guid })
	if err != nil {
		return nil, err
	}
	var found []noted[stack]
	for _, st := range all {
		is := strconv.FormatBool(st.thing.name == droplet.DefaultStack)
		if q.lets("names", st.thing.name) && q.lets("guids", st.thing.guid) && q.lets("default", is) {
			found = append(found, st)
		}
	}
	return list(s, r, q, found, look[noted[stack], v3.Stack]{
		key:     func(st noted[stack]) key { return key{st.thing.name, at, at, st.thing.guid} },
		present: func(st noted[stack]) v3.Stack { return s.presentStack(st, at) },
		labels:  func(st noted[stack]) map[string]string { return st.notes.Labels },
	}), nil
}

func stackOf(r *http.Request) (stack, error) {
	for _, st := range stacks() {
		if st.guid == r.PathValue("guid") {
			return st, nil
		}
	}
	return stack{}, notFound("Stack")
}

func (s *Server) getStack(r *http.Request) (any, error) {
	st, err := stackOf(r)
	if err != nil {
		return nil, err
	}
	m, err := s.c.Registry.Notes(st.guid)
	if err != nil {
		return nil, err
	}
	at, err := s.since()
	return s.presentStack(noted[stack]{st, m}, at), err
}

func (s *Server) updateStack(r *http.Request) (any, error) {
	st, err := stackOf(r)
	if err != nil {
		return nil, err
	}
	if err := s.updateNotes(r, st.guid); err != nil {
		return nil, err
	}
	return s.getStack(r)
}

// listStackApps gives the apps that run on a stack, also those that name another
// one that it stands for.
func (s *Server) listStackApps(r *http.Request) (any, error) {
	if _, err := stackOf(r); err != nil {
		return nil, err
	}
	return s.pageOfApps(r, func(a app.App) bool { return droplet.CheckStack(a.Stack) == nil })
}

func (s *Server) presentStack(st noted[stack], at time.Time) v3.Stack {
	return v3.Stack{
		GUID: st.thing.guid, CreatedAt: v3.At(at), UpdatedAt: v3.At(at), Name: st.thing.name, Description: st.thing.description,
		State: v3.StackActive, Default: st.thing.name == droplet.DefaultStack, Metadata: presentMetadata(st.notes),
		Links: v3.Links{"self": {Href: s.href("v3", "stacks", st.thing.guid)}},
	}
}
