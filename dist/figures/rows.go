package main

// row is a row of the table. Its ratio is that of value and floor.
type row struct {
	benchmark string
	what      string // what is measured
	value     string // unit of the figure in the output of the benchmark
	against   string // what the floor or the peer is; empty: value has a goal of its own
	floor     string // unit of the floor
	goal      float64
	atLeast   bool   // the goal is a lower limit
	unit      string // how figures are printed: ms, MB, KB, /s, %
}

// rows are the comparisons of docs/performance.md, in its order.
var rows = []row{
	{benchmark: "Start", what: "start of an instance with one sidecar", value: "start-ms", against: "the same with containerd alone", floor: "floor-ms", goal: 1, unit: "ms"},
	{benchmark: "Crash", what: "kill of a sidecar until its exit record, p99, after containerd reports the exit", value: "record-behind-wait-p99-ms", goal: 10, unit: "ms"},
	{benchmark: "Crash", what: "kill of a sidecar until the next instance runs", value: "crash-to-running-ms", against: "a start with containerd alone", floor: "bare-start-ms", goal: 0.6, unit: "ms"},
	{benchmark: "Crash", what: "kill of a sidecar until the next instance runs, with `--spare-instances`", value: "with-a-spare-ms", against: "a start with containerd alone", floor: "bare-start-ms", goal: 0.6, unit: "ms"},
	{benchmark: "Scale", what: "start number 91 to 100", value: "last-ms", against: "start number 1 to 10", floor: "first-ms", goal: 1.5, unit: "ms"},
	{benchmark: "Scale", what: "heap and stacks of dewd for each instance", value: "heap+stack-KB/instance", goal: 200, unit: "KB"},
	{benchmark: "Push", what: "push of an unchanged app until its route answers", value: "ms/push", against: "the start of its instance", floor: "ms/start", goal: 1.3, unit: "ms"},
	{benchmark: "Push", what: "dewd with one idle app", value: "MB-idle", goal: 60, unit: "MB"},
	{benchmark: "Push", what: "a printed line on a following `dew logs`", value: "ms/line", unit: "ms"},
	{benchmark: "Repush", what: "one of 10,000 files changed, push until the route answers", value: "ms/files", against: "the unchanged push", floor: "ms/files-unchanged", goal: 2, unit: "ms"},
	{benchmark: "Repush", what: "a file of a Python app changed, push until the route answers", value: "ms/python", against: "the unchanged push", floor: "ms/python-unchanged", goal: 1.5, unit: "ms"},
	{benchmark: "FirstGoPush", what: "first push of a Go app after another one", value: "ms/first", against: "the next push of the other one", floor: "ms/second", goal: 1.5, unit: "ms"},
	{benchmark: "Ready", what: "start of dewd with 100 running apps until `dew apps` lists them", value: "ms/ready", goal: 1000, unit: "ms"},
	{benchmark: "Curves/Instances", what: "100 instances started at once, time for each", value: "ms/instance-100", against: "one instance", floor: "ms/instance-1", goal: 1.3, unit: "ms"},
	{benchmark: "Curves/Followers", what: "processor time of dewd for a line and each of 100 followers", value: "µs/line-100", against: "one follower", floor: "µs/line-1", goal: 1.3, unit: "µs"},
	{benchmark: "Curves/Requests", what: "time of the API requests for one app among 1,000 apps", value: "ms/app-1000", against: "one app", floor: "ms/app-1", goal: 1.3, unit: "ms"},
	{benchmark: "Logs", what: "lines stored", value: "dew-written/s", against: "docker", floor: "docker-written/s", goal: 8, atLeast: true, unit: "/s"},
	{benchmark: "Logs", what: "lines read", value: "dew-read/s", against: "docker", floor: "docker-read/s", goal: 20, atLeast: true, unit: "/s"},
	{benchmark: "LogsLate", what: "a printed line on a following `dew logs` at 10,000 per second, p99", value: "ms-p99", goal: 20, unit: "ms"},
	{benchmark: "LogsFollowers", what: "100,000 lines per second with four followers, slower by", value: "%slower", goal: 10, unit: "%"},
	{benchmark: "Peers", what: "a changed file of the sample until it answers through its sidecar", value: "ms/dew", against: "docker", floor: "ms/docker", goal: 0.3, unit: "ms"},
	{benchmark: "Peers", what: "a changed file of the sample until it answers through its sidecar", value: "ms/dew", against: "docker compose", floor: "ms/compose", goal: 0.3, unit: "ms"},
	{benchmark: "Peers", what: "a changed file of the sample until it answers through its sidecar", value: "ms/dew", against: "podman", floor: "ms/podman", goal: 0.3, unit: "ms"},
	{benchmark: "Peers", what: "daemons, containerd and shims with the sample running", value: "MB-dew", against: "docker", floor: "MB-docker", goal: 0.5, unit: "MB"},
	{benchmark: "Apps", what: "`dew apps` with 100 apps of 300 processes", value: "ms/dew", against: "an empty space", floor: "ms/dew-empty", unit: "ms"},
	{benchmark: "Apps", what: "`cf apps` with 100 apps of 300 processes", value: "ms/cf", against: "an empty space", floor: "ms/cf-empty", goal: 1.5, unit: "ms"},
	{benchmark: "Router", what: "requests through the router", value: "dew-req/s", against: "caddy", floor: "caddy-req/s", goal: 1.5, atLeast: true, unit: "/s"},
	{benchmark: "Router", what: "requests through the router", value: "dew-req/s", against: "nginx", floor: "nginx-req/s", goal: 0.7, atLeast: true, unit: "/s"},
	{benchmark: "Router", what: "requests through the router", value: "dew-req/s", against: "traefik", floor: "traefik-req/s", atLeast: true, unit: "/s"},
	{benchmark: "Router", what: "p99 of a request", value: "dew-p99-ms", against: "caddy", floor: "caddy-p99-ms", goal: 1.5, unit: "ms"},
	{benchmark: "Router", what: "responses with 1 MB", value: "dew-MB/s", against: "caddy", floor: "caddy-MB/s", atLeast: true, unit: "MB/s"},
	{benchmark: "Router", what: "responses with 1 MB", value: "dew-MB/s", against: "nginx", floor: "nginx-MB/s", atLeast: true, unit: "MB/s"},
	{benchmark: "Router", what: "responses with 1 MB", value: "dew-MB/s", against: "traefik", floor: "traefik-MB/s", atLeast: true, unit: "MB/s"},
	{benchmark: "Router", what: "WebSocket messages there and back", value: "dew-messages/s", against: "caddy", floor: "caddy-messages/s", atLeast: true, unit: "/s"},
	{benchmark: "Router", what: "WebSocket messages there and back", value: "dew-messages/s", against: "nginx", floor: "nginx-messages/s", atLeast: true, unit: "/s"},
	{benchmark: "Router", what: "WebSocket messages there and back", value: "dew-messages/s", against: "traefik", floor: "traefik-messages/s", atLeast: true, unit: "/s"},
	{benchmark: "Console", what: "first view of the console with 100 apps", value: "ms/first-view", goal: 200, unit: "ms"},
	{benchmark: "Console", what: "a request until the console has drawn its log line, p99", value: "ms/line-p99", goal: 300, unit: "ms"},
}
