// Package first_test is what a newcomer does first, with the commands of the README: each story
// begins with nothing but the program. How long each takes is logged, and not judged: other work on
// the machine may slow it down.
package first_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth/e2e/world"
)

// newcomer is a person with a home directory, a folder and the program.
type newcomer struct {
	t        *testing.T
	bin, dir string
	env      []string
	began    time.Time
}

func arrive(t *testing.T, bin, home string, files map[string]string) *newcomer {
	t.Helper()
	n := &newcomer{t: t, bin: bin, dir: t.TempDir(), began: time.Now()}
	n.env = append(os.Environ(), "HOME="+t.TempDir(), "BERTH_HOME="+home, "BERTH_URL=", "BERTH_TOKEN=", "BERTH_CA=", "BERTH_SERVER=", "VIRTUAL_ENV=", "CONDA_PREFIX=",
		"XDG_CONFIG_HOME=", "NO_COLOR=1")
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// types runs a line in a shell, and returns what it prints.
func (n *newcomer) types(line string) string {
	n.t.Helper()
	cmd := exec.Command("bash", "-c", line)
	cmd.Dir, cmd.Env = n.dir, append(n.env, "PATH="+filepath.Dir(n.bin)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	n.t.Logf("%.1f s  $ %s\n%s", time.Since(n.began).Seconds(), line, out)
	if err != nil {
		n.t.Fatalf("%s: %v", line, err)
	}
	return string(out)
}

func (n *newcomer) sees(out string, texts ...string) {
	n.t.Helper()
	for _, text := range texts {
		if !strings.Contains(out, text) {
			n.t.Errorf("%q is not shown", text)
		}
	}
}

// program is the binary under the name that people type.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "berth")
	if err := os.Symlink(world.Binary(t), path); err != nil {
		t.Fatal(err)
	}
	return path
}

// home is a folder that is gone at the end, with its server.
func home(t *testing.T, bin string) string {
	t.Helper()
	dir := world.Home(t)
	t.Cleanup(func() {
		cmd := exec.Command(bin, "down", "--home", dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Logf("down: %v\n%s", err, out)
		}
		os.RemoveAll(dir)
	})
	return dir
}

// TestStatic: the program needs no loader and no libraries of the machine.
func TestStatic(t *testing.T) {
	f, err := elf.Open(world.Binary(t))
	if err != nil {
		t.Skip(err) // not Linux
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("it is linked dynamically")
		}
	}
}

// TestOwnEnvironment: a script in the virtual environment that is active runs in it.
func TestOwnEnvironment(t *testing.T) {
	bin := program(t)
	n := arrive(t, bin, home(t, bin), map[string]string{"train.py": "import mine\nprint('trained with', mine.version)\n"})
	n.types("python3 -m venv --without-pip .venv && echo 'version = 7' > $(echo .venv/lib/python3*/site-packages)/mine.py")
	out := n.types(". .venv/bin/activate && berth run -- python train.py")
	n.sees(out, "the active virtual environment", "trained with 7", "completed in")
}

// TestRequirements: a script with a list of packages runs on a cluster, where they are installed.
func TestRequirements(t *testing.T) {
	bin := program(t)
	n := arrive(t, bin, home(t, bin), map[string]string{"train.py": "import six\nprint('trained with', six.__version__)\n", "requirements.txt": "six==1.17.0\n"})
	out := n.types("berth run --environment requirements.txt -- python train.py")
	n.sees(out, "trained with 1.17.0")
	n.types("berth compute create -n cpu --type amlcompute --size Standard_DS1_v2 --max-instances 1")
	out = n.types("berth run --on cpu -- python train.py")
	n.sees(out, "environment: requirements.txt", "trained with 1.17.0")
}

// TestFileOnCluster: an Azure ML job file runs on a cluster.
func TestFileOnCluster(t *testing.T) {
	bin := program(t)
	n := arrive(t, bin, home(t, bin), map[string]string{
		"train.py": "print('trained')\n",
		"job.yml":  "$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json\ncommand: python3 train.py\ncode: .\nenvironment: {image: python:3.12}\nproperties: {berth.environment: host}\ncompute: azureml:cpu\n",
	})
	n.types("berth compute create -n cpu --type amlcompute --size Standard_DS1_v2 --max-instances 1")
	n.sees(n.types("berth job create -f job.yml --stream"), "trained")
}

// TestTeam: two people use one server, each with a token of their own; neither can end the other's
// job.
func TestTeam(t *testing.T) {
	bin := program(t)
	dir := home(t, bin)
	admin := arrive(t, bin, dir, nil)
	admin.types("berth up")
	address := strings.TrimSpace(admin.types("berth status -o json --query url | tr -d '\"'"))
	var people []*newcomer
	for _, name := range []string{"ann", "bob"} {
		admin.types("berth user add " + name + " > " + name + ".token")
		token, err := os.ReadFile(filepath.Join(admin.dir, name+".token"))
		if err != nil {
			t.Fatal(err)
		}
		ca, err := os.ReadFile(filepath.Join(dir, "tls", "ca.pem"))
		if err != nil {
			t.Fatal(err)
		}
		n := arrive(t, bin, "", map[string]string{"token": string(token), "ca.pem": string(ca)})
		n.sees(n.types("berth login "+address+" --ca ca.pem --name team < token"), "as "+name+", user")
		people = append(people, n)
	}
	ann, bob := people[0], people[1]
	ann.sees(ann.types("berth run --no-code --name hers -- echo from ann"), "from ann")
	ann.types("berth run --no-code --no-wait --name long -- sleep 600")
	bob.sees(bob.types("berth run --no-code -- echo from bob"), "from bob")
	bob.sees(bob.types("berth job cancel -n long 2>&1; echo code $?"), "code 1")
	ann.types("berth job cancel -n long")
}

// browser opens an address as a browser does: it follows the page that signs it in, with its
// cookie.
const browser = `import http.cookiejar, re, socket, sys, urllib.parse, urllib.request
real = socket.getaddrinfo
socket.getaddrinfo = lambda host, *a, **k: real("127.0.0.1" if host.endswith(".localhost") else host, *a, **k)
jar = http.cookiejar.CookieJar()
page = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar)).open(sys.argv[1]).read().decode()
to = urllib.parse.urljoin(sys.argv[1], re.search(r'url=([^"]+)"', page).group(1)) + sys.argv[2]
cookie = "; ".join(c.name + "=" + c.value for c in jar)
print(urllib.request.urlopen(urllib.request.Request(to, headers={"Cookie": cookie})).read().decode())
`

// TestServices: TensorBoard shows what a job writes, and JupyterLab runs in it, while it runs.
func TestServices(t *testing.T) {
	bin := program(t)
	n := arrive(t, bin, home(t, bin), map[string]string{"browser.py": browser})
	example, err := filepath.Abs("../../examples/services")
	if err != nil {
		t.Fatal(err)
	}
	n.types("cp " + example + "/* . && berth job create -f job.yml -n served")
	n.types("for s in board lab; do until berth job show-services -n served -o json --query $s | grep -E 'Running|Failed' | grep -q Running; do sleep 0.5; done; done")
	n.sees(n.types("python3 browser.py $(berth open served board --print) data/plugin/scalars/tags"), `"loss"`)
	n.sees(n.types("python3 browser.py $(berth open served lab --print) api/contents"), `"train.py"`, `"runs"`)
	n.sees(n.types("berth ssh served -- 'echo in $AZUREML_RUN_ID; touch done' && berth job stream -n served"), "in served", "points")
	n.sees(n.types("berth job show-services -n served -o json"), "Stopped")
}
