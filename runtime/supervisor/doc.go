// Package supervisor runs the desired state. It has the wanted slots of every process,
// keeps one instance running in each, and records every crash.
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
//	    └── STOPPING ◀── only on request: never a record
//
// One goroutine owns a Slot; all others see copies. Stop ends the processes of a slot.
// The end of the context leaves them running, and the next daemon adopts them. An
// Engine does the work on containers: package runtime/containerd is the real one.
package supervisor
