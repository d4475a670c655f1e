//go:build integration || systemd || bench

package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// runKilledDewd runs this program as a dewd that kills itself at a moment such as
// "commit 7". That is right after the seventh commit since a file named armed
// appeared in its root's parent.
func runKilledDewd(moment string) int {
	kind, number, _ := strings.Cut(moment, " ")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	armed := os.Getenv("DEW_TEST_ARMED")
	var count atomic.Int64
	die := func() {
		if _, err := os.Stat(armed); err != nil {
			return
		}
		if count.Add(1) == n {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	c := defaultConfig()
	if kind == "commit" {
		c.committed = die
	} else {
		c.called = die
	}
	err = newApp(c).RunContext(context.Background(), os.Args)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return statusOf(err)
}
