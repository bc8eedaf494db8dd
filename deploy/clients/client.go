// Package arbiter reports errors to the sidecar: arbiter.Report(1, "redis"), or arbiter.Recover around a handler.
//
// It sends to ARBITER_STATSD_SOCKET (unix datagrams), else to ARBITER_STATSD_LISTEN (UDP), else nowhere. Copy it into
// a directory of your module; it needs Go 1.21 and nothing else.
package arbiter

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"sync"
	"syscall"
	"time"
)

var (
	lock    sync.Mutex
	conn    net.Conn
	kept    = map[string]int{} // counts by kind, sent with a later call if the sidecar's queue is full
	notWord = regexp.MustCompile(`[^A-Za-z0-9_.:/-]`)
)

// Report reports count errors of a kind. It never waits for the sidecar, and never fails.
func Report(count int, kind string) {
	kind = notWord.ReplaceAllString(kind, "_")
	lock.Lock()
	defer lock.Unlock()
	if kept[kind] == 0 && len(kept) >= 100 {
		kind = "other"
	}
	kept[kind] += count
	for range [2]int{} { // a new sidecar listens on a new socket
		if conn == nil && !dial() {
			clear(kept) // old errors must not count when the sidecar is back
			return
		}
		if err := flush(); err == nil || errors.Is(err, syscall.EAGAIN) {
			return
		}
		_ = conn.Close()
		conn = nil
	}
}

// Recover reports panics of a handler and lets them go on.
func Recover(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if cause := recover(); cause != nil {
				if cause != http.ErrAbortHandler {
					Report(1, "panic")
				}
				panic(cause)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func flush() error {
	for kind, sum := range kept {
		if err := send(fmt.Sprintf("errors:%d|c|#level:server_error,kind:%.64s", sum, kind)); err != nil {
			return err
		}
		delete(kept, kind)
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
		_, sent = syscall.Write(int(fd), []byte(line))
		return true
	})
	return errors.Join(err, sent)
}

func dial() bool {
	network, address := "unixgram", os.Getenv("ARBITER_STATSD_SOCKET")
	if address == "" {
		network, address = "udp", os.Getenv("ARBITER_STATSD_LISTEN")
	}
	if address == "" {
		return false
	}
	opened, err := net.DialTimeout(network, address, time.Second) // only the look-up of a name ever waits
	if err == nil {
		conn = opened
	}
	return err == nil
}
