// Package apps has the dew commands for existing apps. They show apps and their crashes,
// and start, scale, deploy and configure them.
//
//	apps.go  view.go  ps.go  open.go        status
//	memory.go                               memory of processes, and advice
//	life.go  scale.go  env.go  checks.go    changes
//	stage.go  stage_queue.go                staging
//	deploy.go  wait.go                      deployments, and waiting for instances
//	crashes.go  why.go  kill.go  notify.go  crashes
package apps
