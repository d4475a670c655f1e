// Package fire is the fault suite. It keeps a mixed load on a real dewd, injects faults
// on a schedule that a seed determines, and checks invariants all the time and after
// each fault.
//
//	world   the dewd under test, its processes and resources
//	load    apps, requests, log followers, writes, mails; notes what was promised
//	faults  one row per fault
//	check   one row per invariant
//
// `make fire SEED=7 FAULTS=100` runs one schedule. `make test` runs each fault once.
package fire
