// Package apps has the commands of dew about apps that exist: how they are, how
// they are started, scaled, deployed and configured, and why they crashed.
//
//	apps.go  view.go  ps.go  open.go        how apps are
//	life.go  scale.go  env.go  checks.go    changes
//	stage.go  stage_queue.go                staging
//	deploy.go  wait.go                      deployments, and waiting for instances
//	crashes.go  why.go  kill.go  notify.go  crashes
package apps
