// Package logstream stores the output of processes and serves it to readers. It turns
// bytes into Envelopes, an app's Log stores them in segment files, and readers follow
// the Log with a Cursor.
//
//	process ─▶ pipe ─▶ shim ─▶ capture file           works without the daemon
//	        ─▶ Tail: big reads, cuts lines, batches    a few workers for all tails
//	        ─▶ Log.Append: one frame, one write        never waits for the disk
//	             └▶ segment file ─▶ Cursor             never blocks the writer
//	        ─▶ once a second: fdatasync, then punch the synced bytes out of the capture file
//
// Every line carries its byte range in the capture file, so the segments alone say
// where reading continues after a crash. If a Tail cannot keep up, or the file system
// is almost full, dew freezes the printing process instead of losing a line.
package logstream
