//go:build unix

package alone

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berthml/berth"
)

// The tasks of a job of several nodes that Slurm runs are the tasks of one step. The leader, which
// is the batch script's process on the first node, starts the step with srun and is connected with
// it: what it writes, all members read, and what members print, it reads. The first line that
// members read has the launches, in which the leader has filled in the addresses of the nodes; the
// later ones are words. Signals to the leader become such words, because a signal that Slurm sends
// to a step reaches all processes of it, the user's too.

// Files in the leader's directory.
const (
	gangFile   = "gang.json" // the launches, by rank
	memberFile = "member.sh" // the script of each member
)

// Words of the leader.
const (
	wordStop = "stop" // as SIGUSR1
	wordKill = "kill" // as SIGUSR2
	wordEnd  = "end"  // as SIGTERM
)

// memberMark begins the last line that a member prints: its rank, its exit code, and "done" where
// the server knows how its task ended, or Slurm ends it anyway, or "lost".
const memberMark = "berth-member"

// lead runs the leader of a gang and returns its exit code: that of the first task that failed.
func lead(ctx context.Context, dir string, log *slog.Logger) int {
	asked := make(chan os.Signal, 8)
	signal.Notify(asked, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTERM, syscall.SIGWINCH)
	line, member, n, err := gangOf(ctx, dir)
	if err != nil {
		log.Error("the gang cannot begin", "err", err)
		return berth.ExitNoStep
	}
	cmd := exec.CommandContext(ctx, "srun", "--ntasks="+strconv.Itoa(n), "--nodes="+strconv.Itoa(n), "--ntasks-per-node=1", "--kill-on-bad-exit=0", "--wait=0",
		"--mpi=none", "--cpu-bind=none", "--export=ALL", "--chdir=/", "--input=all", "sh", "-c", member)
	in, err := cmd.StdinPipe()
	var out, said io.Reader
	if err == nil {
		out, err = cmd.StdoutPipe()
	}
	if err == nil {
		said, err = cmd.StderrPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		log.Error("srun cannot be started", "err", err)
		return berth.ExitNoStep
	}
	ends := make(chan memberEnd)
	var reading sync.WaitGroup
	for _, r := range []io.Reader{out, said} {
		reading.Go(func() { readEnds(r, ends) })
	}
	go func() {
		reading.Wait()
		close(ends)
	}()
	words := make(chan string, 16)
	words <- line
	go func() {
		for w := range words {
			if _, err := io.WriteString(in, w+"\n"); err != nil {
				return // it has ended
			}
		}
	}()
	code := follow(asked, ends, words, cmd.Process)
	if err := cmd.Wait(); err != nil && code == 0 {
		code = max(1, cmd.ProcessState.ExitCode())
	}
	return code
}

// memberEnd is how a member ended.
type memberEnd struct {
	code int
	lost bool // nobody was told
}

// lostTime is what the members of a gang have to end once one of them is lost.
const lostTime = 15 * time.Second

// follow passes on what the leader is asked for until all members have ended, and returns the exit
// code of the first that failed. A member that is lost ends the others.
func follow(asked <-chan os.Signal, ends <-chan memberEnd, words chan<- string, step *os.Process) (code int) {
	defer close(words)
	say := func(word string) {
		select {
		case words <- word:
		default: // it has heard enough
		}
	}
	var enough <-chan time.Time
	for {
		select {
		case s := <-asked:
			say(map[os.Signal]string{syscall.SIGUSR1: wordStop, syscall.SIGWINCH: wordStop, syscall.SIGUSR2: wordKill, syscall.SIGTERM: wordEnd}[s])
		case e, ok := <-ends:
			if !ok {
				return code
			}
			if code == 0 {
				code = e.code
			}
			if e.lost && enough == nil {
				say(wordEnd)
				enough = time.After(lostTime)
			}
		case <-enough:
			_ = step.Signal(syscall.SIGKILL) // with srun the step ends
			enough = make(chan time.Time)
		}
	}
}

// stepError is what srun says of a task that ended without a word.
var stepError = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^srun: error: .*tasks? [0-9,-]+: (?:Exited with exit code (\d+))?`)
})

// readEnds reads how members end.
func readEnds(r io.Reader, ends chan<- memberEnd) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var rank, code int
		var word string
		if n, _ := fmt.Sscanf(lines.Text(), memberMark+" %d %d %s", &rank, &code, &word); n == 3 {
			ends <- memberEnd{code: code, lost: word == "lost"}
		} else if m := stepError().FindStringSubmatch(lines.Text()); m != nil {
			if code, _ = strconv.Atoi(m[1]); code == 0 {
				code = 137
			}
			ends <- memberEnd{code: code, lost: true}
		} else {
			fmt.Fprintln(os.Stderr, lines.Text())
		}
	}
	_, _ = io.Copy(io.Discard, r) // after a line that is too long
}

// gangOf is what the members are told, the script of each, and how many there are.
func gangOf(ctx context.Context, dir string) (line, member string, n int, err error) {
	b, err := os.ReadFile(filepath.Join(dir, gangFile))
	if err != nil {
		return "", "", 0, err
	}
	if err := os.Remove(filepath.Join(dir, gangFile)); err != nil { // it has secrets
		return "", "", 0, err
	}
	script, err := os.ReadFile(filepath.Join(dir, memberFile))
	if err != nil {
		return "", "", 0, err
	}
	var all []berth.Launch
	if err := json.Unmarshal(b, &all); err != nil {
		return "", "", 0, err
	}
	nodes, err := nodesOf(ctx, os.Getenv("SLURM_JOB_NODELIST"))
	if err != nil {
		return "", "", 0, err
	}
	if len(nodes) != len(all) {
		return "", "", 0, fmt.Errorf("Slurm gave %d nodes for %d tasks", len(nodes), len(all))
	}
	for i := range all {
		if g := all[i].Group; g == nil || len(g.Nodes) != len(all) {
			return "", "", 0, fmt.Errorf("task %d is not of the gang", i)
		}
		for k := range nodes {
			all[i].Group.Nodes[k].Name, all[i].Group.Nodes[k].Address = nodes[k].Name, nodes[k].Address
		}
	}
	line, err = pack(all)
	return line, string(script), len(all), err
}

// pack writes launches as one line. They have most in common.
func pack(all []berth.Launch) (string, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := json.NewEncoder(z).Encode(all); err != nil {
		return "", err
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(b.Bytes()), nil
}

func unpack(line string) (all []berth.Launch, err error) {
	z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(strings.TrimSpace(line))))
	if err == nil {
		err = json.NewDecoder(z).Decode(&all)
	}
	return all, err
}

// nodesOf are the nodes of a list of Slurm's, in its order, with the addresses that Slurm itself
// uses.
func nodesOf(ctx context.Context, list string) ([]berth.Peer, error) {
	out, err := exec.CommandContext(ctx, "scontrol", "show", "hostnames", list).Output()
	if err != nil {
		return nil, fmt.Errorf("scontrol show hostnames %s: %w", list, err)
	}
	about, err := exec.CommandContext(ctx, "scontrol", "--oneliner", "show", "node", list).Output()
	if err != nil {
		return nil, fmt.Errorf("scontrol show node %s: %w", list, err)
	}
	address := addresses(string(about))
	var nodes []berth.Peer
	for name := range strings.FieldsSeq(string(out)) {
		p := berth.Peer{Name: name, Address: name}
		if a := address[name]; a != "" {
			p.Address = a
		}
		nodes = append(nodes, p)
	}
	return nodes, nil
}

// addresses reads the addresses of nodes from what scontrol prints, a line for each.
func addresses(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		name := ""
		for word := range strings.FieldsSeq(line) {
			switch key, value, _ := strings.Cut(word, "="); key {
			case "NodeName":
				name = value
			case "NodeAddr":
				out[name] = value
			}
		}
	}
	return out
}

// member is a task of a gang as its leader sees it.
type member struct {
	rank  int
	words *bufio.Reader
}

// newMember reads the launch of this process's rank.
func newMember() (*member, berth.Launch, error) {
	m := &member{words: bufio.NewReaderSize(os.Stdin, 64<<10)}
	var err error
	if m.rank, err = strconv.Atoi(os.Getenv("SLURM_PROCID")); err != nil {
		return m, berth.Launch{}, fmt.Errorf("Slurm says its rank is %q", os.Getenv("SLURM_PROCID"))
	}
	line, err := m.words.ReadString('\n')
	if err != nil {
		return m, berth.Launch{}, fmt.Errorf("the leader of the gang: %w", err)
	}
	all, err := unpack(line)
	if err != nil {
		return m, berth.Launch{}, err
	}
	if m.rank < 0 || m.rank >= len(all) {
		return m, berth.Launch{}, fmt.Errorf("rank %d is not of the gang", m.rank)
	}
	return m, all[m.rank], nil
}

// listen takes the words of the leader for signals, and its end for the end of the job.
func (m *member) listen(s *signals) {
	for {
		word, err := m.words.ReadString('\n')
		sig, ok := map[string]os.Signal{wordStop: syscall.SIGUSR1, wordKill: syscall.SIGUSR2, wordEnd: syscall.SIGTERM}[strings.TrimSpace(word)]
		if err != nil {
			sig, ok = syscall.SIGTERM, true
		}
		if ok {
			select {
			case s.in <- sig:
			case <-s.stop:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// done prints how the member ended.
func (m *member) done(code int, known bool) {
	word := "lost"
	if known {
		word = "done"
	}
	fmt.Printf("%s %d %d %s\n", memberMark, m.rank, code, word) //nolint:forbidigo // the leader reads it
}

// mpi reports whether the processes of a task are mpirun's, which would ask Slurm for nodes by
// itself.
func mpi(l berth.Launch) bool { return l.Group != nil && strings.EqualFold(l.Group.Type, "mpi") }
