package main

import (
	_ "github.com/ClickHouse/clickhouse-go/v2"
	_ "github.com/cespare/xxhash/v2"
	_ "github.com/cockroachdb/pebble"
	_ "github.com/ebitengine/purego"
	_ "github.com/gin-gonic/gin"
	_ "github.com/goccy/go-yaml"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/cheggaaa/pb/v3"
	_ "github.com/spf13/cobra"
	_ "github.com/tidwall/gjson"
	_ "go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	_ "go.opentelemetry.io/otel"
	_ "go.opentelemetry.io/otel/sdk/trace"
	_ "go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	_ "go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	_ "google.golang.org/genproto/googleapis/rpc/errdetails"
	_ "google.golang.org/grpc"
	_ "golang.org/x/sys/unix"
)

func main() {}
