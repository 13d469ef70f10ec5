package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The key of the environment is sent unless --key is given, and help does not print it.
func TestKeyOfTheEnvironment(t *testing.T) {
	t.Setenv("FLYBALL_KEY", "fb_of_the_environment")
	var sent string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = r.Header.Get("Authorization")
		_, _ = w.Write([]byte(`{"rows":[]}`))
	}))
	defer srv.Close()
	f := func(want string, args ...string) (printed string) {
		t.Helper()
		sent = ""
		file, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
		if err != nil {
			t.Fatal(err)
		}
		stdout := os.Stdout
		os.Stdout = file
		code := run(args)
		os.Stdout = stdout
		b, err := os.ReadFile(file.Name())
		if err != nil || file.Close() != nil || code != 0 || sent != want {
			t.Errorf("%v: exit code %d, %v, sent %q, want %q", args, code, err, sent, want)
		}
		return string(b)
	}
	f("Bearer fb_of_the_environment", "runs", "--server", srv.URL)
	f("Bearer fb_given", "runs", "--server", srv.URL, "--key", "fb_given")
	for _, args := range [][]string{{"--help"}, {"runs", "--help"}} {
		if text := f("", args...); !strings.Contains(text, "FLYBALL_KEY") || strings.Contains(text, "fb_of_the_environment") {
			t.Errorf("%v prints %s", args, text)
		}
	}
}
