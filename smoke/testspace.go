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

// TestSpace is an org with a space for the test of one folder. The run changes nothing
// else, and two concurrent runs do not affect each other.
type TestSpace struct {
	Org       string `json:"org"`
	OrgGUID   string `json:"org_guid"`
	Space     string `json:"space"`
	SpaceGUID string `json:"space_guid"`
}

// createTestSpace creates a test space with a unique name.
func createTestSpace(ctx context.Context, daemon *client.Client) (TestSpace, error) {
	var id [4]byte
	_, _ = rand.Read(id[:]) // it never fails
	p := TestSpace{Org: "smoke-" + hex.EncodeToString(id[:]), Space: "smoke"}
	o, err := daemon.Orgs().Create(ctx, p.Org)
	if e := (*client.Error)(nil); errors.As(err, &e) && (e.Status == http.StatusForbidden || e.Status == http.StatusUnauthorized) {
		return TestSpace{}, &Failure{
			Status: StatusFailed, Err: fmt.Errorf("cannot create an org for the test: %w", err),
			Todo: "log in as an administrator, or use the dewd of this machine (--run) or a private daemon (--private)",
		}
	}
	if err != nil {
		return TestSpace{}, fmt.Errorf("cannot create an org for the test: %w", err)
	}
	p.OrgGUID = o.GUID
	s, err := daemon.Orgs().CreateSpace(ctx, o.GUID, p.Space)
	if err != nil {
		return p, fmt.Errorf("cannot create a space for the test: %w", err)
	}
	p.SpaceGUID = s.GUID
	return p, nil
}

// remove deletes the test space with all its contents.
func (p TestSpace) remove(ctx context.Context, daemon *client.Client) error {
	if p.OrgGUID == "" {
		return nil
	}
	if err := daemon.Orgs().Delete(ctx, p.OrgGUID); err != nil && !client.NotFound(err) {
		return &Failure{
			Status: asFailure(err, StatusInfrastructure).Status, Err: fmt.Errorf("cannot delete the org %s of the test: %w", p.Org, err),
			Todo: "to delete it, run: dew delete-org -f " + p.Org,
		}
	}
	return nil
}
