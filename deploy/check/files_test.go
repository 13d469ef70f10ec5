package check

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/goccy/go-yaml"
)

// checkEnv is set by deploy/check.sh, which installs every tool: one that is missing
// fails the tests that need it.
const checkEnv = "FLYBALL_CHECK"

// tool is the path of a program. Where it is missing the test is skipped, unless
// deploy/check.sh runs it, or CI does and installs the tool itself.
func tool(t *testing.T, inCI bool, pkg string, names ...string) string {
	t.Helper()
	for _, n := range names {
		if p, err := exec.LookPath(n); err == nil {
			return p
		}
	}
	why := strings.Join(names, " or ") + " is not installed: " + pkg
	if os.Getenv(checkEnv) != "" || inCI && os.Getenv("CI") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
	return ""
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t *testing.T, file, text string) string {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// accepts runs a tool, which has to be content.
func accepts(t *testing.T, env []string, name string, args ...string) {
	t.Helper()
	c := exec.Command(name, args...)
	c.Env = append(os.Environ(), env...)
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
}

// replace changes text that has to be there.
func replace(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("%q is not in the file:\n%s", pairs[i], text)
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

// secrets runs secrets.sh in a folder of the test.
func secrets(t *testing.T) (dir string, env map[string]string) {
	t.Helper()
	dir = t.TempDir()
	c := exec.Command("../secrets.sh")
	c.Env = append(os.Environ(), "SECRETS_DIR="+dir)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("secrets.sh: %v\n%s", err, out)
	}
	f, err := os.Open(filepath.Join(dir, ".env"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if env, err = dotenv.Parse(f); err != nil {
		t.Fatal(err)
	}
	return dir, env
}

// secret is what a file of the folder secrets holds.
func secret(t *testing.T, dir, name string) string {
	t.Helper()
	return strings.TrimSpace(read(t, filepath.Join(dir, "secrets", name)))
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func TestSecrets(t *testing.T) {
	dir, env := secrets(t)
	for _, name := range []string{"collector", "prometheus", "operator"} {
		if want := "{name: " + name + ", sha256: " + hash(secret(t, dir, name)) + ","; !strings.Contains(env["FLYBALL_KEYS"], want) {
			t.Errorf("FLYBALL_KEYS %s has no %s", env["FLYBALL_KEYS"], want)
		}
	}
	for _, user := range []string{"FLYBALL", "GRAFANA"} {
		if env["CLICKHOUSE_"+user+"_SHA256"] != hash(env["CLICKHOUSE_"+user+"_PASSWORD"]) {
			t.Errorf("the hash of ClickHouse's user %s is not that of its password", user)
		}
	}
	for name, want := range map[string]os.FileMode{".env": 0o600, "secrets": 0o700, "secrets/agents": 0o444, "secrets/grafana": 0o444} {
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %o", name, st.Mode(), err, want)
		}
	}
	before := read(t, filepath.Join(dir, ".env"))
	again := exec.Command("../secrets.sh")
	again.Env = append(os.Environ(), "SECRETS_DIR="+dir)
	if out, err := again.CombinedOutput(); err == nil || !strings.Contains(string(out), "there already") {
		t.Errorf("a second run: %v %s", err, out)
	}
	if read(t, filepath.Join(dir, ".env")) != before {
		t.Error("a second run changed .env")
	}
	for _, name := range []string{".env", "secrets/agents"} {
		if err := exec.Command("git", "check-ignore", "-q", "../"+name).Run(); err != nil {
			t.Errorf("git does not ignore deploy/%s: %v", name, err)
		}
	}
}

// project is compose.yaml as Docker reads it: by the reference implementation, with its
// schema, its checks and the variables of deploy/.env.
func project(t *testing.T) *types.Project {
	t.Helper()
	_, env := secrets(t)
	var list []string
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	o, err := cli.NewProjectOptions([]string{"../compose.yaml"}, cli.WithEnv(list), cli.WithResolvedPaths(true), cli.WithNormalization(true), cli.WithConsistency(true))
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.LoadProject(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// pinned is an image with a whole version: a tag that moves makes an upgrade of a restart.
var pinned = regexp.MustCompile(`:v?\d+\.\d+\.\d+(\.\d+)?(-[a-z0-9-]+)?$`)

// TestCompose keeps what deploy/docs/deploy.md promises of every service.
func TestCompose(t *testing.T) {
	p := project(t)
	if len(p.Services) < 7 {
		t.Fatalf("only %d services", len(p.Services))
	}
	for name, s := range p.Services {
		if s.Build == nil && !pinned.MatchString(s.Image) {
			t.Errorf("%s: image %s has no whole version", name, s.Image)
		}
		once := s.Restart == "no"
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") || s.Privileged {
			t.Errorf("%s: read_only %v, cap_drop %v, security_opt %v, privileged %v", name, s.ReadOnly, s.CapDrop, s.SecurityOpt, s.Privileged)
		}
		uid, _, _ := strings.Cut(s.User, ":")
		if (uid == "" || uid == "0") && !once {
			t.Errorf("%s: runs as user %q", name, s.User)
		}
		if once && s.NetworkMode != "none" {
			t.Errorf("%s: runs once and has a network", name)
		}
		if !once && s.MemLimit == 0 {
			t.Errorf("%s: has no mem_limit", name)
		}
		if !once && name != "collector" && (s.HealthCheck == nil || len(s.HealthCheck.Test) == 0) {
			t.Errorf("%s: has no health check", name)
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s: publishes %s on %q", name, port.Published, port.HostIP)
			}
		}
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			if _, err := os.Stat(v.Source); err != nil {
				t.Errorf("%s: mounts what is not there: %v", name, err)
			}
			if !v.ReadOnly {
				t.Errorf("%s: may write %s", name, v.Source)
			}
		}
		for on, d := range s.DependsOn {
			if d.Condition == types.ServiceConditionHealthy && (p.Services[on].HealthCheck == nil || p.Services[on].HealthCheck.Disable) {
				t.Errorf("%s: waits for the health of %s, which has no check", name, on)
			}
		}
	}
	for name, n := range p.Networks {
		if name != "outside" && !n.Internal {
			t.Errorf("network %s is not internal", name)
		}
	}
	made, _ := secrets(t)
	for name, s := range p.Secrets {
		if base := filepath.Base(s.File); secret(t, made, base) == "" {
			t.Errorf("secret %s: secrets.sh makes no %s", name, base)
		}
	}
	// Only who has to reaches ClickHouse.
	for name, s := range p.Services {
		if _, in := s.Networks["store"]; in != slices.Contains([]string{"clickhouse", "flyball", "grafana"}, name) {
			t.Errorf("%s is in the network of ClickHouse: %v", name, in)
		}
	}
	// Without secrets nothing starts half open.
	o, err := cli.NewProjectOptions([]string{"../compose.yaml"}, cli.WithEnv([]string{"FLYBALL_KEYS="}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.LoadProject(context.Background()); err == nil || !strings.Contains(err.Error(), "secrets.sh") {
		t.Errorf("without secrets: %v, want an error that names secrets.sh", err)
	}
}

func TestDockerfile(t *testing.T) {
	text := read(t, "../Dockerfile")
	images := regexp.MustCompile(`(?m)^ARG \w+_IMAGE=(.*)$`).FindAllStringSubmatch(text, -1)
	if len(images) != 3 {
		t.Fatalf("%d base images, want 3", len(images))
	}
	for _, m := range images {
		if !pinned.MatchString(m[1]) && m[1] != "gcr.io/distroless/base-debian12:nonroot" { // distroless has no versions
			t.Errorf("base image %s has no whole version", m[1])
		}
	}
	s := project(t).Services["flyball"]
	if !strings.Contains(text, "\nUSER "+s.User+"\n") || !strings.Contains(text, "--chown="+s.User+" ") {
		t.Errorf("compose.yaml runs the image as %s, which is not the user of its data directory", s.User)
	}
	// What the image's go has to be able to build.
	want := regexp.MustCompile(`(?m)^go (1\.\d+)`).FindStringSubmatch(read(t, "../../go.mod"))[1]
	if !strings.Contains(images[0][1], "golang:"+want+".") {
		t.Errorf("the image builds with %s, go.mod wants %s", images[0][1], want)
	}
	accepts(t, nil, tool(t, false, "deploy/check.sh installs it", "hadolint"), "../Dockerfile")
}

func TestUnit(t *testing.T) {
	analyze := tool(t, false, "apt-get install systemd", "systemd-analyze")
	unit := filepath.Join(t.TempDir(), "flyball.service")
	write(t, unit, replace(t, read(t, "../systemd/flyball.service"), "/usr/local/lib/flyball/flyball", "/bin/true"))
	out, err := exec.Command(analyze, "verify", unit).CombinedOutput()
	if err != nil || strings.Contains(string(out), "flyball.service") { // it succeeds on a key that it does not know
		t.Errorf("verify: %v\n%s", err, out)
	}
	accepts(t, nil, analyze, "security", "--offline=true", "--threshold=20", unit)
}

// prometheusConfig is compose's with the rules beside it, changed by pairs.
func prometheusConfig(t *testing.T, dir string, pairs ...string) string {
	t.Helper()
	for _, rules := range []string{"recording.yml", "alerts.yml"} {
		write(t, filepath.Join(dir, rules), read(t, "../../dashboards/"+rules))
	}
	return write(t, filepath.Join(dir, "prometheus.yml"), replace(t, read(t, "../compose/prometheus.yml"), pairs...))
}

func TestPrometheus(t *testing.T) {
	promtool := tool(t, true, "apt-get install prometheus", "promtool")
	key := write(t, filepath.Join(t.TempDir(), "key"), "k")
	accepts(t, nil, promtool, "check", "config", prometheusConfig(t, t.TempDir(), "/run/secrets/flyball", key))
	accepts(t, nil, promtool, "check", "config", "../prometheus/prometheus.yml")
	p := project(t)
	// A target is a service, and Prometheus is in a network with it.
	for _, m := range regexp.MustCompile(`"([a-z]+):(\d+)"`).FindAllStringSubmatch(read(t, "../compose/prometheus.yml"), -1) {
		if _, shared := p.Services[m[1]].Networks["watch"]; !shared && m[1] != "localhost" {
			t.Errorf("Prometheus does not reach %s", m[0])
		}
	}
}

func TestAlertmanager(t *testing.T) {
	accepts(t, nil, tool(t, true, "apt-get install prometheus-alertmanager", "amtool"), "check-config", "../compose/alertmanager.yml")
}

// datasource is one of Grafana's.
type datasource struct {
	UID      string         `yaml:"uid"`
	Type     string         `yaml:"type"`
	Access   string         `yaml:"access"`
	Name     string         `yaml:"name"`
	URL      string         `yaml:"url"`
	JSONData map[string]any `yaml:"jsonData"`
	Secure   map[string]any `yaml:"secureJsonData"`
}

// TestGrafana wants both provisionings to have data sources of the kinds that the boards
// want, and the boards where the provider looks.
func TestGrafana(t *testing.T) {
	strict := func(file string, into any) {
		t.Helper()
		if err := yaml.NewDecoder(strings.NewReader(read(t, file)), yaml.Strict()).Decode(into); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	named := map[string]bool{}
	boards, err := filepath.Glob("../../dashboards/*.json")
	if err != nil || len(boards) < 6 {
		t.Fatalf("%d boards: %v", len(boards), err)
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			// A board asks for the kind of each of its data sources.
			if kind, ok := v["query"].(string); ok && v["type"] == "datasource" {
				named[kind] = true
			}
			for _, e := range v {
				walk(e)
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	for _, b := range boards {
		var v any
		if err := json.Unmarshal([]byte(read(t, b)), &v); err != nil {
			t.Fatal(err)
		}
		walk(v)
	}
	if len(named) != 2 {
		t.Fatalf("the boards want data sources of the kinds %v, want two", named)
	}
	for _, file := range []string{"../grafana/provisioning/datasources/flyball.yaml", "../compose/datasources.yaml"} {
		var f struct {
			APIVersion  int          `yaml:"apiVersion"`
			Datasources []datasource `yaml:"datasources"`
		}
		strict(file, &f)
		have := map[string]bool{}
		for _, d := range f.Datasources {
			have[d.Type] = true
			if d.Access != "proxy" || d.Name == "" || d.Type == "" {
				t.Errorf("%s: %+v", file, d)
			}
		}
		for kind := range named {
			if !have[kind] {
				t.Errorf("%s has no data source of the kind %s, which the boards want", file, kind)
			}
		}
	}
	var provider struct {
		APIVersion int `yaml:"apiVersion"`
		Providers  []struct {
			Name                  string `yaml:"name"`
			OrgID                 int    `yaml:"orgId"`
			Folder                string `yaml:"folder"`
			FolderUID             string `yaml:"folderUid"`
			Type                  string `yaml:"type"`
			DisableDeletion       bool   `yaml:"disableDeletion"`
			AllowUIUpdates        bool   `yaml:"allowUiUpdates"`
			UpdateIntervalSeconds int    `yaml:"updateIntervalSeconds"`
			Options               struct {
				Path  string `yaml:"path"`
				Files bool   `yaml:"foldersFromFilesStructure"`
			} `yaml:"options"`
		} `yaml:"providers"`
	}
	strict("../grafana/provisioning/dashboards/flyball.yaml", &provider)
	mounted := false
	for _, v := range project(t).Services["grafana"].Volumes {
		mounted = mounted || v.Target == provider.Providers[0].Options.Path && filepath.Base(v.Source) == "dashboards"
	}
	if !mounted {
		t.Errorf("compose.yaml does not mount the boards at %s", provider.Providers[0].Options.Path)
	}
}

// TestClickHouseConfig checks what can be checked without a server: that the files are
// XML, and that each variable they take is given.
func TestClickHouseConfig(t *testing.T) {
	env := project(t).Services["clickhouse"].Environment
	taken := 0
	for _, file := range []string{"../compose/clickhouse-users.xml", "../compose/clickhouse-config.xml"} {
		d := xml.NewDecoder(bytes.NewReader([]byte(read(t, file))))
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			e, _ := token.(xml.StartElement)
			for _, a := range e.Attr {
				if a.Name.Local == "from_env" {
					taken++
					if v := env[a.Value]; v == nil || len(*v) != 64 {
						t.Errorf("%s takes %s, which compose.yaml does not give", file, a.Value)
					}
				}
			}
		}
	}
	if taken != 2 {
		t.Errorf("%d passwords are taken from the environment, want 2", taken)
	}
}
