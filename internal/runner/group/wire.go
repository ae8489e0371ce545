package group

import (
	"bufio"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/berthml/berth"
)

// message is what launchers, and those they serve, say to each other.
type message struct {
	Op    string      `json:"op"`
	Node  int         `json:"node,omitempty"`
	Rank  int         `json:"rank,omitempty"`
	Text  string      `json:"text,omitempty"` // a command for a shell
	Self  string      `json:"self,omitempty"` // how Text names this program, where it was written
	Data  []byte      `json:"data,omitempty"`
	Code  int         `json:"code,omitempty"`
	Ended *ended      `json:"ended,omitempty"`
	Exit  *berth.Exit `json:"exit,omitempty"`
	Spec  *rankSpec   `json:"spec,omitempty"`
}

// What is said.
const (
	opRun   = "run"   // from an agent to the head, and on to an arm: run Text in a shell
	opOut   = "out"   // back: its output
	opErr   = "err"   // back: what it had to complain about
	opExit  = "exit"  // back: it ended
	opRank  = "rank"  // from a rank's parent to its launcher: what am I to do?
	opSpec  = "spec"  // the answer
	opBegun = "begun" // from an arm to the head: a rank has begun
	opEnded = "ended" // from a rank's parent by its launcher to the head: it ended, may I go?
	opGo    = "go"    // the answer, when it may
	opStop  = "stop"  // to ranks: end; from an arm to the head: I was asked to end
	opKill  = "kill"  // to ranks: end now
	opEnd   = "end"   // from the head to an arm: all is over, and how
)

// link is a connection that carries messages. Each has a number and, between nodes, a seal: what
// was not said by one who knows the group's secret, or was said before, is an error.
type link struct {
	conn net.Conn
	r    *bufio.Reader
	key  []byte // nil within a node
	mine string // "head" or "arm": whose messages are whose
	seen uint64

	mu   sync.Mutex
	sent uint64
}

// longest is the longest message.
const longest = 1 << 20

func newLink(c net.Conn) *link { return &link{conn: c, r: bufio.NewReader(c)} }

func (l *link) seal(from string, n uint64, body []byte) []byte {
	if l.key == nil {
		return nil
	}
	m := hmac.New(sha256.New, l.key)
	m.Write([]byte(from))
	m.Write(binary.BigEndian.AppendUint64(nil, n))
	m.Write(body)
	return m.Sum(nil)
}

func (l *link) send(m message) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(body) > longest {
		return fmt.Errorf("a message of %d bytes is too long", len(body))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	b := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	b = append(append(b, body...), l.seal(l.mine, l.sent, body)...)
	_, err = l.conn.Write(b)
	return err
}

func (l *link) receive() (m message, err error) {
	var head [4]byte
	if _, err := io.ReadFull(l.r, head[:]); err != nil {
		return m, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > longest {
		return m, fmt.Errorf("a message of %d bytes is too long", n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(l.r, body); err != nil {
		return m, err
	}
	l.seen++
	if l.key != nil {
		seal := make([]byte, sha256.Size)
		if _, err := io.ReadFull(l.r, seal); err != nil {
			return m, err
		}
		theirs := "head"
		if l.mine == theirs {
			theirs = "arm"
		}
		if !hmac.Equal(seal, l.seal(theirs, l.seen, body)) {
			return m, errors.New("a message that is not from a node of the job")
		}
	}
	return m, json.Unmarshal(body, &m)
}

func (l *link) close() { l.conn.Close() }

// handshakeLimit is how long a stranger may hold a connection.
const handshakeLimit = 10 * time.Second

// shake proves to the other side of a connection that this one knows the secret, without saying it,
// and has the other do so too. Both sides contribute a number that was never used before; node is
// the arm's.
func shake(c net.Conn, secret string, node int, mine string) (*link, error) {
	if err := c.SetDeadline(time.Now().Add(handshakeLimit)); err != nil {
		return nil, err
	}
	nonce := make([]byte, 32)
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	if _, err := c.Write(nonce); err != nil {
		return nil, err
	}
	other := make([]byte, 32)
	if _, err := io.ReadFull(c, other); err != nil {
		return nil, err
	}
	head, arm := nonce, other
	theirs := "arm"
	if mine == "arm" {
		head, arm, theirs = other, nonce, "head"
	}
	prove := func(who string) []byte {
		m := hmac.New(sha256.New, []byte(secret))
		m.Write([]byte("berth group 1 " + who + " " + strconv.Itoa(node)))
		m.Write(head)
		m.Write(arm)
		return m.Sum(nil)
	}
	if _, err := c.Write(prove(mine)); err != nil {
		return nil, err
	}
	proof := make([]byte, sha256.Size)
	if _, err := io.ReadFull(c, proof); err != nil {
		return nil, err
	}
	if !hmac.Equal(proof, prove(theirs)) {
		return nil, errors.New("it does not know the secret of the job")
	}
	l := newLink(c)
	l.key, l.mine = prove("key"), mine
	return l, c.SetDeadline(time.Time{})
}
