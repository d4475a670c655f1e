package smoke

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"

	"github.com/dewrun/dew/api/client"
)

// Place is an org with a space for the test of one folder. The run changes nothing
// else, and two concurrent runs do not affect each other.
type Place struct {
	Org       string `json:"org"`
	OrgGUID   string `json:"org_guid"`
	Space     string `json:"space"`
	SpaceGUID string `json:"space_guid"`
}

// makePlace creates a place with a unique name.
func makePlace(ctx context.Context, ask *client.Client) (Place, error) {
	var id [4]byte
	_, _ = rand.Read(id[:]) // it never fails
	p := Place{Org: "smoke-" + hex.EncodeToString(id[:]), Space: "smoke"}
	o, err := ask.Orgs().Create(ctx, p.Org)
	if e := (*client.Error)(nil); errors.As(err, &e) && (e.Status == http.StatusForbidden || e.Status == http.StatusUnauthorized) {
		return Place{}, &Failure{
			Status: StatusFailed, Err: fmt.Errorf("cannot make an org to test in: %w", err),
			Todo: "log in as an administrator, use the daemon of this machine (--run), or a private one (--private)",
		}
	}
	if err != nil {
		return Place{}, fmt.Errorf("cannot make an org to test in: %w", err)
	}
	p.OrgGUID = o.GUID
	s, err := ask.Orgs().CreateSpace(ctx, o.GUID, p.Space)
	if err != nil {
		return p, fmt.Errorf("cannot make a space to test in: %w", err)
	}
	p.SpaceGUID = s.GUID
	return p, nil
}

// remove deletes the place with all its contents.
func (p Place) remove(ctx context.Context, ask *client.Client) error {
	if p.OrgGUID == "" {
		return nil
	}
	if err := ask.Orgs().Delete(ctx, p.OrgGUID); err != nil && !client.NotFound(err) {
		return &Failure{
			Status: asFailure(err, StatusInfrastructure).Status, Err: fmt.Errorf("cannot remove the org %s again: %w", p.Org, err),
			Todo: "dew delete-org -f " + p.Org + " removes it",
		}
	}
	return nil
}
