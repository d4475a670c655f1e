package cli

import (
	"testing"

	"github.com/dewrun/dew/api/v3"
)

// All resources with a name can have labels.
func TestLabels(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp("STARTED")
	d.dew("create-route", "dew.localhost", "-n", "shop").must(t, 0)
	d.dew("create-isolation-segment", "far").must(t, 0)
	d.services.instances = append(d.services.instances, v3.ServiceInstance{GUID: "i-db", Name: "db"})
	for kind, name := range map[string]string{
		"app": "shop", "buildpack": "binary_buildpack", "domain": "dew.localhost", "isolation-segment": "far", "org": "local", "route": "shop.dew.localhost",
		"service-instance": "db", "space": "dev", "stack": "host", "user": "admin",
	} {
		d.dew("labels", kind, name).must(t, 0, name+" has no labels")
		d.dew("set-label", kind, name, "env=test", "team=").must(t, 0, "Changed the labels of "+kind+" "+name)
		d.dew("labels", kind, name).must(t, 0, "env    test", "team")
		d.dew("labels", kind, name, "--json").must(t, 0, `"env": "test"`)
		d.dew("unset-label", kind, name, "env", "team").must(t, 0)
		d.dew("labels", kind, name).must(t, 0, name+" has no labels")
	}
	d.changed("PATCH /v3/apps/app-1", `{"metadata":{"labels":{"env":null,"team":null}}}`)
}

func TestLabelArguments(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp("STARTED")
	d.dew("labels", "aps", "shop").must(t, 2, `stack, user, not "aps"`, "did you mean app?")
	d.dew("labels", "app").must(t, 2, "labels needs RESOURCE RESOURCE_NAME")
	d.dew("set-label", "app", "shop", "env").must(t, 2, `a label is KEY=VALUE, not "env"`)
	d.dew("set-label", "app", "shpo", "a=b").must(t, 1, `app "shpo" does not exist`, `did you mean "shop"?`)
	d.dew("labels", "service-plan", "none").must(t, 1, "To list the service plans: dew marketplace")
	d.dew("labels", "buildpack", "binary_buildpack", "-s", "debian").must(t, 1, `buildpack "binary_buildpack" does not exist`)
}
