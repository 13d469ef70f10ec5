package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/flyball/flyball/cmd/app"
	"github.com/flyball/flyball/enforce/limiter"
)

//go:embed demo_policy.yaml
var demoPolicy []byte

func demoCommand(g *global) *cobra.Command {
	var seconds int
	c := &cobra.Command{Use: "demo", Short: "Run the service on agent traffic it plays itself, and print the answers",
		Long: "Starts the service on a fresh temporary store, plays agents of five tenants over OTLP, prints what Flyball\nmakes of it, and keeps serving until Ctrl-C. With DEMO_ONCE=1 it ends after the answers.",
		Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			if seconds < 1 {
				return usageError{fmt.Errorf("--seconds %d: want at least 1", seconds)}
			}
			return runDemo(cmd, g, time.Duration(seconds)*time.Second)
		}}
	c.Flags().IntVar(&seconds, "seconds", 30, "how long the agents work")
	return c
}

func runDemo(cmd *cobra.Command, g *global, length time.Duration) error {
	cfg, err := app.LoadConfig(g.config, os.Environ())
	if err != nil {
		return err
	}
	if os.Getenv("FLYBALL_DATA") == "" {
		dir, err := os.MkdirTemp("", "flyball-demo-")
		if err != nil {
			return fmt.Errorf("make demo store: %w", err)
		}
		defer os.RemoveAll(dir)
		cfg.Data = dir
	}
	if cfg.Policy == "" {
		f, err := os.CreateTemp("", "flyball-demo-*.yaml")
		if err != nil {
			return fmt.Errorf("write demo policy: %w", err)
		}
		defer os.Remove(f.Name())
		if _, err := f.Write(demoPolicy); err != nil {
			return fmt.Errorf("write demo policy: %w", err)
		}
		if err := f.Close(); err != nil {
			return fmt.Errorf("write demo policy: %w", err)
		}
		cfg.Policy = f.Name()
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	a, err := app.New(cfg, g.config, os.Environ(), log)
	if err != nil {
		return err
	}
	defer func() { _ = a.Stop() }()
	g.server = "http://" + a.Addr("http")
	fmt.Fprintf(os.Stderr, "flyball serves on http://%s, OTLP on %s (gRPC) and %s (HTTP)\n", a.Addr("http"), a.Addr("otlp_grpc"), a.Addr("otlp_http"))
	if err := waitReady(ctx, g, 60*time.Second, func(r readiness) bool { return r.ClickHouse.Ready }); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "agents of five tenants work for %s …\n", length)
	l, err := limiter.New(limiter.Options{URL: g.server, ID: "demo-gateway", Key: g.key})
	if err != nil {
		return err
	}
	var following sync.WaitGroup
	defer following.Wait()
	fctx, unfollow := context.WithCancel(ctx)
	defer unfollow()
	following.Go(func() { _ = l.Follow(fctx) })
	if err := l.Ready(ctx); err != nil {
		return err
	}
	if err := playTraffic(ctx, a.Addr("otlp_grpc"), length, l); err != nil {
		return err
	}
	// What waits for late spans settles in five seconds, and a chunk takes one more.
	settle := time.Duration(cfg.Limits.Settle) + 1500*time.Millisecond
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(settle):
	}
	if err := waitReady(ctx, g, 30*time.Second, func(r readiness) bool { return r.Ingest.Queued == 0 }); err != nil {
		return err
	}
	if err := printDemo(cmd, g); err != nil {
		return err
	}
	if os.Getenv("DEMO_ONCE") == "1" {
		return nil
	}
	fmt.Fprintf(os.Stderr, "\nstill serving on http://%s, press Ctrl-C to end\n", a.Addr("http"))
	return a.Wait(ctx)
}

// readiness is what /readyz says.
type readiness struct {
	Ingest struct {
		Queued int64 `json:"queued"`
	} `json:"ingest"`
	ClickHouse struct {
		Ready    bool   `json:"ready"`
		WaitsFor string `json:"waits_for"`
	} `json:"clickhouse"`
}

func waitReady(ctx context.Context, g *global, most time.Duration, done func(readiness) bool) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	last := ""
	for {
		var r readiness
		data, err := g.call(ctx, "GET", "/readyz", nil, nil)
		if err == nil {
			err = json.Unmarshal(data, &r)
		}
		if err == nil && done(r) {
			return nil
		}
		if r.ClickHouse.WaitsFor != "" {
			last = r.ClickHouse.WaitsFor
		}
		select {
		case <-ctx.Done():
			if last != "" {
				return fmt.Errorf("the service is not ready: %s", last)
			}
			return fmt.Errorf("the service is not ready: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// printDemo asks the questions a newcomer has and says what the answers show.
func printDemo(cmd *cobra.Command, g *global) error {
	w := cmd.OutOrStdout()
	heading := func(title, text string) {
		fmt.Fprintf(w, "\n== %s\n   %s\n\n", title, text)
	}
	heading("Spend by tenant and model", "What each tenant's calls cost. A model without a price is unpriced, an answer without usage unknown; neither is counted as free.")
	if err := g.ask(cmd, "/api/v1/spend", url.Values{"group_by": {"tenant,model"}, "kind": {"model"}}, func(w io.Writer, d map[string]any) error {
		return printSpend(w, d, "tenant,model", false)
	}); err != nil {
		return err
	}
	heading("Amplification by workflow", "(model calls + tool calls + retries) / user requests: how much work one request became. REPEATED are tool calls with arguments that the run had used before, and no retries.")
	if err := g.ask(cmd, "/api/v1/amplification", url.Values{"group_by": {"tenant,workflow"}}, func(w io.Writer, d map[string]any) error {
		return printAmplification(w, d, "tenant,workflow")
	}); err != nil {
		return err
	}
	heading("Retries by layer", "Who tried again after which failure: the SDK inside one call, the framework around it, or the agent asking for the same tool again.")
	if err := g.ask(cmd, "/api/v1/retries", nil, func(w io.Writer, d map[string]any) error { return printRetries(w, d, "layer,failure") }); err != nil {
		return err
	}
	heading("Coverage", "What is not known: calls without a price, without usage, or read by an assumption.")
	if err := g.ask(cmd, "/api/v1/coverage", nil, printCoverage); err != nil {
		return err
	}
	heading("Guards that acted", "What the demo's policy did: a run is stopped, since its agent asks a limiter (demo-gateway, which follows from its start) before each call; a cheaper model is ordered for a feature whose agent asks nobody, so that its calls stay as they are; a storm of retries is reported (`flyball guard events`).")
	if err := g.ask(cmd, "/api/v1/enforcement", url.Values{"limit": {"20"}}, func(w io.Writer, d map[string]any) error {
		return table(w, rowsOf(d, "events"), "kind", "guard", "action", "by=actor", "scope", "value", "limit")
	}); err != nil {
		return err
	}
	data, err := g.call(cmd.Context(), "GET", "/api/v1/runs", url.Values{"workflow": {"quote"}, "limit": {"1"}}, nil)
	if err != nil {
		return err
	}
	var runs struct {
		Rows []struct {
			RunID string `json:"run_id"`
		} `json:"rows"`
	}
	if err := json.Unmarshal(data, &runs); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if len(runs.Rows) == 0 {
		return errors.New("the demo's quote run is not in the journal; see what the service said above")
	}
	heading("One run as a trace", "The tree of calls, what each cost, and whose retry it was (`flyball runs "+runs.Rows[0].RunID+"`).")
	return g.ask(cmd, "/api/v1/runs/"+runs.Rows[0].RunID, nil, printRun)
}
