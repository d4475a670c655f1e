package logstream

import "sync"

// queue holds the tails that have something to read, each at most once.
type queue struct {
	mu     sync.Mutex // guards all fields, and the turn of each Tail
	ready  sync.Cond
	tails  []*Tail
	closed bool
}

// turn is the state of a Tail in the queue.
type turn uint8

const (
	idle    turn = iota
	waiting      // in the queue
	running      // a worker reads it
	again        // a worker reads it, and its file has grown since
)

func (q *queue) init() { q.ready.L = &q.mu }

func (q *queue) put(t *Tail) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch t.turn {
	case idle:
		t.turn = waiting
		q.tails = append(q.tails, t)
		q.ready.Signal()
	case running:
		t.turn = again
	case waiting, again:
	}
}

// take waits for a tail. It returns nil when the queue is closed.
func (q *queue) take() *Tail {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.tails) == 0 && !q.closed {
		q.ready.Wait()
	}
	if q.closed {
		return nil
	}
	t := q.tails[0]
	q.tails[0] = nil
	q.tails = q.tails[1:]
	t.turn = running
	return t
}

// release returns t to the queue. A tail with more to read goes to the end of the
// queue, so that one busy file does not block the others.
func (q *queue) release(t *Tail, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !more && t.turn != again {
		t.turn = idle
		return
	}
	t.turn = waiting
	q.tails = append(q.tails, t)
	q.ready.Signal()
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.ready.Broadcast()
}
