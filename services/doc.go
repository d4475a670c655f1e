// Package services is the marketplace: brokers, their offerings and plans, service
// instances, what is bound to them, and the VCAP_SERVICES that apps see of it.
//
//	ServiceBroker ──▶ Offering ──▶ Plan ◀── Instance ◀── Binding ──▶ app, route, or nobody (a key)
//
//	Marketplace.CreateInstance ─▶ record "create initial" + Operation   (one commit)
//	Marketplace.Run            ─▶ Broker ─▶ record "create in progress" ─▶ … ─▶ "create succeeded"
//
// The Marketplace owns all records. Whatever takes a while is an Operation, stored
// until it has ended: Run carries it out by sending requests to a Broker, and continues
// where an earlier daemon stopped. Brokers promise that the same request for the same
// guid has the same effect once or twice, so Run repeats every request that may have
// reached the broker. If a create fails and may have left something at the broker,
// Run deletes it.
//
// HTTPBroker speaks the Open Service Broker API; package services/builtin is the
// broker that is always there.
package services
