package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// enter makes the root of an image read-only but for /tmp and the data, and runs a
// command in it as the image's user, who can gain no rights.
const enter = `set -e
R=$1; library=$2; shift 2
mount --make-rprivate /
mount --bind "$R" "$R"
mount --bind "$library" "$R/usr/local/bin/libchdb.so"
mount -t tmpfs -o size=256m tmpfs "$R/tmp"
mount -t proc proc "$R/proc"
for d in null zero random urandom; do mount --bind /dev/$d "$R/dev/$d"; done
mount --bind "$R/var/lib/flyball" "$R/var/lib/flyball"
mount -o remount,bind,ro "$R"
exec setpriv --no-new-privs chroot --userspec=65532:65532 "$R" "$@"
`

// TestImage runs what Dockerfile puts together, without Docker: the binary as it is built
// there, over nothing but the C library, time zones and certificates of the base image's
// Debian, with the engine beside it.
func TestImage(t *testing.T) {
	built(t, flyballEnv)
	if os.Getuid() != 0 {
		t.Skip("a chroot needs root")
	}
	unshare := tool(t, false, "apt-get install util-linux", "unshare")
	tool(t, false, "it is Debian's", "dpkg-deb")
	root, debs := t.TempDir(), t.TempDir()
	run := func(dir, name string, args ...string) {
		t.Helper()
		c := exec.Command(name, args...)
		c.Dir = dir
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	run(debs, "apt-get", "download", "-q", "libc6", "tzdata", "ca-certificates")
	packages, err := filepath.Glob(debs + "/*.deb")
	if err != nil || len(packages) != 3 {
		t.Fatalf("%d packages: %v", len(packages), err)
	}
	for _, p := range packages {
		run(debs, "dpkg-deb", "-x", p, root)
	}
	for _, dir := range []string{"usr/local/bin", "var/lib/flyball", "proc", "dev", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"dev/null", "dev/zero", "dev/random", "dev/urandom", "usr/local/bin/libchdb.so"} {
		write(t, filepath.Join(root, file), "")
	}
	if err := os.Chown(filepath.Join(root, "var/lib/flyball"), 65532, 65532); err != nil {
		t.Fatal(err)
	}
	run("../..", "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.Version=image", "-o", filepath.Join(root, "usr/local/bin/flyball"), "./cmd/flyball")

	f := &flyball{bin: built(t, flyballEnv), http: address(t), otlp: address(t)}
	library := filepath.Join(filepath.Dir(f.bin), "libchdb.so")
	script := write(t, filepath.Join(debs, "enter.sh"), enter)
	env := []string{"FLYBALL_DATA=/var/lib/flyball", "FLYBALL_LISTEN__HTTP=" + f.http, "FLYBALL_LISTEN__OTLP_GRPC=" + f.otlp, "FLYBALL_LISTEN__OTLP_HTTP=" + address(t), `FLYBALL_LISTEN__CLICKHOUSE=""`}
	start(t, env, unshare, "--mount", "sh", script, root, library, "/usr/local/bin/flyball", "serve")
	f.run(t, "ready", "--clickhouse", "--wait", "60s")
	f.run(t, "ingest", "--otlp", f.otlp, "../../ingest/dialect/testdata/captures/pydantic-ai--chat-tools.jsonl")
	f.costs(t, "from=2026-01-01", "0.0018215")
}
