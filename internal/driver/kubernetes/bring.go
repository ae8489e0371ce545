package kubernetes

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// The program comes into a pod in one of two ways. An init container brings it into any image, and
// can wait for a tunnel; but the kubelet takes up to a second to see that it has ended. So a pod
// that will reach the server itself, from an image that can fetch the program, has one container
// that fetches it and becomes it.

// launchVariable has the launch of a pod with one container. Unlike a file of a volume it can be
// taken away before the command begins. Processes that somebody starts in the container (pods/exec)
// have it all the same: it stays in the specification.
const launchVariable = "BERTH_LAUNCH"

// readyKey is an empty key of the Secret, for what only has to know that it is there.
const readyKey = "ready"

// maxVariable is how long a launch in a variable may be: Linux takes 128 KiB.
const maxVariable = 96 << 10

// doubtTime is how long pods get init containers after one that could not fetch the program: its
// node may have been the only one that cannot.
const doubtTime = 10 * time.Minute

// notBrought begins the last line of a container that could not bring the program.
const notBrought = "berth-runner: "

// oneContainer decides whether the pod of a Job has one container. A gang's pods have to find out
// which of the launches is theirs.
func (d *Driver) oneContainer(s site, all []berth.Launch) bool {
	if len(all) > 1 || s.RunnerImage != "" {
		return false
	}
	if s.way() != wayDirect && (s.way() != wayAuto || !d.tunnels.direct(cmp.Or(all[0].Environment.Image, s.Image))) {
		return false
	}
	b, err := launchText(all[0])
	return err == nil && len(b) <= maxVariable
}

// direct says whether a pod of an image has reached the server by itself.
func (t *tunnels) direct(image string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reached[image]
}

// image is that of the task in a pod.
func (p *pod) image() string {
	for _, c := range p.Spec.Containers {
		if c.Name == mainName {
			return c.Image
		}
	}
	return ""
}

// tries says whether the pod of a Job shows by itself whether pods reach the server.
func (d *Driver) tries(j *job, p *pod) bool {
	if p == nil || d.c.Dial == nil || j.Metadata.Annotations[tunnelAnnotation] != "" {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.site.way() == wayAuto
}

// misjudged is how a task ended whose pod was wrongly thought to reach the server, nil when it was
// not: it never began, and another attempt can be helped.
func (d *Driver) misjudged(j *job, p *pod) *berth.Exit {
	if !d.tries(j, p) || !p.over() || stopOf(j) != nil {
		return nil
	}
	why := unbrought(p)
	if why == "" {
		return nil
	}
	return &berth.Exit{Code: -1, Cause: "evicted", Reason: notBroughtTo(p, why) + "; an init container will bring it into the next one"}
}

// learn notes whether pods reach the server by themselves, by one that has fetched the program or
// could not.
func (d *Driver) learn(j *job, p *pod) {
	if !d.tries(j, p) {
		return
	}
	failed := d.misjudged(j, p) != nil
	t := &d.tunnels
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range p.Status.InitContainerStatuses {
		if x := s.State.Terminated; s.Name == initName && x != nil && x.ExitCode == 0 && time.Since(t.doubted) >= doubtTime {
			t.reached[p.image()] = true
		}
	}
	if failed {
		t.doubted = time.Now()
		clear(t.reached)
	}
}

// unbrought is why the program could not be brought into a pod with one container, "" when it was.
func unbrought(p *pod) string {
	for _, s := range p.Status.ContainerStatuses {
		if t := s.State.Terminated; s.Name == mainName && t != nil && t.ExitCode == berth.ExitRunner {
			if why, not := strings.CutPrefix(lastLine(t), notBrought); not {
				return why
			}
		}
	}
	return ""
}

func notBroughtTo(p *pod, why string) string {
	return "the runner could not be brought into the pod on node " + p.Spec.NodeName + ": " + why
}

// bringScript brings the program into the pod; its arguments are the address, the hash, the way,
// the server's authority and the name of the file for the launch. What came over a connection that
// the authority vouches for is the server's. Elsewhere the hash is checked, which takes longer than
// fetching, and then whom the program comes from does not matter, because nothing secret is sent:
// so the certificate is not checked, which some programs cannot do. Where the server cannot be
// reached, the driver brings the program through the API server, see tunnel.go. The container of
// the task may have another user. All messages go to one stream, because the order of lines on two
// is lost on the way, and the last one is the reason.
const bringScript = `
exec 2>&1
sure=
fail() {
  echo "` + notBrought + `$*"
  exit 1
}
cd ` + workDir + ` || fail "` + workDir + ` cannot be entered"
umask 000
mkdir task || fail "nothing can be written to ` + workDir + `"
ca=$4
fetch() {
  [ -n "$ca" ] && command -v curl && echo "$ca" >ca && curl -fsS --cacert ca --connect-timeout 5 -o program "$1" && sure=yes && return
  ca=
  command -v curl && curl -fsSk --connect-timeout 5 -o program "$1" && return
  command -v wget && wget -q -T 20 --no-check-certificate -O program "$1" && return
  command -v python3 && python3 -c 'import ssl, sys, shutil, urllib.request as u
shutil.copyfileobj(u.urlopen(sys.argv[1], timeout=20, context=ssl._create_unverified_context()), open("program", "wb"))' "$1"
}
why="the program could not be fetched from $1: pods have to reach the server at this address (advertise in berth.yaml)"
waits="1 2 0"
if [ "$3" = ` + wayDirect + ` ]; then waits="1 2 3 5 8 13 0"; fi
if [ "$3" != ` + wayTunnel + ` ]; then
  command -v curl || command -v wget || command -v python3 || { waits=; why="the image has none of curl, wget and python3 to fetch the program with; set runnerImage of the compute to one that has"; }
  for wait in $waits; do
    fetch "$1" && : >` + hereFile + ` && break
    sleep $wait
  done
fi
if [ ! -e ` + hereFile + ` ]; then
  [ "$3" != ` + wayDirect + ` ] || fail "$why"
  echo ` + tunnelAddress + ` >task/tunnel
  : >` + wantedFile + `
  left=180
  while [ ! -e ` + hereFile + ` ]; do
    left=$((left-1))
    [ $left != 0 ] || fail "$why, or the server has to reach them through the API server of the cluster, which it did not"
    sleep 1
  done
fi
if [ -z "$sure" ]; then
  command -v sha256sum || fail "the image has no sha256sum to check the program with; set runnerImage of the compute to one that has"
  echo "$2  program" | sha256sum -c >/dev/null || fail "the program fetched from $1 is not that of the server"
fi
chmod 755 program || fail "the program cannot be made executable"
`

// initScript is that of an init container.
const initScript = bringScript + `
file=task/${5:-` + launchKey + `} && cp ` + launchDir + `/` + launchKey + `.${JOB_COMPLETION_INDEX:-0} $file && chmod 666 $file || fail "the launch cannot be written"
`

// oneScript is that of a container which becomes the task: then nothing is left of the launch but
// the file, which the runner removes. The first process of a container does not hear SIGTERM unless
// it says so, and the task must not begin once it was asked to end.
var oneScript = `
trap 'exit 143' TERM
(` + bringScript + `
umask 077
printf %s "$` + launchVariable + `" >task/` + launchKey + ` || fail "the launch cannot be written"
) || exit ` + strconv.Itoa(berth.ExitRunner) + `
unset ` + launchVariable + `
trap - TERM
exec ` + strings.Join(runTask, " ") + `
`
