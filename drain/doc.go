// Package drain sends the log lines of apps to syslog servers. A drain reads the log of
// an app on disk and has no queue of its own.
//
//	Log ── Cursor ──▶ follower ── RFC 5424 ──▶ syslog://  syslog-tls://  https://  https-batch://
//	                     │
//	                     └─ the position of the receiver: stored about once a second
//
// An app's log is on disk and within its retention, and a drain is a reader with a
// position in it. If a receiver is unreachable, dewd retries at growing intervals while
// the lines stay in the log. If the retention drops lines before a drain has sent them,
// the drain reports that, like every reader.
//
// TCP does not confirm which lines have arrived. So dewd asks the kernel which bytes
// the other side has received. After a clean close, sending continues with the first
// line that the receiver does not have: no line is lost or duplicated. After any other
// close, dewd sends all lines again that may be lost. It counts and reports how many
// lines may be duplicated. Over HTTP the response confirms the lines.
package drain
