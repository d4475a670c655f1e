package present

import "github.com/dewrun/dew/app"

// QuotaOf is the guid of an org's quota.
func QuotaOf(o app.Org) string {
	if o.Quota == "" {
		return app.Unlimited().GUID
	}
	return o.Quota
}
