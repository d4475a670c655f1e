package platform

import (
	"slices"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet/stack"
)

// Stacks are the stacks that there are. The platform's own names stand for the
// default one, and are no stacks of their own.
func (p *Platform) Stacks() *stack.Stacks { return p.Builds.Kept() }

// Usable are the stacks that apps may use.
func (p *Platform) Usable() ([]stack.Record, error) {
	all, err := p.Stacks().All()
	return slices.DeleteFunc(all, func(k stack.Record) bool { return k.State != stack.StateReady }), err
}

func RunsOn(a app.App, k stack.Record) bool {
	if k.Kind == stack.KindHost {
		return stack.Check(a.Stack) == nil && !a.Docker()
	}
	return a.Stack == k.Name
}
