package platform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dewrun/dew/app"
)

// OpDeleteUnmapped is the job that removes the routes of a space that lead nowhere.
const OpDeleteUnmapped = "space.delete_unmapped_routes"

// Unmapped are the arguments of opDeleteUnmapped.
type Unmapped struct {
	Space string    `json:"space"`
	Actor app.Actor `json:"actor"`
}

func (p *Platform) doDeleteUnmapped(_ context.Context, j app.Job) ([]string, error) {
	var args Unmapped
	if err := json.Unmarshal(j.Args, &args); err != nil {
		return nil, fmt.Errorf("cannot read the arguments of job %s: %w", j.GUID, err)
	}
	return nil, p.ChangeAs(args.Actor, func(w Tx) error {
		all, err := w.Registry.Routes()
		if err != nil {
			return err
		}
		for _, rt := range all {
			if rt.Space != args.Space || len(rt.Destinations) > 0 {
				continue
			}
			if err := errors.Join(w.RecordRoute("audit.route.delete-request", rt, nil), w.Registry.DeleteRoute(rt.GUID)); err != nil {
				return err
			}
		}
		return nil
	})
}
