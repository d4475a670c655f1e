package osb

import (
	"encoding/json"

	"github.com/dewrun/dew/services"
)

// wireCatalog is the JSON format of a catalog.
type wireCatalog struct {
	Services []wireOffering `json:"services"`
}

type wireOffering struct {
	ID                   string          `json:"id"`
	Name                 string          `json:"name"`
	Description          string          `json:"description"`
	Tags                 []string        `json:"tags"`
	Requires             []string        `json:"requires"`
	Bindable             *bool           `json:"bindable"`
	PlanUpdateable       bool            `json:"plan_updateable"`
	InstancesRetrievable bool            `json:"instances_retrievable"`
	BindingsRetrievable  bool            `json:"bindings_retrievable"`
	AllowContextUpdates  bool            `json:"allow_context_updates"`
	Metadata             json.RawMessage `json:"metadata"`
	Plans                []wirePlan      `json:"plans"`
	Dashboard            json.RawMessage `json:"dashboard_client"`
}

// wireDashboard is the OAuth client of a dashboard.
type wireDashboard struct {
	ID          string `json:"id"`
	Secret      string `json:"secret"`
	RedirectURI string `json:"redirect_uri"`
}

// dashboard returns the OAuth client of an offering's dashboard, or nil.
func (w wireOffering) dashboard() (*services.DashboardClient, error) {
	if len(w.Dashboard) == 0 || string(w.Dashboard) == "null" {
		return nil, nil
	}
	var d wireDashboard
	if !isObject(w.Dashboard) || json.Unmarshal(w.Dashboard, &d) != nil {
		return nil, services.CatalogInvalid("Service " + w.Name + ": Service dashboard client attributes must be a hash of strings")
	}
	return &services.DashboardClient{ID: d.ID, Secret: d.Secret, RedirectURI: d.RedirectURI}, nil
}

type wirePlan struct {
	ID             string                `json:"id"`
	Name           string                `json:"name"`
	Description    string                `json:"description"`
	Free           *bool                 `json:"free"`
	Bindable       *bool                 `json:"bindable"`
	PlanUpdateable *bool                 `json:"plan_updateable"`
	Metadata       json.RawMessage       `json:"metadata"`
	MaxPolling     int64                 `json:"maximum_polling_duration"`
	Maintenance    *services.Maintenance `json:"maintenance_info"`
	Schemas        wireSchemas           `json:"schemas"`
}

type wireSchemas struct {
	Instance struct {
		Create wireParameters `json:"create"`
		Update wireParameters `json:"update"`
	} `json:"service_instance"`
	Binding struct {
		Create wireParameters `json:"create"`
	} `json:"service_binding"`
}

type wireParameters struct {
	Parameters json.RawMessage `json:"parameters"`
}

// schema returns the schema of the parameters. Null stands for no schema.
func (p wireParameters) schema() json.RawMessage {
	if string(p.Parameters) == "null" {
		return nil
	}
	return p.Parameters
}

// parseCatalog parses a catalog. It checks only for required fields whose absence would
// look like false; services.CheckCatalog checks the rest.
func parseCatalog(r response) ([]services.CatalogOffering, error) {
	var c wireCatalog
	if err := r.object(&c); err != nil {
		return nil, err
	}
	var os []services.CatalogOffering
	for _, w := range c.Services {
		if w.Bindable == nil {
			return nil, services.CatalogInvalid("Service " + w.Name + ": Service \"bindable\" field is required")
		}
		if !isObject(w.Metadata) {
			return nil, services.CatalogInvalid("Service " + w.Name + ": Service metadata must be a hash")
		}
		o := services.CatalogOffering{
			ID: w.ID, Name: w.Name, Description: w.Description, Tags: w.Tags, Requires: w.Requires,
			Bindable: *w.Bindable, PlanUpdateable: w.PlanUpdateable, InstancesRetrievable: w.InstancesRetrievable,
			BindingsRetrievable: w.BindingsRetrievable, AllowContextUpdates: w.AllowContextUpdates, Metadata: w.Metadata,
		}
		var err error
		if o.Dashboard, err = w.dashboard(); err != nil {
			return nil, err
		}
		for _, p := range w.Plans {
			if !isObject(p.Metadata) {
				return nil, services.CatalogInvalid("Service " + w.Name + ": Plan " + p.Name + ": Plan metadata must be a hash")
			}
			if p.Maintenance != nil && p.Maintenance.Version == "" {
				return nil, services.CatalogInvalid("Service " + w.Name + ": Plan " + p.Name + ": Maintenance info version is required")
			}
			o.Plans = append(o.Plans, p.catalogPlan())
		}
		os = append(os, o)
	}
	return os, nil
}

func (p wirePlan) catalogPlan() services.CatalogPlan {
	o := services.CatalogPlan{
		ID: p.ID, Name: p.Name, Description: p.Description, Paid: p.Free != nil && !*p.Free,
		Bindable: p.Bindable, PlanUpdateable: p.PlanUpdateable, Metadata: p.Metadata, MaxPolling: seconds(p.MaxPolling),
		Schemas: services.Schemas{
			InstanceCreate: p.Schemas.Instance.Create.schema(),
			InstanceUpdate: p.Schemas.Instance.Update.schema(),
			BindingCreate:  p.Schemas.Binding.Create.schema(),
		},
	}
	if p.Maintenance != nil {
		o.Maintenance = *p.Maintenance
	}
	return o
}
