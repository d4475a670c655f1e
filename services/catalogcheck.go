package services

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Limits of a catalog.
const (
	maxOfferings   = 1000
	maxPlans       = 5000
	maxDescription = 10_000
)

// CheckCatalog returns all errors of a catalog, one sentence per line.
func CheckCatalog(os []CatalogOffering) error {
	c := catalogCheck{plans: map[string]string{}}
	if len(os) == 0 {
		c.addf("Service broker must provide at least one service")
	}
	if len(os) > maxOfferings {
		c.addf("Service broker must provide at most %d services", maxOfferings)
		os = nil
	}
	ids, names, clients := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, o := range os {
		if ids[o.ID] && o.ID != "" {
			c.addf("Service ids must be unique: %s", o.ID)
		}
		if names[o.Name] && o.Name != "" {
			c.addf("Service names must be unique within a broker: %s", o.Name)
		}
		ids[o.ID], names[o.Name] = true, true
		c.offering(o)
		if d := o.Dashboard; d != nil {
			if clients[d.ID] && d.ID != "" {
				c.addf("Service dashboard_client id must be unique")
			}
			clients[d.ID] = true
			for what, s := range map[string]string{"id": d.ID, "secret": d.Secret, "redirect_uri": d.RedirectURI} {
				c.text("Service "+o.Name+": Service dashboard client "+what, s)
			}
		}
	}
	if len(c.wrong) == 0 {
		return nil
	}
	slices.Sort(c.wrong) // maps have no order
	return CatalogInvalid(c.wrong...)
}

// CatalogInvalid returns the error for an invalid broker catalog.
func CatalogInvalid(wrong ...string) error {
	return &Refused{
		Status: http.StatusBadGateway, Code: 270012, Title: "CF-ServiceBrokerCatalogInvalid",
		Detail: Shorten("Service broker catalog is invalid: \n" + strings.Join(wrong, "\n")),
	}
}

// catalogCheck collects the errors of a catalog.
type catalogCheck struct {
	wrong []string
	plans map[string]string // names by id, of all offerings
}

func (c *catalogCheck) addf(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

func (c *catalogCheck) offering(o CatalogOffering) {
	at := "Service " + o.Name + ": "
	for what, s := range map[string]string{"Service id": o.ID, "Service name": o.Name, "Service description": o.Description} {
		c.text(at+what, s)
	}
	if len(strings.Join(o.Tags, "")) > maxTags {
		c.addf("%sTags for the service must be %d characters or less.", at, maxTags)
	}
	for _, r := range o.Requires {
		if !slices.Contains([]string{requiresSyslog, RequiresRoute, requiresVolume}, r) {
			c.addf("%sService \"requires\" field contains unsupported value %q", at, r)
		}
	}
	if len(o.Plans) == 0 {
		c.addf("%sAt least one plan is required", at)
	}
	if len(o.Plans) > maxPlans {
		c.addf("%sAt most %d plans are allowed", at, maxPlans)
		return
	}
	names := map[string]bool{}
	for _, p := range o.Plans {
		if names[p.Name] && p.Name != "" {
			c.addf("%sPlan names must be unique within a service. Service %s already has a plan named %s", at, o.Name, p.Name)
		}
		names[p.Name] = true
		c.plan(at+"Plan "+p.Name+": ", p)
	}
}

func (c *catalogCheck) plan(at string, p CatalogPlan) {
	if other, taken := c.plans[p.ID]; taken && p.ID != "" {
		c.addf("%sPlan ids must be unique. Unable to register plan with id '%s' because plan '%s' uses the same id", at, p.ID, other)
	}
	c.plans[p.ID] = p.Name
	for what, s := range map[string]string{"Plan id": p.ID, "Plan name": p.Name, "Plan description": p.Description} {
		c.text(at+what, s)
	}
	if v := p.Maintenance.Version; v != "" && !semver.MatchString(v) {
		c.addf("%sMaintenance info version must be a Semantic Version, but has value %q", at, v)
	}
	for path, schema := range map[string]json.RawMessage{
		"service_instance.create.parameters": p.Schemas.InstanceCreate,
		"service_instance.update.parameters": p.Schemas.InstanceUpdate,
		"service_binding.create.parameters":  p.Schemas.BindingCreate,
	} {
		if err := checkSchema(schema); err != nil {
			c.addf("%sSchema %s is not valid. %v", at, path, err)
		}
	}
}

func (c *catalogCheck) text(what, s string) {
	switch {
	case strings.TrimSpace(s) == "":
		c.addf("%s is required", what)
	case len(s) > maxDescription:
		c.addf("%s may not have more than %d characters", what, maxDescription)
	}
}
