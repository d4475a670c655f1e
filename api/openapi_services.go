package api

import (
	"encoding/json"

	"github.com/dewrun/dew/api/v3"
)

// serviceOperations are about the marketplace.
var serviceOperations = map[string]operation{
	"GET /v3/service_brokers":           pageOf[v3.ServiceBroker]("names", "guids", "space_guids", paramSelector),
	"POST /v3/service_brokers":          begins().from(jsonOf[v3.CreateServiceBroker]()),
	"DELETE /v3/service_brokers/{guid}": begins().or(ends(204)),
	"GET /v3/service_brokers/{guid}":    gives[v3.ServiceBroker](200),
	"PATCH /v3/service_brokers/{guid}":  begins().or(gives[v3.ServiceBroker](200)).from(jsonOf[v3.UpdateServiceBroker]()),

	"GET /v3/service_offerings":           pageOf[v3.ServiceOffering]("names", "guids", "space_guids", "organization_guids", "available", "broker_catalog_ids", "service_broker_guids", "service_broker_names", fieldsOfBroker, paramSelector),
	"DELETE /v3/service_offerings/{guid}": ends(204).ask("purge"),
	"GET /v3/service_offerings/{guid}":    gives[v3.ServiceOffering](200).ask(fieldsOfBroker),
	"PATCH /v3/service_offerings/{guid}":  gives[v3.ServiceOffering](200).from(jsonOf[v3.UpdateMetadata]()),

	"GET /v3/service_plans":                            pageOf[v3.ServicePlan]("names", "guids", "space_guids", "organization_guids", "available", "broker_catalog_ids", "service_broker_guids", "service_broker_names", "service_offering_guids", "service_offering_names", "service_instance_guids", "include", fieldsOfOfferingBroker, paramSelector),
	"DELETE /v3/service_plans/{guid}":                  ends(204),
	"GET /v3/service_plans/{guid}":                     gives[v3.ServicePlan](200).ask("include", fieldsOfOfferingBroker),
	"PATCH /v3/service_plans/{guid}":                   gives[v3.ServicePlan](200).from(jsonOf[v3.UpdateMetadata]()),
	"GET /v3/service_plans/{guid}/visibility":          gives[v3.PlanVisibility](200),
	"PATCH /v3/service_plans/{guid}/visibility":        gives[v3.PlanVisibility](200).from(jsonOf[v3.PlanVisibility]()),
	"POST /v3/service_plans/{guid}/visibility":         gives[v3.PlanVisibility](200).from(jsonOf[v3.PlanVisibility]()),
	"DELETE /v3/service_plans/{guid}/visibility/{org}": ends(204),
}

// instanceOperations are about service instances, and what is bound to them.
var instanceOperations = map[string]operation{
	"GET /v3/service_credential_bindings":                   pageOf[v3.ServiceCredentialBinding]("names", "guids", "type", "app_guids", "app_names", "service_instance_guids", "service_instance_names", "service_plan_guids", "service_plan_names", "service_offering_guids", "service_offering_names", "include", paramSelector),
	"POST /v3/service_credential_bindings":                  begins().or(gives[v3.ServiceCredentialBinding](201)).from(jsonOf[v3.CreateCredentialBinding]()),
	"DELETE /v3/service_credential_bindings/{guid}":         begins().or(ends(204)),
	"GET /v3/service_credential_bindings/{guid}":            gives[v3.ServiceCredentialBinding](200).ask("include"),
	"PATCH /v3/service_credential_bindings/{guid}":          gives[v3.ServiceCredentialBinding](200).from(jsonOf[v3.UpdateMetadata]()),
	"GET /v3/service_credential_bindings/{guid}/details":    gives[v3.BindingDetails](200),
	"GET /v3/service_credential_bindings/{guid}/parameters": gives[json.RawMessage](200),

	"GET /v3/service_instances":                                                  pageOf[v3.ServiceInstance](append([]string{"names", "guids", "space_guids", "organization_guids", "service_plan_guids", "service_plan_names", "type", paramSelector}, fieldsOfInstance...)...),
	"POST /v3/service_instances":                                                 begins().or(gives[v3.ServiceInstance](201)).from(jsonOf[v3.CreateServiceInstance]()),
	"DELETE /v3/service_instances/{guid}":                                        begins().or(ends(204)).ask("purge"),
	"GET /v3/service_instances/{guid}":                                           gives[v3.ServiceInstance](200).ask(fieldsOfInstance...),
	"PATCH /v3/service_instances/{guid}":                                         begins().or(gives[v3.ServiceInstance](200)).from(jsonOf[v3.UpdateServiceInstance]()),
	"GET /v3/service_instances/{guid}/credentials":                               gives[json.RawMessage](200),
	"GET /v3/service_instances/{guid}/parameters":                                gives[json.RawMessage](200),
	"GET /v3/service_instances/{guid}/permissions":                               gives[v3.ServiceInstancePermissions](200),
	"GET /v3/service_instances/{guid}/relationships/shared_spaces":               gives[v3.SharedSpaces](200).ask(fieldsOfSpace, fieldsOfOrg),
	"POST /v3/service_instances/{guid}/relationships/shared_spaces":              gives[v3.SharedSpaces](200).from(jsonOf[v3.ShareServiceInstance]()),
	"GET /v3/service_instances/{guid}/relationships/shared_spaces/usage_summary": gives[v3.UsageSummary](200),
	"DELETE /v3/service_instances/{guid}/relationships/shared_spaces/{space}":    begins().or(ends(204)),

	"GET /v3/service_route_bindings":                   pageOf[v3.ServiceRouteBinding]("guids", "route_guids", "service_instance_guids", "service_instance_names", "include", paramSelector).by(byTime...),
	"POST /v3/service_route_bindings":                  begins().or(gives[v3.ServiceRouteBinding](201)).from(jsonOf[v3.CreateServiceRouteBinding]()),
	"DELETE /v3/service_route_bindings/{guid}":         begins().or(ends(204)),
	"GET /v3/service_route_bindings/{guid}":            gives[v3.ServiceRouteBinding](200).ask("include"),
	"PATCH /v3/service_route_bindings/{guid}":          gives[v3.ServiceRouteBinding](200).from(jsonOf[v3.UpdateMetadata]()),
	"GET /v3/service_route_bindings/{guid}/parameters": gives[json.RawMessage](200),
}
