// Package usage measures what the running instances use, and keeps one hour of samples.
//
//	supervisor ── containers ──▶ Sampler ── every 10 s ──▶ samples of one hour (History)
//	router ─────── requests ───▶         └─ while clients read ─▶ every second (Now)
//	ExitLog ──── exit records ─▶ peaks of earlier instances, newest crash of a process
//
// One goroutine reads the counters of all instances and computes the rates. Clients
// share its results, so that many of them cost no more than one and do not change each
// other's rates.
package usage
