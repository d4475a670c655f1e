package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

type curlOptions struct {
	Path    string
	Method  string
	Data    *string // @file reads a file
	Headers []string
	Include bool // print the response headers
	Fail    bool // fail if the response is an error
	Output  string
}

// CurlCommands send any request to the API.
func CurlCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{g.Command(command.Verb{
		Name: "curl", Args: "PATH", Category: "Advanced", Usage: "Send a request to the API and print the response",
		About: "dew adds your access token to the request.\n\nExamples:\n   dew curl /v3/apps\n   dew curl /v3/apps/GUID -X PATCH -d '{\"name\":\"store\"}'",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "X", Usage: "HTTP `method` (default: GET, or POST with -d)"},
			&cli.StringFlag{Name: "d", Usage: "Request `body`, or @FILE"},
			&cli.StringSliceFlag{Name: "H", Usage: "Request `header`, such as 'Accept: text/plain'; can be repeated"},
			command.BoolFlag("i", "Print the response headers as well"),
			&cli.BoolFlag{Name: "fail", Aliases: []string{"f"}, Usage: "Exit with status 1 if the response is an error", DisableDefaultText: true},
			&cli.StringFlag{Name: "output", Usage: "Write the response to this `file`"},
		},
	}, func(c *cli.Context, api *client.Client, out *console.Console) error {
		o := curlOptions{Path: c.Args().First(), Method: c.String("X"), Headers: c.StringSlice("H"), Include: c.Bool("i"), Fail: c.Bool("fail"), Output: c.String("output")}
		if c.IsSet("d") {
			d := c.String("d")
			o.Data = &d
		}
		return runCurl(c.Context, o, api, out)
	})}
}

func runCurl(ctx context.Context, o curlOptions, api *client.Client, out *console.Console) error {
	r := client.Request{Method: o.Method, Path: o.Path, Header: http.Header{"Content-Type": {"application/json"}}}
	for _, h := range o.Headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return console.UsageError("-H: %q is not a header such as \"Accept: text/plain\"", h)
		}
		r.Header.Set(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	if o.Data != nil {
		body, err := curlBody(*o.Data)
		if err != nil {
			return err
		}
		r.Body = strings.NewReader(body)
	}
	switch {
	case r.Method != "":
		r.Method = strings.ToUpper(r.Method)
	case o.Data != nil:
		r.Method = http.MethodPost
	default:
		r.Method = http.MethodGet
	}
	resp, err := api.Send(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := writeAnswer(resp, o, out); err != nil {
		return fmt.Errorf("cannot write the response: %w", err)
	}
	if o.Fail && resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("dewd responded with %s", resp.Status)
	}
	return nil
}

func writeAnswer(resp *http.Response, o curlOptions, out *console.Console) (err error) {
	to := out.Out
	if o.Output != "" {
		f, err := os.OpenFile(o.Output, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		to = f
	}
	if o.Include {
		fmt.Fprintf(to, "%s %s\r\n", resp.Proto, resp.Status)
		if err := resp.Header.Write(to); err != nil {
			return err
		}
		fmt.Fprint(to, "\r\n")
	}
	_, err = io.Copy(to, resp.Body)
	return err
}

func curlBody(d string) (string, error) {
	name, isFile := strings.CutPrefix(d, "@")
	if !isFile {
		return d, nil
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("cannot read the body: %w", err)
	}
	return string(b), nil
}
