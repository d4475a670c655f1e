// Package supervisor runs the desired state: it has the wanted slots of every
// process, keeps one instance alive in each, and writes down how it ended.
//
//	registry.Registry ── "p1 changed" ──▶ Supervisor.Sync ──▶ one Slot per wanted index
//
//	                   ┌──────────────── pause ◀───────────────┐
//	                   │        (back-off, or given up)        │
//	                   ▼                                       │
//	  DOWN ──▶ STARTING ── healthy ──▶ RUNNING                 │
//	    ▲          │                      │                    │
//	    │          └──── first exit, ─────┤                    │
//	    │            unhealthy, no start  ▼                    │
//	    │                              CRASHED                 │
//	    │                 1  5 ms for exits that are together  │
//	    │                 2  last lines + record, one Append   │
//	    │                 3  record stored                     │
//	    │                 4  SIGTERM, SIGKILL to the others    │
//	    │                 5  followers added, container gone ──┘
//	    │
//	    └── STOPPING ◀── only when asked: never a record
//
// One goroutine owns a Slot; everybody else sees copies. Stop ends the processes
// of a slot; the end of the context only lets go, and the next daemon adopts
// what runs. An Engine does the work on containers: package runtime/containerd
// is the real one.
package supervisor
