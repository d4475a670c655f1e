package world

import (
	"bytes"
	"fmt"
	"os"
)

// Faulty returns an error if dewd printed a panic or a data race.
func (w *World) Faulty() error {
	b, err := os.ReadFile(w.LogFile())
	if err != nil {
		return err
	}
	w.mu.Lock()
	b = b[min(w.forgiven, len(b)):]
	w.mu.Unlock()
	const context = 6000
	for _, word := range []string{"DATA RACE", "\npanic: ", "\nfatal error: ", "goroutine 1 ["} {
		if i := bytes.Index(b, []byte(word)); i >= 0 {
			return fmt.Errorf("dewd reports a defect:\n%s", b[max(0, i-context/6):min(len(b), i+context)])
		}
	}
	return nil
}

// Forgive ignores the output of dewd so far. It is for faults after which a Go program
// cannot continue.
func (w *World) Forgive() {
	b, err := os.ReadFile(w.LogFile())
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.forgiven = len(b)
	}
}
