package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

// readyPause is how long `flyball ready --wait` rests between two questions.
const readyPause = 200 * time.Millisecond

func readyCommand(g *global) *cobra.Command {
	var wait, timeout time.Duration
	var stored bool
	c := &cobra.Command{Use: "ready", Short: "Ask whether the server takes telemetry; for health checks", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		if wait < 0 || timeout <= 0 {
			return usageError{errors.New("--wait must not be negative, and --timeout must be more than 0")}
		}
		end := time.Now().Add(wait)
		for {
			said, err := g.ready(cmd.Context(), timeout, stored)
			if err == nil {
				if !g.json {
					said = append([]byte("ready"), '\n')
				}
				_, err = cmd.OutOrStdout().Write(said)
				return err
			}
			if usage := (usageError{}); errors.As(err, &usage) || time.Now().Add(readyPause).After(end) {
				return err
			}
			time.Sleep(readyPause)
		}
	}}
	f := c.Flags()
	f.DurationVar(&wait, "wait", 0, "ask again until it is ready, for so long at the most")
	f.DurationVar(&timeout, "timeout", 5*time.Second, "how long one answer may take")
	f.BoolVar(&stored, "clickhouse", false, "ClickHouse has to answer too; without it the log holds what comes")
	return c
}

// ready asks /readyz once, which needs no key, and returns its body on one line.
func (g *global) ready(ctx context.Context, timeout time.Duration, stored bool) ([]byte, error) {
	base, err := g.base()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/readyz", nil)
	if err != nil {
		return nil, usageError{err}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no server answers at %s (%w); start one with `flyball serve` or name it with --server", base, errors.Unwrap(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("read answer of %s/readyz: %w", base, err)
	}
	var said struct {
		Status string `json:"status"`
		Ingest struct {
			Refusing string `json:"refusing"`
		} `json:"ingest"`
		ClickHouse struct {
			Ready    bool   `json:"ready"`
			WaitsFor string `json:"waits_for"`
		} `json:"clickhouse"`
	}
	if err := json.Unmarshal(body, &said); err != nil || said.Status == "" {
		return nil, fmt.Errorf("%s/readyz is %s and no answer of Flyball: is another service there?", base, resp.Status)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("not ready, %s: %s; %s/readyz says what is waited for", said.Status, said.Ingest.Refusing, base)
	}
	if stored && !said.ClickHouse.Ready {
		return nil, fmt.Errorf("telemetry is taken, but ClickHouse is not ready: %s", said.ClickHouse.WaitsFor)
	}
	return append(body, '\n'), nil
}
