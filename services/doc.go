// Package services is the marketplace: brokers, their offerings and plans, service
// instances, what is bound to them, and the VCAP_SERVICES that apps see of it.
//
//	ServiceBroker ──▶ Offering ──▶ Plan ◀── Instance ◀── Binding ──▶ app, route, or nobody (a key)
//
//	Book.CreateInstance ─▶ record "create initial" + Operation   (one commit)
//	Book.Run            ─▶ Broker ─▶ record "create in progress" ─▶ … ─▶ "create succeeded"
//
// The Book owns all records. What takes a while is an Operation, kept in the store
// until it has ended: Run drives it by asking a Broker, and goes on where an
// earlier daemon stopped. Asking twice for the same guid is the same as asking
// once, that is what brokers promise; so whatever may have reached the broker is
// asked again. What a broker may have made although it failed is taken back.
//
// HTTPBroker speaks the Open Service Broker API; package services/builtin is the
// broker that is always there.
package services
