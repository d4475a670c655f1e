package connection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/dialer"
	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/dewrun/dew/runtime/process"
)

// CallTimeout is the time limit for most calls to containerd.
const CallTimeout = 30 * time.Second

const (
	// AnswerTimeout is the time limit for a trivial call to containerd.
	AnswerTimeout = 3 * time.Second
	// answerInterval is how often dewd checks whether containerd answers.
	answerInterval = time.Second
)

// errSilent is the reason why the state of an instance is unknown.
var errSilent = errors.New("containerd does not answer")

// Config is the configuration of a Connection.
type Config struct {
	Address   string                                             // containerd's socket
	Namespace string                                             // namespace in containerd
	Called    func(method string, took time.Duration, err error) // called after each call to containerd, can be nil
	Logger    *slog.Logger
}

// Connection is a connection to containerd. It checks regularly whether containerd
// answers.
type Connection struct {
	Client *client.Client
	Tasks  tasks.TasksClient

	address      string
	namespace    string
	log          *slog.Logger
	silent       atomic.Bool // containerd does not answer
	watching     sync.WaitGroup
	stopWatching context.CancelFunc
}

// Open connects to containerd. The client reconnects quickly after a restart of
// containerd.
func Open(ctx context.Context, cfg Config) (*Connection, error) {
	address := cfg.Address
	again := backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 500 * time.Millisecond}
	cl, err := client.New(address, client.WithDefaultNamespace(cfg.Namespace), client.WithDialOpts([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: time.Second}),
		grpc.WithContextDialer(dialer.ContextDialer),
		grpc.WithChainUnaryInterceptor(timed(cfg.Called)),
	}))
	if err != nil {
		return nil, fmt.Errorf("cannot connect to containerd at %s: %w", address, err)
	}
	if err := firstAnswer(ctx, cl, address); err != nil {
		cl.Close()
		return nil, fmt.Errorf("containerd at %s does not answer: %w (check that it is running and that this is its socket)", address, err)
	}
	c := &Connection{Client: cl, Tasks: cl.TaskService(), address: address, namespace: cfg.Namespace, log: cfg.Logger}
	answers, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stopWatching = stop
	c.watching.Go(func() { c.watchAnswers(answers) })
	return c, nil
}

// DeleteNamespace deletes the namespace in containerd. It fails if the namespace has
// something that dewd did not create. The next use creates it again.
func (c *Connection) DeleteNamespace(ctx context.Context) error {
	err := c.Client.NamespaceService().Delete(ctx, c.namespace)
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// firstAnswer waits until containerd answers. A containerd that is stopped or has just
// been started gets CallTimeout. Without a listener it fails at once.
func firstAnswer(ctx context.Context, cl *client.Client, address string) error {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "unix", address)
	if err != nil {
		return err
	}
	if err := c.Close(); err != nil {
		return err
	}
	_, err = cl.VersionService().Version(ctx, &emptypb.Empty{}, grpc.WaitForReady(true))
	return err
}

// timed reports the duration of every call. It leaves out calls that wait for the exit
// of a process, and calls that only check whether containerd answers.
func timed(called func(method string, took time.Duration, err error)) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		began := time.Now()
		err := invoke(ctx, method, req, reply, cc, opts...)
		if name := path.Base(method); called != nil && name != "Wait" && name != "Version" {
			called(name, time.Since(began), err)
		}
		return err
	}
}

// Close disconnects from containerd.
func (c *Connection) Close() error {
	c.stopWatching()
	c.watching.Wait()
	return c.Client.Close()
}

// Outage returns why the state of the instances is unknown now. It is nil while
// containerd answers.
func (c *Connection) Outage() error {
	if c.silent.Load() {
		return errSilent
	}
	return nil
}

// watchAnswers checks regularly whether containerd answers, until ctx is done.
func (c *Connection) watchAnswers(ctx context.Context) {
	for process.Sleep(ctx, answerInterval) == nil {
		call, cancel := context.WithTimeout(ctx, AnswerTimeout)
		_, err := c.Client.Version(call)
		cancel()
		if ctx.Err() != nil {
			return
		}
		switch was := c.silent.Swap(err != nil); {
		case err != nil && !was:
			c.log.Warn("containerd does not answer: dewd does not change instances until it answers", "address", c.address, "err", err)
		case err == nil && was:
			c.log.Info("containerd answers again", "address", c.address)
		}
	}
}
