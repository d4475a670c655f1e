package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// count prints numbered lines of 100 bytes, every fifth on stderr; each stream
// has numbers of its own.
func count(n, rate int) {
	out, errs := bufio.NewWriterSize(os.Stdout, 1<<16), bufio.NewWriterSize(os.Stderr, 1<<16)
	began := time.Now()
	outs, others := 0, 0
	for i := range n {
		if i%5 == 4 {
			fmt.Fprintf(errs, "%s %d %069d %d\n", "err", others, i, time.Now().UnixNano()/1000)
			others++
		} else {
			fmt.Fprintf(out, "%s %d %069d %d\n", "out", outs, i, time.Now().UnixNano()/1000)
			outs++
		}
		if rate > 0 && i%max(rate/1000, 1) == 0 {
			out.Flush()
			errs.Flush()
			time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		}
	}
	out.Flush()
	errs.Flush()
	fmt.Printf("end after %d ms\n", time.Since(began).Milliseconds())
	sleep()
}

// lastWords ends as badly as a process can: its child still holds the pipe, and
// the last line has no end.
func lastWords() {
	fmt.Println("first words")
	c := exec.Command(os.Args[0], "sleep")
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Start(); err != nil {
		fail("%v", err)
	}
	time.Sleep(200 * time.Millisecond) // the child says that it sleeps
	fmt.Fprint(os.Stderr, "\xff\x00 binary\n")
	fmt.Print("last words")
	syscall.Exit(3)
}
