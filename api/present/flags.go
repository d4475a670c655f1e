package present

import (
	"context"
	"net/http"
	"slices"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/app"
)

// forAll are the features that an administrator does without as well when they are
// off: as on the platform, where those who may switch them have to.
var forAll = []string{app.FlagEnvVisibility, app.FlagRouteSharing, app.FlagServiceSharing, app.FlagSpaceBrokers}

// Feature refuses what an administrator has switched off. Administrators may do
// most of it all the same.
func (p *Presenter) Feature(ctx context.Context, name string) error {
	if access.Principal(ctx).Admin() && !slices.Contains(forAll, name) {
		return nil
	}
	f, err := p.Platform.Registry.Flag(name)
	if err != nil || f.Enabled {
		return err
	}
	return featureDisabled(f)
}

func featureDisabled(f app.Flag) *rest.Error {
	why := f.Name
	if f.Message != "" {
		why = f.Message
	}
	return &rest.Error{Status: http.StatusForbidden, Code: 330002, Title: "CF-FeatureDisabled", Detail: "Feature Disabled: " + why}
}
