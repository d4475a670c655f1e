package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// TemplateCommands show templates of mails.
func TemplateCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{
		g.Command(command.Verb{
			Name: "template", Args: "ACTION [TEMPLATE_ID]", Category: "Notifications", Usage: "Preview a template of notification mails",
			About: "ACTION is preview: it renders a template and sends nothing. Without TEMPLATE_ID and --file, it renders the template of the kind, or the default template. " +
				"--data replaces the example values of the placeholders: its keys are their names, such as Subject, Text, HTML and Space.\n\n" +
				"Examples:\n   dew template preview default\n   dew template preview --file mail.json --kind shop/invoice --data invoice.json\n   dew template preview --file mail.html --open",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "file", Usage: "Render the template in this `file`: JSON as for POST /templates, or HTML"},
				&cli.StringFlag{Name: "kind", Usage: "Show the descriptions of this `client/kind`, and use its template"},
				&cli.StringFlag{Name: "data", Usage: "JSON `file` with values of placeholders (default: examples)"},
				command.BoolFlag("html", "Show only the HTML part"),
				command.BoolFlag("text", "Show only the text part"),
				command.BoolFlag("open", "Write the HTML part to a file and open it in a browser"),
				command.JSONFlag(),
			},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			return runTemplate(c.Context, templateOptions{
				Action: c.Args().Get(0), ID: c.Args().Get(1), File: c.String("file"), Kind: c.String("kind"), Data: c.String("data"),
				HTML: c.Bool("html"), Text: c.Bool("text"), Open: c.Bool("open"),
			}, api, out)
		}),
	}
}

type templateOptions struct {
	Action, ID       string
	File, Kind, Data string
	HTML, Text, Open bool
}

func runTemplate(ctx context.Context, o templateOptions, api *client.Client, out *console.Console) error {
	switch {
	case o.Action != "preview":
		return console.UsageError("template: %q is not an action: use preview", o.Action)
	case o.ID != "" && o.File != "":
		return console.UsageError("template: --file cannot be used with the ID of a template")
	case o.HTML && o.Text:
		return console.UsageError("template: --html cannot be used with --text")
	}
	p, err := o.request()
	if err != nil {
		return err
	}
	m, err := api.Daemon().PreviewTemplate(ctx, p)
	if err != nil {
		return err
	}
	if out.JSON {
		return out.Encode(m)
	}
	if o.Open {
		return openPreview(m, out)
	}
	return showPreview(m, o, out)
}

// request reads the files of a preview.
func (o templateOptions) request() (p v3.PreviewTemplate, err error) {
	p.Template = o.ID
	if o.Kind != "" {
		at := strings.LastIndexByte(o.Kind, '/')
		if at < 1 || at == len(o.Kind)-1 {
			return p, console.UsageError("template: --kind must have the form client/kind, such as shop/invoice, not %q", o.Kind)
		}
		p.Client, p.Kind = o.Kind[:at], o.Kind[at+1:]
	}
	if o.File != "" {
		raw, err := os.ReadFile(o.File)
		if err != nil {
			return p, fmt.Errorf("cannot read the template: %w", err)
		}
		p.Inline = &v3.InlineTemplate{HTML: string(raw)}
		if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) && !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{{")) {
			p.Inline = &v3.InlineTemplate{}
			if err := json.Unmarshal(raw, p.Inline); err != nil {
				return p, fmt.Errorf("cannot read the template in %s: %w", o.File, err)
			}
		}
	}
	if o.Data != "" {
		raw, err := os.ReadFile(o.Data)
		if err != nil {
			return p, fmt.Errorf("cannot read the data: %w", err)
		}
		if !json.Valid(raw) {
			return p, fmt.Errorf("cannot read the data: %s is not valid JSON", o.Data)
		}
		p.Data = raw
	}
	return p, nil
}

// showPreview prints the parts of a mail without their control characters.
func showPreview(m v3.PreviewedMail, o templateOptions, out *console.Console) error {
	lines := func(text string) {
		for line := range strings.Lines(text) {
			fmt.Fprintln(out.Out, console.Printable(strings.TrimRight(line, "\r\n")))
		}
	}
	switch {
	case o.HTML:
		lines(m.HTML)
	case o.Text:
		lines(m.Text)
	default:
		fmt.Fprintf(out.Out, "from:    %s\nto:      %s\nsubject: %s\n\n", console.Printable(m.From), console.Printable(m.To), console.Printable(m.Subject))
		lines(m.Text)
		if m.HTML != "" {
			fmt.Fprintln(out.Out, "\nHTML:")
			lines(m.HTML)
		}
	}
	return nil
}

// previewPolicy is in front of the HTML of a preview: a browser runs no scripts in it and
// loads nothing.
const previewPolicy = `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">` + "\n"

// openPreview writes the HTML to a file of the user and opens it.
func openPreview(m v3.PreviewedMail, out *console.Console) error {
	if m.HTML == "" {
		return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("the mail has no HTML part"), Advice: "To see its text: dew template preview --text"}
	}
	dir, err := os.MkdirTemp("", "dew-preview-")
	if err != nil {
		return fmt.Errorf("cannot write the preview: %w", err)
	}
	path := filepath.Join(dir, "mail.html")
	if err := os.WriteFile(path, []byte(previewPolicy+m.HTML), 0o600); err != nil { //nolint:forbidigo // a temporary file
		return fmt.Errorf("cannot write the preview: %w", err)
	}
	out.Say("The HTML part is in this file:")
	fmt.Fprintln(out.Out, path)
	if _, err := command.OpenBrowser("file://" + path); err != nil {
		out.Warn(fmt.Sprintf("cannot open a browser: %v", err))
	}
	return nil
}
