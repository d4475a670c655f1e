package load

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dewrun/dew/fire/world"
)

// Churn changes one app and the services of another all the time: rolling deployments,
// pushes, service instances, bindings, ssh sessions, images. Its app is no target of faults.
type Churn struct {
	World  *world.World
	Ledger *Ledger
	Peers  *Peers
	App    App // whose instances come and go
	Target App // for bindings and sessions

	busy  sync.Mutex // held during an operation
	mu    sync.Mutex // guards names
	names map[string]bool
}

// operationTimeout limits one operation. Faults can make it fail.
const operationTimeout = time.Minute

// Start registers the service broker.
func (c *Churn) Start(ctx context.Context) error {
	c.names = map[string]bool{}
	if _, err := c.World.Dew(ctx, "create-service-broker", "fire-broker", c.Peers.Queue.Username, c.Peers.Queue.Password, "http://"+c.Peers.Broker.Address()); err != nil {
		return err
	}
	_, err := c.World.Dew(ctx, "enable-service-access", "fire-queue")
	return err
}

// Run repeats the operations until ctx is done.
func (c *Churn) Run(ctx context.Context) {
	operations := []func(ctx context.Context, n int) error{c.deploy, c.serve, c.session, c.push, c.image}
	for n := 0; ; n++ {
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return
		}
		c.busy.Lock()
		octx, cancel := context.WithTimeout(ctx, operationTimeout)
		name := "operations"
		if err := operations[n%len(operations)](octx, n); err != nil {
			name = "operations failed"
		}
		c.Ledger.Count(name, 1)
		cancel()
		c.busy.Unlock()
	}
}

// Pause waits for the end of the current operation, and starts no other one until the
// returned function is called.
func (c *Churn) Pause() (resume func()) {
	c.busy.Lock()
	return c.busy.Unlock
}

func (c *Churn) deploy(ctx context.Context, _ int) error {
	_, err := c.World.Dew(ctx, "restart", c.App.Name, "--strategy", "rolling")
	return err
}

func (c *Churn) push(ctx context.Context, n int) error {
	folder := filepath.Join(c.World.Dir, "churn")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	program, err := os.ReadFile(filepath.Join(c.World.Bin, "counter"))
	if err != nil {
		return err
	}
	file := filepath.Join(c.World.Dir, "churn.yml")
	// Other files, so that every push stages.
	err = writeFiles(map[string]string{
		filepath.Join(folder, "counter"): string(program), filepath.Join(folder, "number"): fmt.Sprint(n), file: manifest([]App{c.App}, folder),
	})
	if err == nil {
		_, err = c.World.Dew(ctx, "push", "-f", file)
	}
	return err
}

// serve creates a service instance, binds it to an app, and deletes both.
func (c *Churn) serve(ctx context.Context, n int) error {
	name := fmt.Sprintf("queue-%d", n)
	c.mu.Lock()
	c.names[name] = true
	c.mu.Unlock()
	if _, err := c.World.Dew(ctx, "create-service", "fire-queue", "small", name, "--wait"); err != nil {
		return err
	}
	if _, err := c.World.Dew(ctx, "bind-service", c.Target.Name, name, "--wait"); err != nil {
		return err
	}
	return c.remove(ctx, name)
}

func (c *Churn) remove(ctx context.Context, name string) error {
	list, err := c.World.Client.Services().List(ctx)
	if err != nil {
		return err
	}
	for _, s := range list {
		if s.Name != name {
			continue
		}
		if _, err := c.World.Dew(ctx, "unbind-service", c.Target.Name, name, "--wait"); err != nil {
			return err
		}
		if _, err := c.World.Dew(ctx, "delete-service", name, "-f", "--wait"); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.names, name)
	return nil
}

func (c *Churn) session(ctx context.Context, n int) error {
	want := fmt.Sprintf("session %d", n)
	out, err := c.World.Dew(ctx, "ssh", c.Target.Name, "-c", "echo "+want)
	if err == nil && !strings.Contains(out, want) {
		c.Ledger.Problem(fmt.Sprintf("dew ssh succeeded without its output: %q", out))
	}
	return err
}

// Finish deletes the stacks and service instances that are left. It returns an error if the
// broker has some that dewd does not know, or if a build does not end.
func (c *Churn) Finish(ctx context.Context, bound time.Duration) error {
	return world.Until(ctx, bound, func() error {
		builds, err := c.World.Client.Bits().StagingBuilds(ctx, "")
		if err != nil {
			return err
		}
		if len(builds) > 0 {
			return fmt.Errorf("%d builds do not end; the first is %s", len(builds), builds[0].GUID)
		}
		if err := c.removeImages(ctx); err != nil {
			return err
		}
		c.mu.Lock()
		var left []string
		for name := range c.names {
			left = append(left, name)
		}
		c.mu.Unlock()
		slices.Sort(left)
		for _, name := range left {
			if err := c.remove(ctx, name); err != nil {
				return err
			}
		}
		if at, bound := c.Peers.Queue.Instances(), c.Peers.Queue.Bindings(); len(at) > 0 || len(bound) > 0 {
			return fmt.Errorf("the broker has the instances %v and the bindings %v, and dewd has none", at, bound)
		}
		return nil
	})
}
