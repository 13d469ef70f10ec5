package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/flyball/flyball/cmd/app"
	"github.com/flyball/flyball/schema/engine"
)

// finding is one thing doctor looked at.
type finding struct {
	What string `json:"what"`
	OK   bool   `json:"ok"`
	Note string `json:"note"`
}

func doctorCommand(g *global) *cobra.Command {
	return &cobra.Command{Use: "doctor", Short: "Say what is missing on this machine", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		var all []finding
		say := func(what string, ok bool, format string, args ...any) {
			all = append(all, finding{what, ok, fmt.Sprintf(format, args...)})
		}
		say("platform", runtime.GOOS == "linux" || runtime.GOOS == "darwin", "%s/%s, %d cores", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
		cfg, err := app.LoadConfig(g.config, os.Environ())
		if err != nil {
			cfg = app.Default()
		} else {
			_, err = logger(cfg.Log)
			err = errors.Join(err, app.Check(cfg))
		}
		if err != nil {
			say("configuration", false, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
		} else {
			say("configuration", true, "valid, and so are the files it names")
		}
		if cfg.ClickHouse.DSN == "embedded://" || cfg.ClickHouse.DSN == "" {
			path, err := engine.FindLibrary("")
			if err != nil {
				say("engine library", false, "%v", err)
				if _, err := exec.LookPath("npm"); err != nil {
					say("npm", false, "not found; it fetches the engine library (Debian: apt-get install nodejs npm)")
				}
			} else {
				say("engine library", true, "%s", path)
			}
		} else {
			say("clickhouse", true, "a server by DSN; `flyball serve` will say if it cannot be reached")
		}
		dir := cfg.Data
		for {
			if _, err := os.Stat(dir); err == nil {
				break
			}
			dir = filepath.Dir(dir)
		}
		if err := unix.Access(dir, unix.W_OK); err != nil {
			say("data directory", false, "%s is not writable: %v", dir, err)
		} else {
			var fs unix.Statfs_t
			if err := unix.Statfs(dir, &fs); err == nil {
				free := fs.Bavail * uint64(fs.Bsize) >> 30
				say("data directory", free >= 2, "%s, %d GiB free (the log alone may take %d GiB)", cfg.Data, free, cfg.Limits.WALBytes>>30)
			}
		}
		for name, addr := range map[string]string{"listen.http": cfg.Listen.HTTP, "listen.otlp_grpc": cfg.Listen.OTLPGRPC, "listen.otlp_http": cfg.Listen.OTLPHTTP, "listen.clickhouse": cfg.Listen.ClickHouse} {
			if addr == "" {
				continue
			}
			l, err := net.Listen("tcp", addr)
			if err != nil {
				say(name, false, "%s is in use (a running flyball, or another service); FLYBALL_LISTEN__… moves it", addr)
				continue
			}
			_ = l.Close()
			say(name, true, "%s is free", addr)
		}
		bad := 0
		for _, f := range all {
			if !f.OK {
				bad++
			}
		}
		w := cmd.OutOrStdout()
		if g.json {
			if err := json.NewEncoder(w).Encode(all); err != nil {
				return err
			}
		} else {
			for _, f := range all {
				mark := "ok     "
				if !f.OK {
					mark = "MISSING"
				}
				fmt.Fprintf(w, "%s  %-16s %s\n", mark, f.What, f.Note)
			}
		}
		if bad > 0 {
			return fmt.Errorf("%d of %d checks failed", bad, len(all))
		}
		return nil
	}}
}
