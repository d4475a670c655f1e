package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/dewrun/dew/services"
)

// The names of the plans.
const (
	smallPlan = "small"
	largePlan = "large"
)

// planNames are the plans of every engine, in the order of the marketplace.
var planNames = []string{smallPlan, largePlan}

// The ids of the catalog. The marketplace stores them, so they must never change.
func offeringID(engine string) string { return "dew-" + engine }

func planID(engine, plan string) string { return "dew-" + engine + "-" + plan }

// Catalog returns the offerings: one for each engine.
func (b *Broker) Catalog(context.Context) ([]services.CatalogOffering, error) {
	var out []services.CatalogOffering
	for _, e := range engines {
		o := services.CatalogOffering{
			ID: offeringID(e.name), Name: e.name, Description: e.description, Tags: e.tags,
			Bindable: true, PlanUpdateable: true, InstancesRetrievable: true, BindingsRetrievable: true,
			Metadata: object(map[string]any{"displayName": e.title, "shareable": true}),
		}
		for _, name := range planNames {
			o.Plans = append(o.Plans, e.catalogPlan(name))
		}
		out = append(out, o)
	}
	return out, nil
}

// catalogPlan returns a plan in the format of the catalog.
func (e *engine) catalogPlan(plan string) services.CatalogPlan {
	z := e.plans[plan]
	text := fmt.Sprintf("%s of memory, %s of disk, %d connections", megabytes(z.memoryMB), megabytes(z.diskMB), z.connections)
	metadata := map[string]any{
		"displayName": plan,
		"bullets": []string{
			megabytes(z.memoryMB) + " of memory", megabytes(z.diskMB) + " of disk", fmt.Sprintf("%d connections", z.connections),
		},
	}
	if plan == largePlan {
		metadata["costs"] = []any{map[string]any{"amount": map[string]float64{"usd": 0}, "unit": "MONTHLY"}}
	}
	schema := schemaOf(e.keys)
	return services.CatalogPlan{
		ID: planID(e.name, plan), Name: plan, Description: text, Paid: plan == largePlan, Metadata: object(metadata),
		Schemas: services.Schemas{InstanceCreate: schema, InstanceUpdate: schema, BindingCreate: schemaOf(nil)},
	}
}

// megabytes formats a size for users.
func megabytes(mb int) string {
	if mb >= 1024 && mb%1024 == 0 {
		return fmt.Sprintf("%d GB", mb/1024)
	}
	return fmt.Sprintf("%d MB", mb)
}

func object(v map[string]any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot fail: made of literals only
	}
	return b
}

// planOf returns the engine and plan for the catalog ids of a request.
func planOf(offering, plan string) (*engine, string, error) {
	for _, e := range engines {
		if offeringID(e.name) != offering {
			continue
		}
		for _, name := range planNames {
			if planID(e.name, name) == plan {
				return e, name, nil
			}
		}
		return nil, "", refusal(http.StatusBadRequest, "plan '%s' of %s does not exist", plan, e.name)
	}
	return nil, "", refusal(http.StatusBadRequest, "service offering '%s' does not exist", offering)
}
