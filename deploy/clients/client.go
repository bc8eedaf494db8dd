// Package arbiter reports errors to the sidecar: arbiter.ReportError(err), or arbiter.Handler around a handler.
//
// It sends to ARBITER_STATSD_SOCKET (unix datagrams), else to ARBITER_STATSD_LISTEN (UDP), else it posts to ARBITER_SOCKET
// or ARBITER_LOCAL_LISTEN (127.0.0.1:9180; off: nowhere). Reports wait for at most 30 s while no sidecar answers. Copy it
// into a directory of your module; it needs Go 1.21 and nothing else.
package arbiter

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	keepFor = 30 * time.Second // older errors would count as new ones
	pause   = 100 * time.Millisecond
	most    = 1_000_000 // in one report
	kinds   = 40        // with their messages they fit into one request
)

// series is what is counted: errors of a kind, requests or failed.
type series struct{ name, kind string }

// sum is how often, and the newest message, which is sent over HTTP only.
type sum struct {
	count   int
	message string
}

var (
	lock    sync.Mutex
	conn    net.Conn
	kept    = map[series]sum{} // what waits for the sidecar
	since   time.Time
	sending bool     // a goroutine posts what is kept, and takes what comes meanwhile
	said    sync.Map // what the log has
	notWord = regexp.MustCompile(`[^A-Za-z0-9_.:/-]`)
)

// Report reports count errors of a kind. It never waits for the sidecar, and never fails.
func Report(count int, kind string) {
	add(named(kind), sum{count, ""})
}

// ReportError reports an error of the kind of KindOf. It never waits for the sidecar, and never fails.
func ReportError(err error) {
	add(named(KindOf(err)), sum{1, strings.TrimPrefix(fmt.Sprintf("%T: %v", err, err), "*")})
}

func named(kind string) series {
	if kind == "" {
		kind = "unknown"
	}
	return series{"errors", fmt.Sprintf("%.64s", notWord.ReplaceAllString(kind, "_"))}
}

var drivers = []struct{ kind, packages, port string }{
	{"redis", "redis|valkey|rueidis|redigo", "6379"},
	{"mysql", "go-sql-driver/mysql|go-mysql", "3306"},
	{"postgres", "lib/pq|jackc/pg", "5432"},
	{"mongodb", "mongo-driver|mongodb", "27017"},
	{"rabbitmq", "amqp|rabbitmq", "5672"},
	{"kafka", "kafka|sarama", "9092"},
	{"memcached", "memcache", "11211"},
	{"elasticsearch", "elastic|opensearch", "9200"},
}

// KindOf returns the driver whose package has the type of the error or of one that it wraps, or at whose usual port
// nobody answered; else the type of the error.
func KindOf(err error) string {
	for cause := err; cause != nil; cause = errors.Unwrap(cause) {
		place, address := reflect.TypeOf(cause), ""
		if place.Kind() == reflect.Pointer {
			place = place.Elem()
		}
		if failed, is := cause.(*net.OpError); is && failed.Addr != nil {
			_, address, _ = net.SplitHostPort(failed.Addr.String())
		}
		for _, driver := range drivers {
			for _, name := range strings.Split(driver.packages, "|") {
				if address == driver.port || strings.Contains(place.PkgPath(), name) {
					return driver.kind
				}
			}
		}
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", err), "*")
}

// Handler reports the requests of a handler: panics and answers of 500 and above are errors. Panics go on.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := &watched{ResponseWriter: w}
		defer func() {
			cause := recover()
			switch {
			case cause == http.ErrAbortHandler:
			case cause != nil:
				if err, is := cause.(error); is && !isRuntime(err) {
					ReportError(err)
				} else {
					add(named("panic"), sum{1, fmt.Sprintf("panic: %v", cause)})
				}
				add(series{name: "failed"}, sum{count: 1})
			case seen.status >= 500:
				Report(1, fmt.Sprintf("http_%d", seen.status))
				add(series{name: "failed"}, sum{count: 1})
			default:
				add(series{name: "requests"}, sum{count: 1})
			}
			if cause != nil {
				panic(cause)
			}
		}()
		next.ServeHTTP(seen, r)
	})
}

// Flush waits until the reports have left, at most for this time. For the end of a program.
func Flush(atMost time.Duration) {
	for end := time.Now().Add(atMost); time.Now().Before(end); time.Sleep(time.Millisecond) {
		lock.Lock()
		done := len(kept) == 0 && !sending
		lock.Unlock()
		if done {
			return
		}
	}
}

func isRuntime(err error) bool {
	_, is := err.(runtime.Error)
	return is
}

type watched struct {
	http.ResponseWriter
	status int
}

func (w *watched) WriteHeader(status int) {
	if w.status < 200 { // after an informational one comes another
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *watched) Write(data []byte) (int, error) {
	if w.status < 200 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(data)
}

func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *watched) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

func (w *watched) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

func add(what series, more sum) {
	if !taken(what, more) { // said without the lock: what writes the log may report, too
		_, address := statsd()
		say("no sidecar answers at " + address + ": the reports are dropped")
	}
}

func taken(what series, more sum) bool {
	lock.Lock()
	defer lock.Unlock()
	if len(kept) == 0 {
		since = time.Now()
	}
	if _, has := kept[what]; what.kind != "" && !has && len(kept) >= kinds {
		what.kind = "other"
	}
	more.message = fmt.Sprintf("%.200s", more.message)
	keep(what, kept[what], more)
	if _, address := statsd(); address != "" {
		return datagrams()
	}
	if !sending {
		sending = true
		go post()
	}
	return true
}

func keep(what series, older, newer sum) {
	if newer.message == "" {
		newer.message = older.message
	}
	kept[what] = sum{min(most, older.count+max(0, newer.count)), newer.message}
}

// say logs each text once.
func say(text string) {
	if _, has := said.LoadOrStore(text, true); !has {
		log.Print("health-arbiter: " + text)
	}
}

// -- datagrams, sent by the caller, with the lock

func datagrams() bool {
	for range [2]int{} { // a new sidecar listens on a new socket
		if conn == nil && !dial() {
			break
		}
		if err := flush(); err == nil || errors.Is(err, syscall.EAGAIN) {
			return true
		}
		_ = conn.Close()
		conn = nil
	}
	clear(kept) // old errors must not count when the sidecar is back
	return false
}

func flush() error {
	for what, total := range kept {
		line := fmt.Sprintf("%s:%d|c", what.name, total.count)
		if what.kind != "" {
			line += "|#level:server_error,kind:" + what.kind
		}
		if err := send(line); err != nil {
			return err
		}
		delete(kept, what)
	}
	return nil
}

// send tries once, without a deadline: on a busy machine a short one is over before the first attempt.
func send(line string) error {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Write(func(fd uintptr) bool {
		if _, sent = syscall.Write(int(fd), []byte(line)); sent == nil {
			// Over UDP to this machine the kernel knows at once that nobody listens.
			if code, _ := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR); code != 0 {
				sent = syscall.Errno(code)
			}
		}
		return true
	})
	return errors.Join(err, sent)
}

// statsd returns the network and the address for datagrams; without one the reports are posted.
func statsd() (network, address string) {
	if path := os.Getenv("ARBITER_STATSD_SOCKET"); path != "" {
		return "unixgram", path
	}
	if listen := os.Getenv("ARBITER_STATSD_LISTEN"); listen != "off" {
		address = listen
	}
	return "udp", address
}

func dial() bool {
	network, address := statsd()
	opened, err := net.DialTimeout(network, address, time.Second) // only the look-up of a name ever waits
	if err == nil {
		conn = opened
	}
	return err == nil
}

// -- HTTP, sent by a goroutine of its own, which ends when nothing is left

func post() {
	for wait := pause; ; {
		time.Sleep(wait)
		lock.Lock()
		if time.Since(since) > keepFor {
			clear(kept)
		}
		if len(kept) == 0 || len(places()) == 0 {
			clear(kept)
			sending = false
			lock.Unlock()
			return
		}
		batch, began := kept, since
		kept = map[series]sum{}
		lock.Unlock()
		if wait = pause; !sent(batch) {
			wait = time.Second
			lock.Lock()
			for what, older := range batch {
				keep(what, older, kept[what])
			}
			since = began
			lock.Unlock()
		}
	}
}

// sent posts the batch, and removes from it what need not be sent again.
func sent(batch map[series]sum) bool {
	var failures []map[string]any
	results := map[string]int{}
	for what, total := range batch {
		if what.kind == "" {
			results[map[string]string{"requests": "ok", "failed": "failed"}[what.name]] = total.count
			continue
		}
		failure := map[string]any{"count": total.count, "kind": what.kind}
		if total.message != "" {
			failure["message"] = total.message
		}
		failures = append(failures, failure)
	}
	if len(failures) > 0 && !posted("/errors", failures) {
		return false
	}
	for what := range batch {
		if what.kind != "" {
			delete(batch, what)
		}
	}
	return len(results) == 0 || posted("/results", results)
}

func posted(path string, content any) bool {
	body, _ := json.Marshal(content)
	for _, place := range places() {
		network, address, _ := strings.Cut(place, " ")
		dialed := false
		dialer := func(ctx context.Context, _, _ string) (net.Conn, error) {
			opened, err := (&net.Dialer{}).DialContext(ctx, network, address)
			dialed = err == nil
			return opened, err
		}
		client := http.Client{
			Timeout:   time.Second,
			Transport: &http.Transport{DialContext: dialer, DisableKeepAlives: true},
		}
		answer, err := client.Post("http://localhost"+path, "application/json", bytes.NewReader(body))
		if err == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<16))
			_ = answer.Body.Close()
			if code := answer.StatusCode; code/100 != 2 && code != http.StatusServiceUnavailable {
				say(fmt.Sprintf("%s answers %d: it is not the local listener of a sidecar", address, code))
			}
			return answer.StatusCode != http.StatusServiceUnavailable
		}
		if dialed {
			return true // sent twice, it could count twice
		}
	}
	say(fmt.Sprintf("no sidecar answers at %s: reports wait for at most %s", strings.Join(places(), " and "), keepFor))
	return false
}

// places returns the networks and addresses at which the sidecar may answer.
func places() (found []string) {
	if path := os.Getenv("ARBITER_SOCKET"); path != "" {
		found = append(found, "unix "+path)
	}
	listen := os.Getenv("ARBITER_LOCAL_LISTEN")
	if listen == "" {
		listen = "127.0.0.1:9180"
	}
	if listen != "off" {
		found = append(found, "tcp "+listen)
	}
	return found
}
