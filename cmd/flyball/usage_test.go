package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flyball/flyball/cmd/app"
)

// execute runs a command line and returns what it printed.
func execute(args ...string) (stdout, stderr string, err error) {
	var out, errs strings.Builder
	root := rootCommand()
	root.SetOut(&out)
	root.SetErr(&errs)
	root.SetArgs(args)
	err = root.Execute()
	return out.String(), errs.String(), err
}

// A command line that is wrong is an error that says where, never the answer to another
// question and never the help with success.
func TestWrongUsage(t *testing.T) {
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte("guards: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := func(want string, args ...string) {
		t.Helper()
		out, _, err := execute(append(args, "--server", "http://127.0.0.1:1")...)
		var usage usageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want a usage error with %q", args, err, want)
		}
		if out != "" {
			t.Errorf("%v printed %s", args, out)
		}
	}
	f(`unknown command "onn" for "flyball kill", did you mean`, "kill", "onn")
	f(`did you mean apply?`, "guard", "apple")
	f(`did you mean test?`, "page", "tst")
	f(`did you mean check?`, "prices", "chek")
	f(`unknown command "xls" for "flyball export"`, "export", "xls")
	f(`unknown command "nope" for "flyball"`, "help", "nope")
	f(`unknown command "onn" for "flyball kill"`, "help", "kill", "onn")
	f("--tenant is empty", "spend", "--tenant", "")
	f("--tenant is empty", "spend", "--tenant", "a", "--tenant", "")
	f("--tenant is empty", "reprice", "--since", "2026-11-01", "--tenant", "")
	f("--guard is empty", "guard", "live", "--guard=")
	f("--reason is empty", "kill", "on", "--reason", "")
	f("--where \"feature\": want dimension=value", "spend", "--where", "feature")
	f("--reason is missing", "kill", "on")
	f("--reason is missing", "kill", "off")
	f("--reason is missing", "guard", "apply", policy)
	f("--reason is missing", "guard", "release", "x")
	f("--tenant is missing", "guard", "budgets", "--user", "ann")
	f("--from and --to are missing", "export", "focus")
	f("--to is missing", "export", "focus", "--from", "2026-11-01")
	f("is a directory", "reconcile", "openai", t.TempDir())
	f("how many tokens", "prices", "explain", "openai", "gpt-5")
	f("--seconds 0", "demo", "--seconds", "0")
	for _, args := range [][]string{{"kill"}, {"help", "kill", "on"}, {"help"}} {
		if out, _, err := execute(args...); err != nil || !strings.Contains(out, "Usage:") {
			t.Errorf("%v: got %q and %v, want help", args, out, err)
		}
	}
	if out, _, err := execute("prices", "explain", "openai", "gpt-nope"); err != nil || !strings.Contains(out, "no price") {
		t.Errorf("a model without a price: %q and %v", out, err)
	}
	if out, _, err := execute("prices", "explain", "openai", "gpt-5", "--input", "8"); err != nil || !strings.Contains(out, "(priced)") {
		t.Errorf("a model with one: %q and %v", out, err)
	}
}

// answering runs command lines against a server that answers by path, and tells what it
// was asked.
func answering(t *testing.T, answers map[string]string) (run func(args ...string) (stdout, stderr string, err error), asked func() string) {
	var last string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		last = r.URL.Query().Encode()
		answer, ok := answers[strings.TrimPrefix(r.URL.Path, "/api/v1/")]
		if !ok {
			w.WriteHeader(http.StatusUnauthorized)
			answer = `{"status":401,"title":"Unauthorized","detail":"the key is not known"}`
		}
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(srv.Close)
	return func(args ...string) (string, string, error) { return execute(append(args, "--server", srv.URL)...) }, func() string { return last }
}

// What was given is asked for as it was given: the server says what is wrong with it.
func TestFiltersAreSent(t *testing.T) {
	run, asked := answering(t, map[string]string{"spend": `{"rows":[],"total":{}}`, "calls": `{"calls":[]}`, "retries": `{"rows":[{"user":"ann","layer":"sdk","retries":2,"wasted_usd":"1"}]}`})
	f := func(want string, args ...string) {
		t.Helper()
		if _, _, err := run(args...); err != nil {
			t.Errorf("%v: %v", args, err)
		}
		if got := asked(); got != want {
			t.Errorf("%v asked for %s, want %s", args, got, want)
		}
	}
	const by = "group_by=tenant%2Cmodel"
	f(by, "spend")
	f("group_by=", "spend", "--by", "")
	f(by+"&user=ann&user=bob", "spend", "--where", "user=ann", "--where", "user=bob")
	f(by+"&user=a%2Cb", "spend", "--where", "user=a,b")
	f(by+"&tenant=a%2Cb&tenant=c", "spend", "--tenant", "a,b", "--tenant", "c")
	f(by+"&limit=0", "spend", "--limit", "0")
	f(by+"&limit=-1", "spend", "--limit=-1")
	f("run_id=r&run_id=q", "calls", "--run", "q", "--where", "run_id=r")
	f("group_by=user%2Clayer", "retries", "--by", "user,layer")
	if out, _, err := run("retries", "--by", "user,layer"); err != nil || strings.Join(strings.Fields(out), " ") != "USER LAYER RETRIES WASTED USD ann sdk 2 1" {
		t.Errorf("got %q and %v", out, err)
	}
}

// A table that is not all says so, beside the rows.
func TestMoreRowsAreSaid(t *testing.T) {
	run, _ := answering(t, map[string]string{"runs": `{"rows":[{"run_id":"r"}],"truncated":true,"next":"c"}`, "calls": `{"calls":[],"next":"c"}`, "spend": `{"rows":[],"total":{},"truncated":false,"next":""}`,
		"enforcement": `{"events":[],"complete":true,"truncated":true}`})
	f := func(want string, args ...string) {
		t.Helper()
		out, said, err := run(args...)
		if err != nil || strings.TrimSpace(said) != want || strings.Contains(out, "more rows") {
			t.Errorf("%v: got %q, %q and %v", args, out, said, err)
		}
	}
	const more = "there are more rows: --limit N prints up to N of them"
	f(more+", --csv all", "runs")
	f(more+", --csv all", "calls")
	f(more, "guard", "events")
	f("", "spend")
	f("", "runs", "--json")
}

// What an answer does not have is not told as if it had.
func TestAnswersAsTheyAre(t *testing.T) {
	answers := map[string]string{
		"calls": `{"calls":[{"sign":-1,"version":2,"recorded_at":"2026-11-02T00:00:00Z","tenant":"t-1"}]}`,
		"close": `{"period":"2026-11","rows":[],"total":{"frozen_usd":"0"},"closes":[]}`,
		"kill":  `{"on":false,"stage":0}`,
	}
	run, asked := answering(t, answers)
	f := func(want string, args ...string) {
		t.Helper()
		out, _, err := run(args...)
		if err != nil {
			out = err.Error()
		}
		if got := strings.Join(strings.Fields(out), " "); !strings.Contains(got, want) {
			t.Errorf("%v: got %s, want %s", args, got, want)
		}
	}
	f("SIGN VERSION RECORDED STARTED", "calls", "--history")
	f("-1 2 2026-11-02T00:00:00Z - t-1", "calls", "--history")
	f("2026-11 is not closed", "close", "show", "2026-11")
	f("off who follows it", "kill", "status")
	answers["kill"] = `{"on":false,"stage":0,"mode":"warn","limiters":[]}`
	f("nobody would be stopped", "kill", "status")
	answers["calls"] = `{"calls":[]}`
	f("no call of trace 0123 is known", "calls", "explain", "0123")
	f("401 Unauthorized: the key is not known", "sql", "SELECT 1")
	answers["forget"] = `{"tenant":"t-1","pseudonym":"forgotten-1","running":[]}`
	answers["spend"] = `{"total":{"calls":0}}`
	f(`no call of "zzz" of tenant t-1 was known`, "forget", "--user", "zzz", "--reason", "r 1")
	if got := asked(); !strings.Contains(got, "user=forgotten-1") || !strings.Contains(got, "tenant=t-1") {
		t.Errorf("asked for %s", got)
	}
	answers["spend"] = `{"total":{"calls":12}}`
	f("the user is forgotten; his 12 calls are those of forgotten-1 of tenant t-1", "forget", "--user", "zzz", "--reason", "r 1")
}

// Ingest goes where the service listens, with TLS where it has a certificate.
func TestWhereIngestSends(t *testing.T) {
	cfg := app.Default()
	f := func(endpoint, cert, want, protocol string) {
		t.Helper()
		cfg.TLS.Cert = cert
		got, creds := dialOTLP(endpoint, cfg)
		if got != want || creds.Info().SecurityProtocol != protocol {
			t.Errorf("%q: got %s by %s", endpoint, got, creds.Info().SecurityProtocol)
		}
	}
	f("", "", "127.0.0.1:4317", "insecure")
	f("", "cert.pem", "127.0.0.1:4317", "tls")
	f("db:1", "cert.pem", "db:1", "tls")
	f("https://db:1/", "", "db:1", "tls")
	f("http://db:1", "cert.pem", "db:1", "insecure")
	if err := sendError(status.Error(codes.Unauthenticated, "no such key")); !strings.Contains(err.Error(), "no such key") || strings.Contains(err.Error(), "running") {
		t.Errorf("a wrong key: %v", err)
	}
}

// Doctor says what serve would refuse.
func TestDoctorReadsTheFiles(t *testing.T) {
	dir := t.TempDir()
	f := func(config, want string) {
		t.Helper()
		name := filepath.Join(dir, "flyball.yaml")
		if err := os.WriteFile(name, []byte("data: "+dir+"\n"+config), 0o600); err != nil {
			t.Fatal(err)
		}
		out, _, _ := execute("doctor", "--config", name)
		for line := range strings.Lines(out) {
			if strings.Contains(line, " configuration ") && strings.Contains(line, want) && strings.HasPrefix(line, "MISSING") == (want != "valid") {
				return
			}
		}
		t.Errorf("%s: doctor says %s", config, out)
	}
	f("", "valid")
	f("policy: "+dir+"/none.yaml\n", "none.yaml")
	f("prices: {files: ["+dir+"/none.json]}\n", "none.json")
	f("tls: {cert: "+dir+"/c.pem, key: "+dir+"/k.pem}\n", "c.pem")
	f("fx: {files: ["+dir+"/none.csv]}\n", "none.csv")
	f("log: {level: loud}\n", "log.level")
	if err := os.WriteFile(dir+"/policy.yaml", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f("policy: "+dir+"/policy.yaml\n", "policy.yaml: guards are missing")
}
