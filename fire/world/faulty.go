package world

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/dewrun/dew/runtime/containerd/names"
)

// around is the number of bytes of dewd's output that an error of Faulty shows.
const around = 6000

// Faulty returns an error if dewd printed a panic or a data race. It reads the output
// only once, because that of a long run is large.
func (w *World) Faulty() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return readNew(w)
}

// readNew reads the output since the last call. It does not go on after a panic or a data
// race, so that every later call also reports it. Hold w.mu.
func readNew(w *World) error {
	b, err := outputFrom(w.LogFile(), w.checked)
	if err != nil {
		return err
	}
	for _, word := range []string{"DATA RACE", "\npanic: ", "\nfatal error: ", "goroutine 1 ["} {
		if i := bytes.Index(b, []byte(word)); i >= 0 {
			return fmt.Errorf("dewd reports a defect:\n%s", b[max(0, i-around/6):min(len(b), i+around)])
		}
	}
	readOutput(w, b)
	return nil
}

// readOutput notes what dewd's output says about instances. Hold w.mu.
func readOutput(w *World, b []byte) {
	// The last line can be incomplete. The words of Faulty begin with the end of a line.
	end := max(0, bytes.LastIndexByte(b, '\n'))
	w.checked += int64(end)
	for line := range bytes.Lines(b[:end]) {
		if m := unfinished.FindSubmatch(line); m != nil {
			w.unfinished[string(m[1])+string(m[2])] = true
		}
	}
}

// unfinished matches the lines of dewd about an instance that an earlier dewd was starting
// when it was killed, and about an instance that a fault ended while dewd started it.
var unfinished = regexp.MustCompile(`msg="(?:swept container" container=` + names.Prefix + `(\S+) started=false|cannot use the prepared instance;.* instance=(\S+) )`)

// Unfinished reports whether dewd removed an instance because dewd was killed while it
// started it, or could not finish its start and created another one. Such an instance has
// no exit record. The dewd that removes it can have started just now, so this reads the
// newest output.
func (w *World) Unfinished(id string) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unfinished[id] {
		return true, nil
	}
	err := readNew(w)
	return w.unfinished[id], err
}

// outputFrom reads a file from an offset.
func outputFrom(file string, offset int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.NewSectionReader(f, offset, 1<<40))
}

// Forgive accepts the defects in the output of dewd so far. It is for faults after which a
// Go program cannot continue.
func (w *World) Forgive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if b, err := outputFrom(w.LogFile(), w.checked); err == nil {
		readOutput(w, b)
	}
}
