package wrapper

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime/kubernetes/link"
)

// Config is the configuration of a wrapper.
type Config struct {
	Exec    string   // id of the process
	Run     string   // folder that all containers of the Pod share
	Home    string   // home of the app, which the droplet is unpacked into
	Folders []string // folders that are stored after a crash
	Init    string   // path of dew-init
	Session []string // command of the helper that runs a session
	Cgroup  string   // where the control groups of this container are mounted
	Backlog int64    // bytes of output that can wait for the agent, for each stream
	Logger  *slog.Logger
}

// Socket returns the socket of the agent in the shared folder.
func Socket(run string) string { return filepath.Join(run, "agent.sock") }

// OutputFile returns the file with the output of a process. Stream 0 is its standard
// output, 1 its standard error.
func OutputFile(run, exec string, stream int) string {
	return filepath.Join(run, exec+[2]string{".out", ".err"}[stream])
}

// ExitFile returns the file with the exit of a process.
func ExitFile(run, exec string) string { return filepath.Join(run, exec+".exit") }

// wrapper is the wrapper of one process.
type wrapper struct {
	cfg Config
	log *slog.Logger
	out [2]*capture

	children *reaper
	quit     chan struct{} // closed when the wrapper must exit
	once     sync.Once

	mu       sync.Mutex // guards the fields below
	changed  *sync.Cond
	child    int // pid of the command, 0 before it is started
	started  bool
	exit     *link.Exit
	finished *link.Finished
	leaving  bool // exit after the command
	stopped  bool // Kubernetes has told the container to stop
	helpers  map[int]bool
}

// Run runs the wrapper until it must exit, and returns the exit code of the command.
func Run(ctx context.Context, cfg Config) (int, error) {
	w := &wrapper{cfg: cfg, log: cfg.Logger, quit: make(chan struct{}), helpers: map[int]bool{}}
	w.changed = sync.NewCond(&w.mu)
	// Orphans of the command become children of the wrapper, so none can escape.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 1, fmt.Errorf("cannot adopt orphaned processes: %w", err)
	}
	w.children = newReaper()
	for s := range w.out {
		c, err := openCapture(OutputFile(cfg.Run, cfg.Exec, s), cfg.Backlog)
		if err != nil {
			return 1, err
		}
		w.out[s] = c
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go w.forward(ctx, signals)
	go w.watchMemory(ctx)
	go w.serve(ctx)
	<-w.quit
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.exit == nil {
		return 0, nil
	}
	return w.exit.Code, nil
}

// leaveDelay is the time between SIGTERM of Kubernetes and that of the command. dewd stops
// sending requests to the instance, and requests that are being answered can end.
// Kubernetes waits at least two seconds before it kills.
const leaveDelay = time.Second

// forward passes the signals of Kubernetes on to the command. Kubernetes sends them when
// someone deletes the Pod.
func (w *wrapper) forward(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case s := <-signals:
			w.mu.Lock()
			w.leaving, w.stopped = true, true
			idle := !w.started || w.finished != nil
			w.mu.Unlock()
			if idle {
				w.leave()
				return
			}
			select {
			case <-time.After(leaveDelay):
			case <-ctx.Done():
			}
			w.signal(s.(syscall.Signal))
		case <-ctx.Done():
			return
		}
	}
}

// leave makes the wrapper exit.
func (w *wrapper) leave() { w.once.Do(func() { close(w.quit) }) }

// serve answers the agent, and connects again when the agent was restarted.
func (w *wrapper) serve(ctx context.Context) {
	mux := w.handler()
	for wait := 5 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, 500*time.Millisecond) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", Socket(w.cfg.Run))
		if err == nil {
			wait = 5 * time.Millisecond
			err = link.Serve(ctx, conn, link.Hello{Exec: w.cfg.Exec, PID: os.Getpid()}, mux)
		}
		w.log.Debug("not connected with the agent", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

func (w *wrapper) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(link.PathStart, w.handleStart)
	mux.HandleFunc(link.PathSignal, w.handleSignal)
	mux.HandleFunc(link.PathUsage, w.handleUsage)
	mux.HandleFunc(link.PathTree, w.handleTree)
	mux.HandleFunc(link.PathFiles, w.handleFiles)
	mux.HandleFunc(link.PathPack, w.handlePack)
	mux.HandleFunc(link.PathSession, w.handleSession)
	mux.HandleFunc(link.PathEvents, w.handleEvents)
	mux.HandleFunc(link.PathSync, w.handleSync)
	mux.HandleFunc(link.PathQuit, w.handleQuit)
	return mux
}

// Start is the body of PathStart for one wrapper.
type Start struct {
	link.Process
	Files    map[string]string `json:"files,omitempty"`
	FilesDir string            `json:"files_dir,omitempty"`
}

func (w *wrapper) handleStart(rw http.ResponseWriter, r *http.Request) {
	var s Start
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
		link.Fail(rw, http.StatusBadRequest, err)
		return
	}
	if err := w.start(s); err != nil {
		link.Fail(rw, http.StatusConflict, err)
	}
}

// start starts the command. A second start does nothing: a dewd that was killed after
// the first one repeats it.
func (w *wrapper) start(s Start) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started {
		return nil
	}
	if err := writeFiles(s.FilesDir, s.Files); err != nil {
		return err
	}
	gate, gateEnd, err := os.Pipe()
	if err != nil {
		return err
	}
	defer gate.Close()
	defer gateEnd.Close()
	if _, err := gateEnd.Write([]byte{1}); err != nil { // dew-init waits for one byte
		return err
	}
	var ends [2]*os.File
	for i, c := range w.out {
		r, end, err := os.Pipe()
		if err != nil {
			return err
		}
		defer end.Close()
		ends[i] = end
		go c.copy(r)
	}
	ended := make(chan result, 1)
	pid, err := w.children.start(append([]string{w.cfg.Init}, s.Args...), &syscall.ProcAttr{
		Dir: s.Dir, Env: s.Env, Files: []uintptr{gate.Fd(), ends[0].Fd(), ends[1].Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	}, ended)
	if err != nil {
		return fmt.Errorf("cannot start the command in %s: %w", s.Dir, err)
	}
	w.child, w.started = pid, true
	go w.watch(ended)
	return nil
}

// watch handles the command from its exit to its last line.
func (w *wrapper) watch(ended <-chan result) {
	r := <-ended
	x := &link.Exit{Exec: w.cfg.Exec, Code: r.code, At: r.at, Usage: w.usage()}
	w.mu.Lock()
	x.Terminated = w.stopped
	w.mu.Unlock()
	w.save(x, nil)
	w.mu.Lock()
	w.exit = x
	w.changed.Broadcast()
	w.mu.Unlock()
	w.killAll()
	f := &link.Finished{Exec: w.cfg.Exec}
	for i, c := range w.out {
		<-c.done
		f.Size[i] = c.position()
	}
	w.save(x, f)
	w.mu.Lock()
	w.finished = f
	leaving := w.leaving
	w.changed.Broadcast()
	w.mu.Unlock()
	if leaving {
		w.leave()
	}
}

// Result is the content of an exit file.
type Result struct {
	Exit     *link.Exit     `json:"exit"`
	Finished *link.Finished `json:"finished,omitempty"`
}

// save writes the exit into a file for an agent that is started again after the wrapper
// has exited.
func (w *wrapper) save(x *link.Exit, f *link.Finished) {
	b, err := json.Marshal(Result{x, f})
	file := ExitFile(w.cfg.Run, w.cfg.Exec)
	if err == nil {
		if err = os.WriteFile(file+".new", b, 0o644); err == nil { //nolint:forbidigo // renamed below; it does not outlive the Pod
			err = os.Rename(file+".new", file)
		}
	}
	if err != nil {
		w.log.Warn("cannot store the exit", "err", err)
	}
}

func (w *wrapper) handleSignal(rw http.ResponseWriter, r *http.Request) {
	var s link.Signal
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
		link.Fail(rw, http.StatusBadRequest, err)
		return
	}
	if syscall.Signal(s.Number) == syscall.SIGKILL {
		w.mu.Lock()
		started := w.started
		w.mu.Unlock()
		if started {
			w.killAll()
		}
		return
	}
	w.signal(syscall.Signal(s.Number))
}

// handleSync answers with the exit of the command, if it has exited by now.
func (w *wrapper) handleSync(rw http.ResponseWriter, _ *http.Request) {
	w.mu.Lock()
	for w.started && w.exit == nil && zombie(w.child) {
		w.changed.Wait()
	}
	answer := link.Synced{Exit: w.exit}
	w.mu.Unlock()
	_ = json.NewEncoder(rw).Encode(answer) // the agent finds out that the answer is missing
}

// handleQuit kills everything in the container and lets the wrapper exit.
func (w *wrapper) handleQuit(http.ResponseWriter, *http.Request) {
	w.mu.Lock()
	w.leaving = true
	idle := !w.started || w.finished != nil
	w.mu.Unlock()
	if idle {
		w.leave()
		return
	}
	w.killAll()
}

// handleEvents reports the exit, the end of the output, and its growth, on a stream. The
// other direction says which output is stored.
func (w *wrapper) handleEvents(rw http.ResponseWriter, r *http.Request) {
	in, out := link.Answer(rw, r)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		defer cancel()
		w.readFreed(in)
	}()
	go func() {
		<-ctx.Done()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.changed.Broadcast()
	}()
	frames := link.NewFrames(out)
	var work sync.WaitGroup
	work.Go(func() { defer cancel(); w.sendExit(ctx, frames) })
	for i, c := range w.out {
		work.Go(func() { c.report(ctx, i, frames) })
	}
	work.Wait()
}

// sendExit sends the exit and the end of the output as soon as they are known. It
// returns when ctx is done.
func (w *wrapper) sendExit(ctx context.Context, frames *link.Frames) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var exitSent, finishedSent bool
	for ctx.Err() == nil {
		var err error
		switch {
		case w.exit != nil && !exitSent:
			exitSent = true
			x := *w.exit
			w.mu.Unlock()
			err = frames.JSON(link.KindExit, x)
			w.mu.Lock()
		case w.finished != nil && !finishedSent:
			finishedSent = true
			f := *w.finished
			w.mu.Unlock()
			err = frames.JSON(link.KindFinished, f)
			w.mu.Lock()
		default:
			w.changed.Wait()
		}
		if err != nil {
			return
		}
	}
}

func (w *wrapper) readFreed(in interface{ Read([]byte) (int, error) }) {
	for buf := make([]byte, 64); ; {
		k, b, err := link.ReadFrame(in, buf)
		if err != nil {
			return
		}
		if p, _, err := link.DecodePosition(b); k == link.KindFreed && err == nil {
			w.out[p.Stream].free(p.Offset)
		}
	}
}

// writeFiles creates the files with the service bindings.
func writeFiles(dir string, files map[string]string) error {
	for name, data := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		err := os.MkdirAll(filepath.Dir(file), 0o755)
		if err == nil {
			err = os.WriteFile(file, []byte(data), 0o644) //nolint:forbidigo // nothing reads it yet; it does not outlive the Pod
		}
		if err != nil {
			return fmt.Errorf("cannot create the files of the service bindings: %w", err)
		}
	}
	return nil
}
