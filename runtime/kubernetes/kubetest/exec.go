package kubetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/coder/websocket"
)

// The first byte of a message of pods/exec is its channel.
const (
	execStdout = 1
	execStderr = 2
	execStatus = 3
)

// Result is the result of a command in a container.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Exec runs a command in a container with pods/exec over WebSocket.
func (c *Client) Exec(ctx context.Context, namespace, pod, container string, command ...string) (Result, error) {
	query := url.Values{"container": {container}, "command": command, "stdout": {"true"}, "stderr": {"true"}}
	address := fmt.Sprintf("%s/api/v1/namespaces/%s/pods/%s/exec?%s", c.server, namespace, pod, query.Encode())
	conn, resp, err := websocket.Dial(ctx, strings.Replace(address, "https:", "wss:", 1), &websocket.DialOptions{
		HTTPClient:   &http.Client{Transport: http1(c.http.Transport)},
		HTTPHeader:   http.Header{"Authorization": {"Bearer " + c.token}},
		Subprotocols: []string{"v5.channel.k8s.io"},
	})
	if err != nil && resp != nil {
		return Result{}, &StatusError{Code: resp.StatusCode, Message: err.Error()}
	}
	if err != nil {
		return Result{}, err
	}
	defer conn.CloseNow() //nolint:errcheck // the result is complete, or there is another error
	conn.SetReadLimit(-1)
	return readExec(ctx, conn)
}

// http1 returns a transport without HTTP/2, over which WebSocket is not possible.
func http1(transport http.RoundTripper) http.RoundTripper {
	copied := transport.(*http.Transport).Clone()
	copied.ForceAttemptHTTP2 = false
	copied.TLSClientConfig.NextProtos = []string{"http/1.1"}
	copied.DisableKeepAlives = true
	return copied
}

// readExec reads messages until the one with the status of the command.
func readExec(ctx context.Context, conn *websocket.Conn) (Result, error) {
	var stdout, stderr bytes.Buffer
	for {
		_, message, err := conn.Read(ctx)
		if err != nil {
			return Result{}, fmt.Errorf("the stream ended before the status of the command: %w", err)
		}
		if len(message) == 0 {
			continue
		}
		switch message[0] {
		case execStdout:
			stdout.Write(message[1:])
		case execStderr:
			stderr.Write(message[1:])
		case execStatus:
			code, err := exitCode(message[1:])
			return Result{Stdout: stdout.String(), Stderr: stderr.String(), Code: code}, err
		}
	}
}

// exitCode reads the exit code of a command from its status.
func exitCode(text []byte) (int, error) {
	var status struct {
		Status, Reason, Message string
		Details                 struct {
			Causes []struct{ Reason, Message string }
		}
	}
	if err := json.Unmarshal(text, &status); err != nil {
		return 0, err
	}
	if status.Status == "Success" {
		return 0, nil
	}
	for _, cause := range status.Details.Causes {
		if cause.Reason == "ExitCode" {
			return strconv.Atoi(cause.Message)
		}
	}
	return 0, errors.New(status.Message)
}
