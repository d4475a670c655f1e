// Package marketplace stores brokers, offerings, plans, service instances and bindings.
// It runs the operations on them and builds the VCAP_SERVICES of apps.
//
//	Marketplace.CreateInstance ─▶ record "create initial" + Operation   (one commit)
//	Marketplace.Run            ─▶ Broker ─▶ record "create in progress" ─▶ … ─▶ "create succeeded"
//
// The Marketplace owns all records. Anything that takes a while is an Operation, stored
// until it finishes. Run executes it by sending requests to a Broker, and continues
// where an earlier daemon stopped. Brokers guarantee that repeating a request for the
// same guid has no further effect. So Run repeats every request that may have reached
// the broker. If a create fails and may have left something at the broker, Run deletes
// it.
package marketplace
