// Package logstream carries what processes print: bytes become Envelopes, an
// app's Log keeps them in segment files, and readers follow it by Cursor.
//
//	process ─▶ pipe ─▶ shim ─▶ capture file           lives on without the daemon
//	        ─▶ Tail: big reads, cuts lines, batches    a few workers for all tails
//	        ─▶ Log.Append: one frame, one write        never waits for the disk
//	             └▶ segment file ─▶ Cursor             never holds the writer
//	        ─▶ once a second: fdatasync, then punch what is safe out of the capture file
//
// Every line carries its byte range in the capture file, so the segments alone
// say where reading goes on after a crash. A Tail that cannot keep up, or a file
// system that runs full, freezes the printing process instead of losing a line.
package logstream
