package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// SetOOMScore sets how early the kernel kills a process and its later children when memory
// runs out: from -1000, never, to 1000, first. A process that has exited needs nothing.
func SetOOMScore(pid, score int) error {
	f, err := os.OpenFile(File(pid, "oom_score_adj"), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(strconv.Itoa(score))
		err = errors.Join(err, f.Close())
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("cannot set the OOM score of process %d: %w", pid, err)
	}
	return nil
}
