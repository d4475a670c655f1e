package smoke

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
)

// errSeen stops the reading of a log when the line is found.
var errSeen = errors.New("seen")

// log reads the app's lines since the start of the push, old and new ones, until one
// matches.
func (c *checker) log(ctx context.Context, l *LogCheck, a subject) error {
	q := client.LogQuery{Newest: -1, Since: c.began, Follow: true, Source: l.Source}
	lines := 0
	err := c.client.Logs().Stream(ctx, a.guid, q, client.Lines{Line: func(line *v3.Line) error {
		lines++
		if l.Text.verify("", string(line.Text)) == nil {
			return errSeen
		}
		return nil
	}})
	if errors.Is(err, errSeen) {
		return nil
	}
	if err != nil && !isTimeout(err) {
		return err
	}
	from := "app " + a.name
	if l.Source != "" {
		from = l.Source + " of app " + a.name
	}
	return fmt.Errorf("no log line of %s matches %s; dew read %d lines", from, l.Text.expected(), lines)
}

// expected describes the expected text for a message.
func (t Text) expected() string {
	var all []string
	for _, s := range t.Contains {
		all = append(all, fmt.Sprintf("contains %q", s))
	}
	if t.Equals != nil {
		all = append(all, fmt.Sprintf("equals %q", *t.Equals))
	}
	for _, re := range t.Matches {
		all = append(all, "matches "+re.String())
	}
	if len(all) == 0 {
		return "(any line)"
	}
	return "(" + strings.Join(all, ", ") + ")"
}

// ssh runs a command inside an instance once and checks its result.
func (c *checker) ssh(ctx context.Context, s *SSHCheck, a subject) error {
	out, err := c.commands.SSH(ctx, Instance{App: a.name, Process: s.Process, Index: s.Instance}, s.Command)
	if err != nil {
		return fmt.Errorf("cannot run %q in instance %d of %s: %w", firstLine(s.Command), s.Instance, a.name, err)
	}
	var wrong []error
	if !slices.Contains(s.Status, out.Status) {
		wrong = append(wrong, fmt.Errorf("the command exited with status %d, want %s", out.Status, numbersText(s.Status)))
	}
	if err := errors.Join(append(wrong, s.Text.verify("the output", out.Text))...); err != nil {
		return &mismatch{err: err, about: "the output is " + quoted(out.Text)}
	}
	return nil
}

// mail waits for a mail that was sent since the test of the folder started.
func (c *checker) mail(ctx context.Context, m *MailCheck) error {
	in, err := c.client.Daemon().Inbox(ctx, client.MailFilter{To: m.To, Subject: m.Subject, After: c.mails})
	if err != nil {
		return err
	}
	var subjects []string
	for _, one := range in.Mails {
		full, err := c.client.Daemon().Mail(ctx, one.ID)
		if err != nil {
			return err
		}
		text := full.Text + "\n" + full.HTML
		if m.Text.Equals != nil {
			text = full.Text
		}
		if m.Text.verify("", text) == nil {
			return nil
		}
		subjects = append(subjects, full.Subject)
	}
	if len(subjects) > 0 {
		return fmt.Errorf("no mail to %s matches %s; the subjects of the received mails are %q", m.To, m.Text.expected(), subjects)
	}
	return fmt.Errorf("no matching mail to %s was received", m.To)
}

// newestMail returns the number of the newest mail in the inbox. It returns 0 if the
// daemon sends real mails or does not say.
func newestMail(ctx context.Context, daemon *client.Client) uint64 {
	in, err := daemon.Daemon().Inbox(ctx, client.MailFilter{Limit: 1})
	if err != nil || len(in.Mails) == 0 {
		return 0
	}
	return in.Mails[0].Seq
}
