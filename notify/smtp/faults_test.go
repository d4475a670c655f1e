//go:build integration

package smtp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/mail"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

// maxConnections is the number of mails that can be handed over at the same time. It is
// the bound of mails that arrive twice after one interruption.
const maxConnections = 40

// faultMails returns the number of mails of a test.
func faultMails() int {
	if os.Getenv("DEW_PROOF") != "" {
		return 10_000
	}
	return 300
}

// faultRecipient returns the nth recipient: some are refused, and some exist.
func faultRecipient(n int) string {
	switch n % 20 {
	case 7:
		return fmt.Sprintf("refused-%d@example.com", n)
	case 13:
		return fmt.Sprintf("spam-%d@example.com", n)
	}
	return fmt.Sprintf("user-%d@example.com", n)
}

// composeFault is the Composer of the tests.
type composeFault struct{}

func (composeFault) Compose(_ context.Context, m delivery.Message, n delivery.Notice) (delivery.Mail, error) {
	return delivery.Mail{To: m.Email, Subject: n.Subject, Text: n.Text}, nil
}

// TestFaultChild is not a test. It delivers mails in a process of its own, which other
// tests kill. When all have ended, it writes the messages to a file.
func TestFaultChild(t *testing.T) {
	dir := os.Getenv("DEW_TEST_FAULTS")
	if dir == "" {
		t.Skip("started by TestFaults")
	}
	db, err := store.Open(filepath.Join(dir, "dew.db"), store.Options{LockTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	q := delivery.NewQueue(db)
	q.FirstRetry = 50 * time.Millisecond
	ids := enqueueFaults(t, q, filepath.Join(dir, "ids"))
	client, err := New(Config{Address: os.Getenv("DEW_TEST_SMTP")})
	if err != nil {
		t.Fatal(err)
	}
	c, err := delivery.NewCourier(delivery.CourierConfig{
		Queue: q, Directory: struct{ delivery.Directory }{}, Composer: composeFault{}, Mailer: client, From: "dew@example.com",
		Journal: filepath.Join(dir, "journal"), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	for n := 1; n != 0; time.Sleep(20 * time.Millisecond) {
		if n, err = q.Waiting(); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := errors.Join(<-done, client.Close()); err != nil {
		t.Fatal(err)
	}
	var all []delivery.Message
	for _, id := range ids {
		m, err := q.Message(id)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	writeJSON(t, filepath.Join(dir, "result.new"), all)
	if err := os.Rename(filepath.Join(dir, "result.new"), filepath.Join(dir, "result")); err != nil {
		t.Fatal(err)
	}
}

func writeJSON(t *testing.T, path string, v any) {
	t.Helper()
	raw, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(path, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// enqueueFaults enqueues the mails, once: the ids are stored in a file.
func enqueueFaults(t *testing.T, q *delivery.Queue, path string) (ids []string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err == nil {
		if err := json.Unmarshal(raw, &ids); err != nil {
			t.Fatal(err)
		}
		return ids
	}
	var to []delivery.Person
	for n := range faultMails() {
		to = append(to, delivery.Person{Email: faultRecipient(n)})
	}
	ms, err := q.Enqueue(t.Context(), delivery.Notice{Client: "c", Subject: "Hello", Text: "text"}, to)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range ms {
		ids = append(ids, m.ID)
	}
	writeJSON(t, path+".new", ids)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return ids
}

// faultServer is a mail server that a test disturbs.
type faultServer interface {
	address() string
	// arrived returns how often each mail arrived, by the id of its message.
	arrived(t *testing.T) map[string]int
	// disturb interrupts the server once, and returns how many answers to accepted mails
	// may be lost because of it.
	disturb(t *testing.T) int
	// lost returns the number of answers that were withheld otherwise.
	lost() int
}

// All mails arrive, or fail with the reason, whatever happens to the server and to dewd.
// The number of mails that arrive twice is within the documented bound.
func TestFaults(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) faultServer{
		"go-smtp": func(t *testing.T) faultServer { return startFaulty(t) },
		"postfix": func(t *testing.T) faultServer { return startPostfix(t) },
	} {
		t.Run(name, func(t *testing.T) { deliverWithFaults(t, open(t)) })
	}
}

func deliverWithFaults(t *testing.T, srv faultServer) {
	dir := t.TempDir()
	child := startFaultChild(t, dir, srv.address())
	kills, lost := 0, 0
	total := faultMails()
	result := filepath.Join(dir, "result")
	finished := func() bool { _, err := os.Stat(result); return err == nil }
	for part := 1; part <= 6; part++ {
		testkit.EventuallyTrue(t, fmt.Sprintf("part %d of the mails has arrived", part), func() bool { return finished() || len(srv.arrived(t)) >= total*8/10*part/7 })
		if part%2 == 0 {
			lost += srv.disturb(t)
			continue
		}
		_ = child.Process.Kill()
		_ = child.Wait()
		kills++
		child = startFaultChild(t, dir, srv.address())
	}
	testkit.EventuallyTrue(t, "all mails have ended", finished)
	if err := child.Wait(); err != nil {
		t.Errorf("the last process: %v", err)
	}
	raw, err := os.ReadFile(result)
	if err != nil {
		t.Fatal(err)
	}
	var ms []delivery.Message
	if err := json.Unmarshal(raw, &ms); err != nil {
		t.Fatal(err)
	}
	checkFaults(t, ms, srv.arrived(t), lost+srv.lost()+kills*maxConnections)
}

// checkFaults compares the results of dewd with the mails that the server has.
func checkFaults(t *testing.T, ms []delivery.Message, arrived map[string]int, bound int) {
	t.Helper()
	if len(ms) != faultMails() {
		t.Errorf("messages = %d, want %d", len(ms), faultMails())
	}
	doubles, failed := 0, 0
	for _, m := range ms {
		copies := arrived[m.ID]
		doubles += max(copies-1, 0)
		switch {
		case m.Status == delivery.Delivered && copies > 0 && strings.HasPrefix(m.Email, "user-"):
		case m.Status == delivery.Failed && copies == 0 && !strings.HasPrefix(m.Email, "user-") && strings.Contains(m.Problem, " 55"):
			failed++
		default:
			t.Errorf("mail to %s: %s, %d copies, problem %q", m.Email, m.Status, copies, m.Problem)
		}
	}
	t.Logf("%d mails: %d delivered, %d refused, %d arrived twice; at most %d allowed", len(ms), len(arrived), failed, doubles, bound)
	if doubles > bound {
		t.Errorf("%d mails arrived twice, the bound is %d", doubles, bound)
	}
}

func startFaultChild(t *testing.T, dir, address string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^TestFaultChild$", "-test.timeout=30m")
	c.Env = append(os.Environ(), "DEW_TEST_FAULTS="+dir, "DEW_TEST_SMTP="+address)
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	return c
}

// faulty is a server that is slow, refuses mails for now or for good, and closes
// connections, at random.
type faulty struct {
	addr string

	mu       sync.Mutex
	srv      *smtp.Server
	mails    map[string]int
	withheld int
}

func startFaulty(t *testing.T) *faulty {
	t.Helper()
	l := testkit.Listen(t)
	f := &faulty{addr: l.Addr().String(), mails: map[string]int{}}
	f.serve(l)
	t.Cleanup(func() { _ = f.srv.Close() })
	return f
}

func (f *faulty) serve(l net.Listener) {
	f.srv = smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) { return &faultySession{f: f, c: c}, nil }))
	f.srv.Domain, f.srv.ErrorLog = "localhost", silentLogger{}
	go func() { _ = f.srv.Serve(l) }()
}

func (f *faulty) address() string { return f.addr }

func (f *faulty) arrived(*testing.T) map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]int{}
	for id, n := range f.mails {
		out[id] = n
	}
	return out
}

func (f *faulty) lost() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.withheld
}

// disturb restarts the server on the same port.
func (f *faulty) disturb(t *testing.T) int {
	t.Helper()
	_ = f.srv.Close()
	var l net.Listener
	testkit.Eventually(t, "the port is free again", func() (err error) {
		l, err = net.Listen("tcp", f.addr)
		return err
	})
	f.serve(l)
	return maxConnections
}

type faultySession struct {
	f  *faulty
	c  *smtp.Conn
	to string
}

func (*faultySession) Reset()        {}
func (*faultySession) Logout() error { return nil }

func (s *faultySession) Mail(string, *smtp.MailOptions) error {
	if rand.IntN(50) == 0 {
		_ = s.c.Conn().Close()
	}
	return nil
}

func (s *faultySession) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.to = to
	switch {
	case strings.HasPrefix(to, "refused-"):
		return errNobody
	case rand.IntN(30) == 0:
		return errBusy
	}
	return nil
}

func (s *faultySession) Data(r io.Reader) error {
	m, err := mail.ReadMessage(r)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, m.Body); err != nil {
		return err
	}
	chance := rand.IntN(100)
	if chance < 3 {
		time.Sleep(time.Duration(rand.IntN(500)) * time.Millisecond)
	}
	switch {
	case strings.HasPrefix(s.to, "spam-"):
		return &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 6, 0}, Message: "spam"}
	case chance < 5:
		return errBusy
	case chance < 7:
		_ = s.c.Conn().Close()
		return errBusy
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.mails[messageOf(m)]++
	if chance < 9 { // accepted, but the client never knows
		s.f.withheld++
		_ = s.c.Conn().Close()
	}
	return nil
}

func messageOf(m *mail.Message) string {
	id, _, _ := strings.Cut(strings.Trim(m.Header.Get("Message-ID"), "<>"), "@")
	return id
}

// postfix is Debian's postfix in a PID namespace, with a configuration of its own.
type postfix struct {
	dir, addr string
	cmd       *exec.Cmd
}

func startPostfix(t *testing.T) *postfix {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "dew-postfix-")
	if err != nil {
		t.Fatal(err)
	}
	p := &postfix{dir: dir, addr: fmt.Sprintf("127.0.0.1:%d", testkit.FreePorts(t, 1))}
	t.Cleanup(func() { p.stop(); _ = os.RemoveAll(dir) })
	p.configure(t)
	p.start(t)
	return p
}

func (p *postfix) configure(t *testing.T) {
	t.Helper()
	owner, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(p.addr)
	services := "127.0.0.1:" + port + " inet n - n - - smtpd\n"
	for _, s := range []string{
		"cleanup unix n - n - 0 cleanup", "qmgr unix n - n 300 1 qmgr", "rewrite unix - - n - - trivial-rewrite", "bounce unix - - n - 0 bounce",
		"defer unix - - n - 0 bounce", "trace unix - - n - 0 bounce", "proxymap unix - - n - - proxymap", "error unix - - n - - error",
		"retry unix - - n - - error", "virtual unix - n n - - virtual", "anvil unix - - n - 1 anvil", "postlog unix-dgram n - n - 1 postlogd",
	} {
		services += s + "\n"
	}
	for path, content := range map[string]string{
		"conf/master.cf": services,
		"conf/main.cf": fmt.Sprintf(`compatibility_level = 3.6
queue_directory = %[1]s/queue
data_directory = %[1]s/data
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
mail_owner = postfix
setgid_group = postdrop
maillog_file = /dev/stdout
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = mail.example.com
mydestination =
mynetworks = 127.0.0.0/8
alias_maps =
virtual_mailbox_domains = example.com
virtual_mailbox_base = %[1]s/mail
virtual_mailbox_maps = regexp:%[1]s/conf/boxes
virtual_minimum_uid = 1
virtual_uid_maps = static:%[2]s
virtual_gid_maps = static:%[3]s
smtpd_recipient_restrictions = check_recipient_access regexp:%[1]s/conf/access, permit_mynetworks, reject
smtpd_client_connection_count_limit = 0
`, p.dir, owner.Uid, owner.Gid),
		"conf/boxes":  "/^user-/ all/\n/^spam-/ all/\n",
		"conf/access": "/^spam-/ 554 5.7.1 spam\n",
	} {
		file := filepath.Join(p.dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("sh", "-ec", `
chmod 755 "$1"; mkdir -p "$1/queue" "$1/data" "$1/mail"
chown postfix "$1/data"; chown nobody "$1/mail"
`, "sh", p.dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func (p *postfix) start(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p.cmd = exec.Command("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "postfix", "-c", filepath.Join(p.dir, "conf"), "start-fg")
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "postfix answers", func() error {
		c, err := net.Dial("tcp", p.addr)
		if err != nil {
			said, _ := os.ReadFile(filepath.Join(p.dir, "log"))
			return fmt.Errorf("%w: %s", err, said[max(0, len(said)-500):])
		}
		return c.Close()
	})
}

func (p *postfix) stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func (p *postfix) address() string { return p.addr }

// lost: postfix itself withholds no answers.
func (p *postfix) lost() int { return 0 }

// disturb kills postfix and starts it again.
func (p *postfix) disturb(t *testing.T) int {
	t.Helper()
	p.stop()
	_ = os.Remove(filepath.Join(p.dir, "queue/pid/master.pid"))
	p.start(t)
	return maxConnections
}

// arrived reads the mails in the mailbox, and those that are still in the queue.
func (p *postfix) arrived(t *testing.T) map[string]int {
	t.Helper()
	out := map[string]int{}
	files, err := filepath.Glob(filepath.Join(p.dir, "mail/all/new/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		m, err := mail.ReadMessage(f)
		_ = f.Close()
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out[messageOf(m)]++
	}
	return out
}
