//go:build integration

package smtp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/mail"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

// maxHandovers is the documented number of mails that wait for the answer of the mail
// server at the same time, and so can arrive twice after a kill.
const maxHandovers = 40

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

// unansweredMailer records the mails whose answer was not read, in a file with one id per
// line.
type unansweredMailer struct {
	delivery.Mailer
	file *os.File
}

func (u unansweredMailer) Send(ctx context.Context, m delivery.Mail) error {
	err := u.Mailer.Send(ctx, m)
	if errors.Is(err, delivery.ErrUnanswered) {
		if _, e := io.WriteString(u.file, m.ID+"\n"); e != nil {
			return errors.Join(err, e)
		}
	}
	return err
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
	unanswered, err := os.OpenFile(filepath.Join(dir, "unanswered"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer unanswered.Close()
	c, err := delivery.NewCourier(delivery.CourierConfig{
		Queue: q, Directory: struct{ delivery.Directory }{}, Composer: composeFault{}, Mailer: unansweredMailer{client, unanswered}, From: "dew@example.com",
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
	// accepted returns about how many mails the server has accepted.
	accepted(t *testing.T) int
	// disturb interrupts the server once.
	disturb(t *testing.T)
	// settle waits until the server has stored all mails that it accepted.
	settle(t *testing.T)
}

// All mails arrive, or fail with the reason, whatever happens to the server and to dewd.
// A mail arrives twice only in the documented cases: dewd was killed while it waited for
// the answer, or the connection broke before the answer. A kill affects at most 40 mails.
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
	repeats := map[string]int{} // how often each mail was sent again
	kills, interrupted := 0, 0
	total := faultMails()
	result := filepath.Join(dir, "result")
	finished := func() bool { _, err := os.Stat(result); return err == nil }
	for part := 1; part <= 6; part++ {
		testkit.EventuallyTrue(t, fmt.Sprintf("part %d of the mails is accepted", part), func() bool { return finished() || srv.accepted(t) >= total*8/10*part/7 })
		if part%2 == 0 {
			srv.disturb(t)
			continue
		}
		_ = child.Process.Kill()
		_ = child.Wait()
		kills++
		interrupted += addInterrupted(t, filepath.Join(dir, "journal"), repeats)
		child = startFaultChild(t, dir, srv.address())
	}
	testkit.EventuallyTrue(t, "all mails have ended", finished)
	if err := child.Wait(); err != nil {
		t.Errorf("the last process: %v", err)
	}
	var ms []delivery.Message
	if err := json.Unmarshal([]byte(readFile(t, result)), &ms); err != nil {
		t.Fatal(err)
	}
	broken := strings.Fields(readFile(t, filepath.Join(dir, "unanswered")))
	for _, id := range broken {
		repeats[id]++
	}
	srv.settle(t)
	t.Logf("%d kills interrupted %d mails; %d connections broke before the answer", kills, interrupted, len(broken))
	checkFaults(t, ms, srv.arrived(t), repeats)
}

// addInterrupted counts the mails that waited for an answer when dewd was killed. The
// journal has them.
func addInterrupted(t *testing.T, journal string, repeats map[string]int) int {
	t.Helper()
	waiting := map[string]bool{}
	for line := range strings.Lines(readFile(t, journal)) {
		state, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		waiting[id] = state == "data"
	}
	n := 0
	for id, waits := range waiting {
		if waits {
			n++
			repeats[id]++
		}
	}
	if n > maxHandovers {
		t.Errorf("%d mails waited for an answer when dewd was killed, the documented bound is %d", n, maxHandovers)
	}
	return n
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// checkFaults compares the results of dewd with the mails that the server has. No mail
// has more copies than repeats allows.
func checkFaults(t *testing.T, ms []delivery.Message, arrived, repeats map[string]int) {
	t.Helper()
	if len(ms) != faultMails() {
		t.Errorf("messages = %d, want %d", len(ms), faultMails())
	}
	doubles, delivered, bound := 0, 0, 0
	reasons := map[string]int{}
	for _, m := range ms {
		copies := arrived[m.ID]
		doubles += max(copies-1, 0)
		bound += repeats[m.ID]
		if copies > 1+repeats[m.ID] {
			t.Errorf("mail to %s arrived %d times, but was sent again only %d times for a documented reason", m.Email, copies, repeats[m.ID])
		}
		switch {
		case m.Status == delivery.Delivered && copies > 0 && strings.HasPrefix(m.Email, "user-"):
			delivered++
		case m.Status == delivery.Failed && copies == 0 && !strings.HasPrefix(m.Email, "user-") && strings.Contains(m.Problem, " 55"):
			reasons[reasonCode.FindString(m.Problem)]++
		default:
			t.Errorf("mail to %s: %s, %d copies, problem %q", m.Email, m.Status, copies, m.Problem)
		}
	}
	t.Logf("%d mails: %d delivered, failed by reason %v, %d arrived twice; bound %d", len(ms), delivered, reasons, doubles, bound)
}

// reasonCode finds the code of an answer of the mail server.
var reasonCode = regexp.MustCompile(`\b5\d\d\b`)

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

	mu    sync.Mutex
	srv   *smtp.Server
	mails map[string]int
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

func (f *faulty) accepted(t *testing.T) int { return len(f.arrived(t)) }

// settle: a mail is stored before it is accepted.
func (f *faulty) settle(*testing.T) {}

// disturb restarts the server on the same port.
func (f *faulty) disturb(t *testing.T) {
	t.Helper()
	_ = f.srv.Close()
	var l net.Listener
	testkit.Eventually(t, "the port is free again", func() (err error) {
		l, err = net.Listen("tcp", f.addr)
		return err
	})
	f.serve(l)
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
	read      map[string]string // id of the message in each file of the mailbox
}

func startPostfix(t *testing.T) *postfix {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "dew-postfix-")
	if err != nil {
		t.Fatal(err)
	}
	p := &postfix{dir: dir, addr: fmt.Sprintf("127.0.0.1:%d", testkit.FreePorts(t, 1)), read: map[string]string{}}
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
queue_run_delay = 1s
minimal_backoff_time = 1s
maximal_backoff_time = 1s
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

// disturb kills postfix and starts it again.
func (p *postfix) disturb(t *testing.T) {
	t.Helper()
	p.stop()
	_ = os.Remove(filepath.Join(p.dir, "queue/pid/master.pid"))
	p.start(t)
}

// settle waits until the queue is empty.
func (p *postfix) settle(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, "postfix has delivered its queue", func() error {
		if n := p.queued(t); n > 0 {
			return fmt.Errorf("%d mails are in the queue", n)
		}
		return nil
	})
}

// queued returns the number of mails in the queue.
func (p *postfix) queued(t *testing.T) (n int) {
	t.Helper()
	for _, name := range []string{"maildrop", "incoming", "active", "deferred", "hold"} {
		err := filepath.WalkDir(filepath.Join(p.dir, "queue", name), func(_ string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) { // delivered in the meantime
				return nil
			}
			if err == nil && !d.IsDir() {
				n++
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func (p *postfix) accepted(t *testing.T) int { return p.queued(t) + len(p.arrived(t)) }

// arrived reads the mails in the mailbox.
func (p *postfix) arrived(t *testing.T) map[string]int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(p.dir, "mail/all/new/*"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, file := range files {
		if p.read[file] == "" {
			p.read[file] = readMessageID(t, file)
		}
		out[p.read[file]]++
	}
	return out
}

// readMessageID returns the id of the message in a file.
func readMessageID(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := mail.ReadMessage(f)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return messageOf(m)
}
