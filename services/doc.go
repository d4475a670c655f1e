// Package services defines the data types and validation rules of services: brokers,
// their offerings and plans, service instances and bindings. It also defines the
// requests that create and change them.
//
//	ServiceBroker ──▶ Offering ──▶ Plan ◀── Instance ◀── Binding ──▶ app, route, or none (a key)
//
// Broker is the interface of a provider of service instances. Package services/osb is a
// client of the Open Service Broker API, and services/builtin is the built-in broker.
// Package services/marketplace stores the records and runs the operations.
package services
