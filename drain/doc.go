// Package drain sends the lines of apps on to syslog servers.
//
//	Log ── Cursor ──▶ follower ── RFC 5424 ──▶ syslog://  syslog-tls://  https://  https-batch://
//	                     │
//	                     └─ how far the receiver has it: kept in the store, about once a second
//
// There is no second queue: an app's log is one, on disk and within its retention,
// and a drain is a reader with a place in it. A receiver that is away is tried
// again and again, later and later; the lines wait in the log meanwhile. What the
// retention drops in front of a drain is told, as to every reader.
//
// Over TCP nobody says what has arrived. So the kernel is asked which bytes the
// other side has taken: after a clean end sending goes on with the first line that
// it has not, none is missing and none comes twice. After any other end it goes on
// with what may have been lost on the way, and how many lines may come twice is
// counted and told. Over HTTP the answer says it.
package drain
