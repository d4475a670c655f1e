// Package smoke implements dew smoke, the command for CI jobs. It pushes the apps of a
// folder, waits until all of them run, runs the checks of smoke.yml and reports the
// results.
//
//	                 DIR  DIR/...  MANIFEST
//	                         │  find.go
//	                         ▼
//	private.go         Folder (manifests, Spec)         spec.go  parse.go  yaml.go
//	a daemon, if             │
//	none is running          ▼  run.go: one TestSpace each, removed at the end (testspace.go)
//	              build ▶ services ▶ before ▶ push ▶ wait ▶ check ▶ check …
//	                         │                              │  check.go  http.go  app_checks.go  exit.go  script.go
//	        watch.go: a crash stops the run at once         ▼  verify.go: does it hold?
//	        tail.go: the lines of the apps, in parallel   Step (name, took, failure)
//	                         │
//	                         ▼
//	              Report ▶ table, JSON (report.go)  JUnit (junit.go)  bundle (bundle.go, mask.go)
//
// It declares the dew commands that it needs as Commands. Package cli/smoketest implements
// them with the same code as dew push, dew ssh and so on.
package smoke
