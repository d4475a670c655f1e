package wrapper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime/kubernetes/link"
)

// RunSession runs one session whose frames come over conn. It returns when the program
// has exited and its output is sent, or when the connection is closed. Then no process
// of the session is left.
func RunSession(conn io.ReadWriteCloser) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot adopt orphaned processes: %w", err)
	}
	// If the app is out of memory, the kernel kills sessions first. A failure is not a
	// reason to refuse the session.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0) //nolint:forbidigo // a file of the kernel
	k, b, err := link.ReadFrame(conn, nil)
	var p program
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil || k != link.KindSpec || len(p.Args) == 0 {
		return errors.Join(errors.New("the session has no program"), err)
	}
	h := &helper{conn: conn, frames: link.NewFrames(conn)}
	return h.run(p)
}

// helper is one session.
type helper struct {
	conn   io.ReadWriteCloser
	frames *link.Frames
	cmd    *exec.Cmd
	tty    *os.File // nil without a terminal
	in     io.WriteCloser
	output sync.WaitGroup
}

func (h *helper) run(p program) error {
	h.cmd = &exec.Cmd{Path: p.Args[0], Args: p.Args, Dir: p.Dir, Env: p.Env}
	closeEnds, err := h.connect(p)
	if err == nil {
		err = h.cmd.Start()
		closeEnds()
	}
	if err != nil {
		// The user sees it where the output of the program would be.
		_ = h.frames.Write(link.KindStderr, []byte("cannot start the session: "+err.Error()+"\n"))
		return h.frames.JSON(link.KindResult, link.SessionResult{Code: 126})
	}
	go h.read()
	code := exitStatus(h.cmd.Wait())
	err = h.frames.JSON(link.KindResult, link.SessionResult{Code: code})
	h.kill() // processes in the background would keep the output open
	h.output.Wait()
	return errors.Join(err, h.conn.Close())
}

func exitStatus(err error) int {
	var e *exec.ExitError
	if !errors.As(err, &e) {
		return 0
	}
	return exitCode(e.Sys().(syscall.WaitStatus))
}

// connect gives the program its terminal or its pipes. The returned function closes the
// ends that only the program needs.
func (h *helper) connect(p program) (func(), error) {
	if p.TTY {
		tty, end, err := pty.Open()
		if err != nil {
			return nil, fmt.Errorf("cannot open a terminal: %w", err)
		}
		if p.Size.Columns > 0 && p.Size.Rows > 0 {
			if err := pty.Setsize(tty, &pty.Winsize{Cols: p.Size.Columns, Rows: p.Size.Rows}); err != nil {
				return nil, fmt.Errorf("cannot set the size of the terminal: %w", err)
			}
		}
		h.tty, h.in = tty, tty
		h.cmd.Stdin, h.cmd.Stdout, h.cmd.Stderr = end, end, end
		h.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		h.copyOutput(link.KindStdout, tty)
		return func() { _ = end.Close() }, nil
	}
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	h.in, h.cmd.Stdin, h.cmd.Stdout, h.cmd.Stderr = inW, inR, outW, errW
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	h.copyOutput(link.KindStdout, outR)
	h.copyOutput(link.KindStderr, errR)
	return func() {
		for _, f := range []*os.File{inR, outW, errW} {
			_ = f.Close()
		}
	}, nil
}

// copyOutput sends output until its end. A terminal ends with an error.
func (h *helper) copyOutput(k link.Kind, r *os.File) {
	h.output.Go(func() {
		for buf := make([]byte, 32<<10); ; {
			n, err := r.Read(buf)
			if n > 0 && h.frames.Write(k, buf[:n]) != nil {
				return
			}
			if err != nil {
				return
			}
		}
	})
}

// endOfText is the character that ends the input of a terminal.
const endOfText = 4

// read handles the frames of the client. When the client is gone, it ends the session.
func (h *helper) read() {
	for buf := make([]byte, 64<<10); ; {
		k, b, err := link.ReadFrame(h.conn, buf)
		if err != nil {
			h.kill()
			return
		}
		switch k {
		case link.KindInput:
			_, _ = h.in.Write(b) // the program can have closed its input
		case link.KindInputEnd:
			if h.tty != nil {
				_, _ = h.tty.Write([]byte{endOfText})
				continue
			}
			_ = h.in.Close()
		case link.KindResize:
			var s link.Size
			if json.Unmarshal(b, &s) == nil && h.tty != nil {
				_ = pty.Setsize(h.tty, &pty.Winsize{Cols: s.Columns, Rows: s.Rows}) // the program can have exited
			}
		case link.KindSignal:
			n, err := link.DecodeNumber(b)
			if err != nil {
				continue
			}
			for _, pid := range Descendants(os.Getpid(), nil) {
				_ = syscall.Kill(pid, syscall.Signal(n)) // it can have exited
			}
		}
	}
}

func (h *helper) kill() { KillAll(func() []int { return Descendants(os.Getpid(), nil) }) }
