package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"

	"github.com/dewrun/dew/runtime/kubernetes/link"
	"github.com/dewrun/dew/runtime/kubernetes/wrapper"
)

// chunk is the maximum number of bytes of output in one frame.
const chunk = 128 << 10

// attached is a dewd that follows the Pod.
type attached struct {
	a      *Agent
	ctx    context.Context
	frames *link.Frames

	// Guarded by Agent.mu:
	paused []bool // by process
	syncs  []uint64
}

// handleAttach sends all exits and all output from the given positions, until the
// connection is closed.
func (a *Agent) handleAttach(w http.ResponseWriter, r *http.Request) {
	k, b, err := link.ReadFrame(r.Body, nil)
	var from link.Attach
	if err == nil {
		err = json.Unmarshal(b, &from)
	}
	if err != nil || k != link.KindSpec || len(from.Offsets) != len(a.procs) {
		link.Fail(w, http.StatusBadRequest, errors.Join(errors.New("the positions of the output are missing"), err))
		return
	}
	in, out := link.Answer(w, r)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	d := &attached{a: a, ctx: ctx, frames: link.NewFrames(out), paused: make([]bool, len(a.procs))}
	stop := context.AfterFunc(ctx, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.changed.Broadcast()
	})
	defer stop()
	var work sync.WaitGroup
	work.Go(func() { defer cancel(); d.sendEvents() })
	for i, p := range a.procs {
		for s := range 2 {
			work.Go(func() { defer cancel(); d.sendOutput(p, s, from.Offsets[i][s]) })
		}
	}
	work.Go(func() { defer cancel(); d.read(in) })
	<-ctx.Done()
	// The reader of the request ends with the request, which ends with this function.
}

// sendEvents sends the exits in their order, the ends of outputs, and answers to syncs.
func (d *attached) sendEvents() {
	sent := progress{finished: map[string]bool{}}
	for {
		send := d.nextEvent(&sent)
		if send == nil || send() != nil {
			return
		}
	}
}

// progress is what a dewd was already told.
type progress struct {
	exits    int
	finished map[string]bool
}

// nextEvent waits for the next event and returns a function that sends it. It returns
// nil when dewd is gone.
func (d *attached) nextEvent(sent *progress) func() error {
	a := d.a
	a.mu.Lock()
	defer a.mu.Unlock()
	for d.ctx.Err() == nil {
		if sent.exits < len(a.exits) {
			x := a.exits[sent.exits]
			sent.exits++
			return func() error { return d.frames.JSON(link.KindExit, x) }
		}
		for _, p := range a.procs {
			if p.finished != nil && !sent.finished[p.exec] {
				sent.finished[p.exec] = true
				f := *p.finished
				return func() error { return d.frames.JSON(link.KindFinished, f) }
			}
		}
		if len(d.syncs) > 0 {
			n := d.syncs[0]
			d.syncs = d.syncs[1:]
			return func() error { return d.frames.Write(link.KindSynced, link.Number(n)) }
		}
		a.changed.Wait()
	}
	return nil
}

// sendOutput sends one stream of output from an offset on.
func (d *attached) sendOutput(p *proc, stream int, from int64) {
	var f *os.File
	defer func() {
		if f != nil {
			_ = f.Close()
		}
	}()
	for buf := make([]byte, 4<<10); ; {
		n := d.awaitOutput(p, stream, from)
		if n == 0 {
			return
		}
		if n = min(n, chunk); int64(len(buf)) < n {
			buf = make([]byte, n)
		}
		var err error
		if f == nil {
			f, err = os.Open(wrapper.OutputFile(d.a.cfg.Run, p.exec, stream))
		}
		got := 0
		if err == nil {
			got, err = f.ReadAt(buf[:n], from)
		}
		if got == 0 && err != nil {
			d.a.log.Error("cannot read the output of a process", "exec", p.exec, "err", err)
			return
		}
		at := link.Position{Process: p.index, Stream: byte(stream), Offset: from}
		if d.frames.Write(link.KindOutput, at.Encode(), buf[:got]) != nil {
			return
		}
		from += int64(got)
	}
}

// awaitOutput waits for output after an offset and returns its size. It returns 0 when
// dewd is gone.
func (d *attached) awaitOutput(p *proc, stream int, from int64) int64 {
	d.a.mu.Lock()
	defer d.a.mu.Unlock()
	for d.ctx.Err() == nil {
		if n := p.size[stream] - from; n > 0 && !d.paused[p.index] {
			return n
		}
		d.a.changed.Wait()
	}
	return 0
}

// read handles the frames of dewd.
func (d *attached) read(in io.Reader) {
	for buf := make([]byte, 64); ; {
		k, b, err := link.ReadFrame(in, buf)
		if err != nil {
			return
		}
		switch k {
		case link.KindFreed, link.KindPause:
			at, _, err := link.DecodePosition(b)
			if err != nil || int(at.Process) >= len(d.a.procs) {
				return
			}
			d.position(k, at)
		case link.KindSync:
			n, err := link.DecodeNumber(b)
			if err != nil {
				return
			}
			go d.sync(n)
		}
	}
}

func (d *attached) position(k link.Kind, at link.Position) {
	a, p := d.a, d.a.procs[at.Process]
	a.mu.Lock()
	events := p.events
	if k == link.KindPause {
		d.paused[at.Process] = at.Offset != 0
	} else {
		p.freed[at.Stream] = max(p.freed[at.Stream], at.Offset)
	}
	a.changed.Broadcast()
	a.mu.Unlock()
	if k == link.KindFreed && events != nil {
		_ = events.Write(k, at.Encode()) // a wrapper that is gone needs no space
	}
}

// sync answers after the exits of all processes that have exited by now.
func (d *attached) sync(n uint64) {
	d.a.sync(d.ctx, nil)
	d.a.mu.Lock()
	defer d.a.mu.Unlock()
	d.syncs = append(d.syncs, n)
	d.a.changed.Broadcast()
}
