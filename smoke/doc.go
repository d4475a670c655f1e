// Package smoke is the verb for CI jobs: it pushes the apps of a folder, waits
// until all of them run, checks what smoke.yml says and tells how that went.
//
//	                 DIR  DIR/...  MANIFEST
//	                         │  find.go
//	                         ▼
//	private.go         Folder (manifests, Spec)         spec.go  parse.go  yaml.go
//	a daemon, if             │
//	none answers             ▼  run.go: one Place each, gone at the end (place.go)
//	              build ▶ services ▶ before ▶ push ▶ wait ▶ check ▶ check …
//	                         │                              │  check.go  http.go  inside.go  exit.go  script.go
//	        watch.go: a crash ends the run at once          ▼  judge.go: does it hold?
//	        tail.go: the lines of the apps, meanwhile     Step (name, took, failure)
//	                         │
//	                         ▼
//	              Report ▶ table, JSON (report.go)  JUnit (junit.go)  bundle (bundle.go, mask.go)
//
// What it needs of the commands of dew it declares as Verbs; package cli/smoketest does
// these with the very code of dew push, dew ssh and so on.
package smoke
