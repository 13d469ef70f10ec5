package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/flyball/flyball/cmd/app"
)

func serveCommand(g *global) *cobra.Command {
	return &cobra.Command{Use: "serve", Short: "Run the service", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		cfg, err := app.LoadConfig(g.config, os.Environ())
		if err != nil {
			return err
		}
		log, err := logger(cfg.Log)
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		a, err := app.New(cfg, g.config, os.Environ(), log)
		if err != nil {
			return err
		}
		hup := make(chan os.Signal, 1)
		signal.Notify(hup, syscall.SIGHUP)
		defer signal.Stop(hup)
		go func() {
			for range hup {
				if err := a.Reload(); err != nil {
					log.Error("reload refused, everything stays as it was", "err", err)
				}
			}
		}()
		if os.Getenv("GOGC") == "" {
			debug.SetGCPercent(50) // open runs are most of the heap: less slack, a little more CPU
		}
		log.Info("flyball is serving", "http", a.Addr("http"), "otlp_grpc", a.Addr("otlp_grpc"), "otlp_http", a.Addr("otlp_http"), "data", cfg.Data)
		err = a.Wait(ctx)
		log.Info("stopping")
		if stopErr := a.Stop(); err == nil {
			err = stopErr
		}
		return err
	}}
}

func logger(c app.Log) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return nil, fmt.Errorf("log.level %q: want debug, info, warn or error", c.Level)
	}
	o := &slog.HandlerOptions{Level: level}
	if c.JSON {
		return slog.New(slog.NewJSONHandler(os.Stderr, o)), nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, o)), nil
}

func versionCommand(g *global) *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		if g.json {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "{\"version\":%q}\n", Version)
			return err
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "flyball "+Version)
		return err
	}}
}
