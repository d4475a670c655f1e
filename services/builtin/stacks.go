package builtin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dewrun/dew/droplet/stack"
)

// Programs are the programs of a service. A stack has them.
type Programs struct {
	Service  string   // name of the service
	Packages []string // Debian packages
	Image    string   // public image
}

// Stacks finds the stacks of services, and creates those that are missing.
type Stacks struct {
	Store *stack.Stacks
	// Images pulls images instead of installing Debian packages. Nodes of a cluster need
	// nothing else, and a user can replace each of these stacks.
	Images bool
}

// name returns the name of the stack with some programs.
func (s Stacks) name(p Programs) string {
	if s.Images {
		return p.Service
	}
	return "debian-" + strings.Join(p.Packages, "-")
}

func (s Stacks) source(p Programs) stack.Source {
	if s.Images {
		return stack.Source{Image: &stack.ImageSource{Ref: p.Image}, Service: true}
	}
	return stack.Source{Debian: &stack.DebianSource{Include: p.Packages}, Service: true}
}

// Abandon stops the creation of a stack that no service waits for.
func (s Stacks) Abandon(p Programs) error { return s.Store.Abandon(s.name(p)) }

// Get returns an existing stack with the programs, or creates one, which takes minutes.
func (s Stacks) Get(ctx context.Context, p Programs, progress func(string)) (string, error) {
	name := s.name(p)
	for tried := false; ; {
		k, found, err := s.find(name)
		switch {
		case err != nil:
			return "", err
		case found && k.State == stack.StateReady:
			return name, nil
		case found && k.State == stack.StateFailed && tried:
			return "", s.failed(k, p)
		case found && k.State == stack.StateFailed:
			if err := s.Store.Remove(k.GUID); err != nil {
				return "", err
			}
			continue
		case !found:
			if _, err := s.Store.Begin(name, s.source(p)); err != nil {
				return "", err
			}
			tried = true
			continue
		}
		tried = true
		progress("creating stack " + name + ": " + cmp.Or(k.Progress, "started"))
		if !wait(ctx, time.Second) {
			return "", ctx.Err()
		}
	}
}

// failed returns why a stack could not be created. It removes the record of an image, so
// that a user can add a stack with that name.
func (s Stacks) failed(k stack.Record, p Programs) error {
	err := fmt.Errorf("cannot create stack %s: %s", k.Name, k.Error)
	if !s.Images {
		return err
	}
	return errors.Join(
		fmt.Errorf("%w (add the stack with another image, or with a file: dew stack add %s --image IMAGE)", err, p.Service),
		s.Store.Remove(k.GUID))
}

// find finds a stack by its name.
func (s Stacks) find(name string) (stack.Record, bool, error) {
	all, err := s.Store.All()
	i := slices.IndexFunc(all, func(k stack.Record) bool { return k.Name == name })
	if err != nil || i < 0 {
		return stack.Record{}, false, err
	}
	return all[i], true, nil
}
