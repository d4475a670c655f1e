// Package services has the values and rules of services: brokers, their offerings and
// plans, service instances and bindings, and the requests that create and change them.
//
//	ServiceBroker ──▶ Offering ──▶ Plan ◀── Instance ◀── Binding ──▶ app, route, or none (a key)
//
// Broker is the contract with whatever provides service instances. Package services/osb
// speaks the Open Service Broker API; services/builtin is the built-in broker;
// services/marketplace stores the records and carries out operations.
package services
