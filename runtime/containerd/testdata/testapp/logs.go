package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// count prints numbered lines of 100 bytes, every fifth on stderr. Each stream has its
// own numbers.
func count(n, rate int) {
	out, errs := bufio.NewWriterSize(os.Stdout, 1<<16), bufio.NewWriterSize(os.Stderr, 1<<16)
	began := time.Now()
	outs, others := 0, 0
	line := make([]byte, 0, 128)
	for i := range n {
		w, name, own := out, "out ", &outs
		if i%5 == 4 {
			w, name, own = errs, "err ", &others
		}
		line = strconv.AppendInt(append(line[:0], name...), int64(*own), 10)
		line = strconv.AppendInt(append(line, ' '), time.Now().UnixMicro(), 10)
		line = append(line, ' ')
		for len(line) < 99 {
			line = append(line, 'x')
		}
		w.Write(append(line, '\n'))
		*own++
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

// lastWords exits in the worst way for a reader: its child still holds the pipe, and
// the last line has no newline.
func lastWords() {
	fmt.Println("first words")
	c := exec.Command(os.Args[0], "sleep")
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Start(); err != nil {
		fail("%v", err)
	}
	time.Sleep(200 * time.Millisecond) // the child reports that it sleeps
	fmt.Fprint(os.Stderr, "\xff\x00 binary\n")
	fmt.Print("last words")
	syscall.Exit(3)
}
