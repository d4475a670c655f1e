package services

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// connectCommand is dew connect.
func connectCommand(g *command.Set) *cli.Command {
	return g.Command(command.Verb{
		Name: "connect", Args: "SERVICE_INSTANCE", Category: Category, Usage: "Open a session with a database in psql, mariadb or redis-cli",
		About: "The client program must be installed on this machine. dew creates a service key for it, and deletes the key when the program exits.\n\nExample:\n   echo 'select count(*) from users' | dew connect db",
	}, func(c *cli.Context, api *client.Client, out *console.Console) error {
		return runConnect(c.Context, c.Args().First(), api, out)
	})
}

// login is the part of the credentials that a client program needs, as the built-in
// services provide them.
type login struct {
	Host     string `json:"host"`
	Port     int    `json:"port"`
	Database string `json:"database"`
	Username string `json:"username"`
	Password string `json:"password"`
	URI      string `json:"uri"`
}

// client is the command line of the client program, and the password as an environment
// variable. The password is not an argument, because all users of the machine can see
// the arguments.
func (c login) client() (args []string, secret string, err error) {
	port := strconv.Itoa(c.Port)
	switch scheme, _, _ := strings.Cut(c.URI, ":"); {
	case strings.HasPrefix(scheme, "postgres"):
		return []string{"psql", "-h", c.Host, "-p", port, "-U", c.Username, "-d", c.Database}, "PGPASSWORD=" + c.Password, nil
	case strings.HasPrefix(scheme, "mysql") || strings.HasPrefix(scheme, "mariadb"):
		return []string{"mariadb", "-h", c.Host, "-P", port, "-u", c.Username, c.Database}, "MYSQL_PWD=" + c.Password, nil
	case strings.HasPrefix(scheme, "redis"):
		args := []string{"redis-cli", "-h", c.Host, "-p", port}
		if c.Username != "" {
			args = append(args, "--user", c.Username)
		}
		return args, "REDISCLI_AUTH=" + c.Password, nil
	}
	return nil, "", errors.New("no client program is known for this service: use the credentials of dew service-key")
}

func runConnect(ctx context.Context, name string, api *client.Client, out *console.Console) (err error) {
	i, err := command.FindService(ctx, api, name)
	if err != nil {
		return err
	}
	if i.Type == v3.ServiceUserProvided {
		return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("cannot connect to %s: it is user-provided, and only apps get its credentials", name), Advice: "Ask its creator for the credentials, or read them from a bound app: dew env APP"}
	}
	key := "dew-connect-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	n := v3.CreateCredentialBinding{Type: v3.BindingKey, Name: key}
	n.Relationships.ServiceInstance = v3.To(i.GUID)
	job, err := api.Services().Bind(ctx, n)
	if err != nil {
		return fmt.Errorf("cannot connect to %s: %w", name, err)
	}
	defer func() { // even if the user interrupts it
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		err = errors.Join(err, deleteKey(ctx, bindOptions{Service: name, Key: key}, api))
	}()
	wait := out.Wait("Creating credentials for service instance %s", name)
	err = api.Services().Wait(ctx, job)
	wait.End()
	if err != nil {
		return fmt.Errorf("cannot connect to %s: %w", name, err)
	}
	b, err := findKey(ctx, bindOptions{Service: name, Key: key}, api)
	if err != nil {
		return err
	}
	return runClient(ctx, b.GUID, api, out)
}

// deleteKey deletes a temporary service key.
func deleteKey(ctx context.Context, o bindOptions, api *client.Client) error {
	b, err := findKey(ctx, o, api)
	if none := (*noKey)(nil); errors.As(err, &none) {
		return nil
	}
	if err == nil {
		_, err = deleteBinding(ctx, b.GUID, true, api)
	}
	if err != nil {
		return fmt.Errorf("cannot delete service key %s of %s: %w", o.Key, o.Service, err)
	}
	return nil
}

// runClient runs the client program with the credentials of a service key.
func runClient(ctx context.Context, key string, api *client.Client, out *console.Console) error {
	d, err := api.Services().BindingDetails(ctx, key)
	if err != nil {
		return err
	}
	var c login
	if err := json.Unmarshal(d.Credentials, &c); err != nil {
		return fmt.Errorf("cannot read the credentials: %w", err)
	}
	args, secret, err := c.client()
	if err != nil {
		return err
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return &console.Failure{Status: console.StatusInfrastructure, Err: fmt.Errorf("cannot find the client program: %w", err), Advice: "Install it, or use the credentials of a service key: dew create-service-key"}
	}
	// The client program handles Ctrl-C itself. SIGTERM and SIGHUP stop it.
	ctx, stop := signal.NotifyContext(context.WithoutCancel(ctx), syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	cmd := exec.CommandContext(ctx, program, args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = clientPatience
	cmd.Env = append(os.Environ(), secret)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = out.In, out.Out, console.StatusLineOver(out.Err).Writer()
	err = cmd.Run()
	ended := (*exec.ExitError)(nil)
	switch {
	case ctx.Err() != nil:
		return &console.Failure{Status: 128 + int(syscall.SIGTERM)}
	case errors.As(err, &ended):
		return &console.Failure{Status: max(ended.ExitCode(), 1)} // the program has printed the reason
	}
	return err
}

// clientPatience is how long a client program can take to exit after SIGTERM, before
// dew kills it.
const clientPatience = 5 * time.Second
