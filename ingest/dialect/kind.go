package dialect

import (
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/flyball/flyball/schema"
)

// classify decides what a span is. The order matters: the most specific emitter
// first, since generic names are reused for other things.
func (rec *record) classify(c *schema.Call) {
	rec.kindOf(c)
	if c.Kind == schema.KindModel && strings.HasPrefix(rec.name, "streaming response from ") && strings.HasPrefix(rec.scope, "logfire") {
		c.Role |= schema.RoleStreamEnd
	}
	// A guard or a judge that names its model and its counts has called it, unless a span below says so.
	if c.Role&(schema.RoleAggregate|schema.RoleNotCounted|schema.RoleServer) == 0 && (c.Kind == schema.KindGuardrail || c.Kind == schema.KindRetrieval || c.Flags&schema.FlagEvaluation != 0) && rec.hasUsage() && rec.first(modelKeys) != "" {
		c.Role |= schema.RoleAggregate
	}
	if c.Kind == schema.KindOther && rec.rawUsage != "" {
		c.Role |= schema.RoleRefinesParent
	}
	if c.Role&schema.RoleNotCounted != 0 {
		c.Kind = schema.KindOther
		c.Role &^= schema.RoleAggregate
	}
}

func (rec *record) kindOf(c *schema.Call) {
	switch rec.name {
	case "claude_code.llm_request":
		c.Kind, c.Operation = schema.KindModel, "chat"
		c.Flags |= schema.FlagNotional
		return
	case "claude_code.tool":
		c.Kind, c.Operation = schema.KindTool, "execute_tool"
		return
	case "claude_code.interaction":
		c.Kind, c.Operation = schema.KindAgent, "interaction"
		return
	case "claude_code.tool.execution", "claude_code.tool.blocked_on_user":
		return
	case "raw_gen_ai_request":
		c.Role |= schema.RoleRefinesParent
		return
	case "Received Proxy Server Request":
		if !rec.hasUsage() {
			c.Kind = schema.KindRequest
			return
		}
	case "count_tokens", "CountTokens", "TokenCount", "anthropic.messages.countTokens", "anthropic.messages.count_tokens":
		c.Role |= schema.RoleNotCounted
		return
	}
	// Its log events tell of the same calls, with the counts that these spans lack.
	if rec.scope == "gemini-cli" && (rec.name == "llm_call" || rec.name == "tool_call") {
		c.Role |= schema.RoleNotCounted
		return
	}
	if op := rec.str(kAIOperation); op != "" {
		rec.aiKind(c, op)
		return
	}
	if k := rec.str(kOIKind); k != "" {
		rec.openInferenceKind(c, strings.ToUpper(k))
		return
	}
	if k := rec.str(kLangfuseType); k != "" {
		rec.langfuseKind(c, k)
		return
	}
	if k := rec.str(kLangsmithKind); k != "" {
		rec.langsmithKind(c, k)
		return
	}
	// A server that has the client ask the model is MCP as well, and a model call.
	if m := rec.str(kMCPMethod); m != "" && (m == "tools/call" || !rec.modelUse()) {
		c.Operation = m
		if m == "tools/call" {
			c.Kind = schema.KindTool
		}
		return
	}
	if op := rec.str(kOperation); op != "" {
		rec.genAIKind(c, op)
		if c.Kind == schema.KindModel && rec.repeatsCallLLM() {
			c.Role |= schema.RoleNotCounted
		}
		return
	}
	if k := rec.str(kTraceloopKind); k != "" {
		switch strings.ToLower(k) {
		case "tool":
			c.Kind, c.Operation = schema.KindTool, "execute_tool"
		case "workflow":
			c.Kind, c.Operation = schema.KindAgent, "invoke_workflow"
			c.Role |= schema.RoleAggregate
		default:
			c.Kind, c.Operation = schema.KindAgent, k
			c.Role |= schema.RoleAggregate
		}
		return
	}
	if t := rec.str(kLLMRequestType); t != "" {
		switch strings.ToLower(t) {
		case "embedding", "embeddings":
			c.Kind = schema.KindEmbedding
		case "rerank":
			c.Kind = schema.KindRerank
		default:
			c.Kind = schema.KindModel
		}
		c.Operation = t
		rec.litellmKind(c)
		return
	}
	switch rec.str(kGenkitSubtype) {
	case "model":
		c.Kind, c.Operation = schema.KindModel, "chat"
		return
	case "embedder":
		c.Kind, c.Operation = schema.KindEmbedding, "embeddings"
		return
	case "tool":
		c.Kind, c.Operation = schema.KindTool, "execute_tool"
		return
	}
	if rec.name == "call_llm" {
		c.Kind, c.Operation = schema.KindModel, "chat"
		return
	}
	if rec.modelUse() {
		c.Kind, c.Operation = schema.KindModel, "chat"
		return
	}
	rec.clientKind(c)
}

// modelUse reports whether a span names a model and says how much of it was used.
func (rec *record) modelUse() bool { return rec.hasUsage() && rec.first(modelKeys) != "" }

func (rec *record) hasUsage() bool {
	return rec.hasAny(kInput, kPrompt, kOutput, kCompletion, kInputLLM, kOutputLLM, kInputWords, kOutputWords, kUsage, kOIInput, kOIOutput, kAIInput, kAIPrompt, kAIOutput, kAICompletion, kAITokens, kUsageRaw, kLangfuseUsage, kImages, kImagesWords, kPagesWords, kSecondsWords)
}

// aiKind reads the Vercel AI SDK's operation ids; the outer spans repeat the inner.
func (rec *record) aiKind(c *schema.Call, op string) {
	c.Operation = op
	switch {
	case strings.HasSuffix(op, ".doGenerate"), strings.HasSuffix(op, ".doStream"):
		c.Kind = schema.KindModel
	case strings.HasSuffix(op, ".doEmbed"):
		c.Kind = schema.KindEmbedding
	case strings.HasSuffix(op, ".doRerank"):
		c.Kind = schema.KindRerank
	case op == "ai.toolCall":
		c.Kind = schema.KindTool
	case op == "ai.generateImage":
		c.Kind = schema.KindImage
	case op == "ai.generateSpeech":
		c.Kind = schema.KindSpeech
	case op == "ai.transcribe":
		c.Kind = schema.KindTranscription
	case op == "ai.embed", op == "ai.embedMany", op == "ai.rerank":
		c.Kind = schema.KindAgent
		c.Role |= schema.RoleAggregate
	default:
		c.Kind = schema.KindAgent
		// The outer generateText span of the older majors holds the last step only.
		c.Role |= schema.RoleAggregate | schema.RoleCumulative
	}
}

func (rec *record) openInferenceKind(c *schema.Call, k string) {
	c.Operation = strings.ToLower(k)
	switch k {
	case "LLM":
		c.Kind = schema.KindModel
	case "EMBEDDING":
		c.Kind = schema.KindEmbedding
	case "RERANKER":
		c.Kind = schema.KindRerank
	case "TOOL":
		c.Kind = schema.KindTool
	case "RETRIEVER":
		c.Kind = schema.KindRetrieval
	case "GUARDRAIL":
		c.Kind = schema.KindGuardrail
	case "EVALUATOR":
		c.Flags |= schema.FlagEvaluation
	case "AGENT":
		c.Kind = schema.KindAgent
		c.Role |= schema.RoleAggregate
	default: // CHAIN, PROMPT
		c.Kind = schema.KindWorkflow
		c.Role |= schema.RoleAggregate
	}
	// The MCP instrumentation marks plumbing as chains with an MCP method.
	if m := rec.str(kMCPMethod); m != "" && (m == "tools/call" || !rec.modelUse()) {
		c.Operation = m
		c.Kind = schema.KindOther
		c.Role &^= schema.RoleAggregate
		if m == "tools/call" {
			c.Kind = schema.KindTool
		}
	}
}

func (rec *record) langfuseKind(c *schema.Call, k string) {
	c.Operation = k
	switch strings.ToLower(k) { // its API writes capitals
	case "generation":
		c.Kind = schema.KindModel
	case "embedding":
		c.Kind = schema.KindEmbedding
	case "tool":
		c.Kind = schema.KindTool
	case "retriever":
		c.Kind = schema.KindRetrieval
	case "guardrail":
		c.Kind = schema.KindGuardrail
	case "evaluator":
		c.Flags |= schema.FlagEvaluation
	case "agent", "chain":
		c.Kind = schema.KindAgent
		c.Role |= schema.RoleAggregate
	default:
		// SDKs up to 3.3 could mark generations as spans.
		if rec.has(kLangfuseModel) && rec.has(kLangfuseUsage) {
			c.Kind = schema.KindModel
		} else if rec.has(kLangfuseUsage) {
			c.Role |= schema.RoleAggregate
		}
	}
}

func (rec *record) langsmithKind(c *schema.Call, k string) {
	c.Operation = k
	switch strings.ToLower(k) {
	case "llm":
		c.Kind = schema.KindModel
	case "tool":
		c.Kind = schema.KindTool
	case "retriever":
		c.Kind = schema.KindRetrieval
	case "embedding":
		c.Kind = schema.KindEmbedding
	case "chain":
		c.Kind = schema.KindWorkflow
		c.Role |= schema.RoleAggregate
	}
}

// genAIKind reads gen_ai.operation.name of the OpenTelemetry conventions and of
// the many frameworks that use the attribute for words of their own.
func (rec *record) genAIKind(c *schema.Call, op string) {
	c.Operation = op
	switch strings.ToLower(op) {
	case "chat", "text_completion", "text_completions", "completion", "generate_content", "llm_call", "responses", "response", "messages", "vision":
		c.Kind = schema.KindModel
	case "embeddings", "embedding":
		c.Kind = schema.KindEmbedding
	case "rerank":
		c.Kind = schema.KindRerank
	case "image", "image_generation":
		c.Kind = schema.KindImage
	case "speech", "audio":
		c.Kind = schema.KindSpeech
	case "transcription", "translation":
		c.Kind = schema.KindTranscription
	case "execute_tool", "tool_call":
		c.Kind = schema.KindTool
		// A result handed to the framework, not a tool.
		if rec.name == "running output function" || strings.HasPrefix(rec.first(toolKeys), "final_result") || rec.first(toolKeys) == "(merged tools)" || rec.name == "execute_tool (merged)" {
			c.Role |= schema.RoleNotCounted
		}
	case "retrieval":
		c.Kind = schema.KindRetrieval
	case "guardrail.run", "guard", "guardrail":
		c.Kind = schema.KindGuardrail
	case "evaluate", "evaluation":
		c.Flags |= schema.FlagEvaluation
	case "create_agent", "schedule_tool_calls", "tokenize", "count_tokens":
		if op == "create_agent" {
			c.Kind = schema.KindOther
		}
	case "invoke_agent", "agent_step", "agent_call", "execute_event_loop_cycle", "user_prompt", "handle_conversation_turn", "plan":
		c.Kind = schema.KindAgent
		c.Role |= schema.RoleAggregate
		if strings.Contains(strings.ToLower(rec.str(kSystem)+rec.str(kProvider)), "strands") {
			c.Role |= schema.RoleCumulative // counts over the session's life
		}
	case "invoke_workflow", "workflow", "framework", "execute_task", "task":
		c.Kind = schema.KindWorkflow
		c.Role |= schema.RoleAggregate
	default:
		if rec.first(modelKeys) == "" {
			break
		}
		if c.Kind = operationKind(op); c.Kind == schema.KindOther && rec.hasUsage() {
			c.Kind = schema.KindModel
		}
	}
	rec.litellmKind(c)
	// Tool names on a chat span are what the model asked for, not a call of it.
}

// operationKind reads the names that instrumentations make of an SDK's methods (Chat,
// chat.completions, messages.create, create_embedding, images.generate), of a span that names a
// model. Calls that failed or lost their usage have nothing else that tells what they are.
func operationKind(op string) schema.Kind {
	op = strings.ToLower(op)
	has := func(words ...string) bool { return containsAny(op, words...) }
	switch {
	case has("count", "tokeniz", "moderat", "agent", "workflow", "memor", "tool", "retriev", "search", "fine", "file", "model.list", "list_model", "batch", "eval", "guard", "thread", "session", "cache"):
		return schema.KindOther
	case has("embed"):
		return schema.KindEmbedding
	case has("rerank"):
		return schema.KindRerank
	case has("transcri"):
		return schema.KindTranscription
	case has("speech", "tts"):
		return schema.KindSpeech
	case has("image") && has("generat", "creat", "edit", "variation"):
		return schema.KindImage
	case has("chat", "completion", "messages", "create_message", "responses", "create_response", "converse", "invoke_model", "invokemodel", "inference", "generate_text", "text_generation", "generatetext", "generate_content", "generatecontent", "generate_object", "stream_text"), op == "generate", op == "llm", op == "generation":
		return schema.KindModel
	}
	return schema.KindOther
}

// litellmKind tells LiteLLM's modalities apart, which share an operation name.
func (rec *record) litellmKind(c *schema.Call) {
	t := rec.str(kLiteLLMCallType)
	switch {
	case t == "":
		switch rec.str(kOutputType) {
		case "image":
			c.Kind = schema.KindImage
		case "speech":
			c.Kind = schema.KindSpeech
		}
	case strings.Contains(t, "embedding"):
		c.Kind = schema.KindEmbedding
	case strings.Contains(t, "image"):
		c.Kind = schema.KindImage
	case strings.Contains(t, "speech"):
		c.Kind = schema.KindSpeech
	case strings.Contains(t, "transcription"):
		c.Kind = schema.KindTranscription
	case strings.Contains(t, "rerank"):
		c.Kind = schema.KindRerank
	}
}

// clientKind reads plain HTTP, database, RPC and messaging spans.
func (rec *record) clientKind(c *schema.Call) {
	client := rec.kind == ptrace.SpanKindClient || rec.kind == ptrace.SpanKindProducer
	server := rec.kind == ptrace.SpanKindServer || rec.kind == ptrace.SpanKindConsumer
	first := func(keys ...key) string { return rec.first(keys) }
	if server {
		c.Role |= schema.RoleServer
		c.Kind = schema.KindRequest
		c.Operation = first(kHTTPMethod, kHTTPMethodOld, kRPCMethod, kMessagingOperation, kMessagingOperationOld)
		return
	}
	// Some instrumentations leave the span kind out: the attributes say as much.
	unspecified := rec.kind == ptrace.SpanKindUnspecified
	if method := first(kHTTPMethod, kHTTPMethodOld); method != "" && (client || unspecified || rec.kind == ptrace.SpanKindInternal) {
		c.Kind, c.Operation = schema.KindHTTP, method
		c.Role |= schema.RoleHTTP
		host, path := rec.hostAndPath()
		if excludedPath(path) {
			return
		}
		p := modelHost(host)
		if p == "" && method == "POST" {
			p = modelPath(path)
		}
		if p != "" && infers(method, path) {
			c.Role |= schema.RoleModelHost
			c.Provider = p
		}
		if client || unspecified {
			c.Role |= schema.RoleClient
		}
		c.Tool = rec.cut("http "+host, 128)
		switch method {
		case "GET", "HEAD", "OPTIONS":
			c.Effect = schema.EffectRead
		case "PUT", "PATCH", "DELETE":
			c.Effect = schema.EffectWrite
		}
		return
	}
	if !client {
		return
	}
	if db := first(kDBSystem, kDBSystemOld); db != "" {
		c.Role |= schema.RoleClient
		c.Operation = first(kDBOperation, kDBOperationOld)
		if c.Operation == "" {
			c.Operation, _, _ = strings.Cut(first(kDBQuerySummary), " ")
		}
		c.Tool = rec.cut(strings.TrimSpace(db+" "+first(kDBCollection, kDBCollectionOld)), 128)
		switch strings.ToUpper(c.Operation) {
		case "SELECT", "FIND", "GET", "HGET", "MGET", "QUERY", "SHOW", "EXISTS", "SCAN":
			c.Effect = schema.EffectRead
		case "INSERT", "UPDATE", "DELETE", "UPSERT", "MERGE", "SET", "DEL", "HSET", "CREATE", "DROP", "ALTER", "TRUNCATE":
			c.Effect = schema.EffectWrite
		}
		return
	}
	if sys := first(kRPCSystem, kRPCSystemOld); sys != "" || rec.has(kRPCService) {
		service := rec.str(kRPCService)
		if strings.HasPrefix(service, "opentelemetry.proto.collector") || strings.HasPrefix(service, "grpc.health") {
			return
		}
		c.Role |= schema.RoleClient
		c.Operation = rec.str(kRPCMethod)
		c.Tool = rec.cut(strings.Trim(service+"/"+c.Operation, "/"), 128)
		return
	}
	if rec.has(kMessagingSystem) {
		c.Role |= schema.RoleClient
		c.Operation = first(kMessagingOperation, kMessagingOperationOld)
		c.Tool = rec.cut(strings.TrimSpace(rec.str(kMessagingSystem)+" "+rec.str(kMessagingDestination)), 128)
		if rec.kind == ptrace.SpanKindProducer {
			c.Effect = schema.EffectWrite
		}
	}
}

func (rec *record) hostAndPath() (host, path string) {
	u := rec.str(kURLFull)
	if u == "" {
		u = rec.str(kURLFullOld)
	}
	if i := strings.Index(u, "://"); i >= 0 {
		u = u[i+3:]
		if j := strings.IndexAny(u, "/?#"); j >= 0 {
			u, path = u[:j], u[j:]
		}
		if j := strings.LastIndexByte(u, '@'); j >= 0 {
			u = u[j+1:]
		}
		host = u
	}
	if s := rec.first([]key{kServerAddress, kNetPeerName}); s != "" {
		host = s
	}
	if p := rec.first([]key{kURLPath, kURLPathOld}); p != "" {
		path = p
	}
	if i := strings.LastIndexByte(host, ':'); i > 0 && !strings.Contains(host[:i], ":") {
		host = host[:i]
	}
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		path = path[:i]
	}
	return strings.ToLower(host), path
}

// modelPath recognises the paths of the model APIs, which gateways and
// self-hosted servers keep.
func modelPath(path string) string {
	ends := func(suffixes ...string) bool {
		return slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(path, s) })
	}
	switch {
	case ends("/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/images/generations", "/v1/images/edits", "/v1/audio/speech", "/v1/audio/transcriptions", "/v1/audio/translations"):
		return "openai"
	case ends("/v1/messages"):
		return "anthropic"
	case ends(":generateContent", ":streamGenerateContent", ":embedContent", ":batchEmbedContents", ":rawPredict", ":streamRawPredict"):
		return "google"
	case strings.HasPrefix(path, "/model/") && ends("/converse", "/converse-stream", "/invoke", "/invoke-with-response-stream"):
		return "bedrock"
	}
	return ""
}

// infers reports whether a request to a model's host may be one that a model answers. Models
// are listed, files fetched and batches polled for at the same hosts, for nothing.
func infers(method, path string) bool {
	has := func(words ...string) bool { return containsAny(path, words...) }
	switch method {
	case "GET", "HEAD", "OPTIONS", "DELETE":
		return has("/realtime", "BidiGenerateContent") // the opening of a socket
	}
	return !has("/files", "/uploads", "/batches", "/count_tokens", "/count-tokens", ":countTokens", "/tokenize", "/moderations", "/vector_stores", "/fine_tuning", "/cachedContents")
}

// excludedPath lists what an agent's process calls that no agent asked for.
func excludedPath(path string) bool {
	switch path {
	case "/v1/traces", "/v1/metrics", "/v1/logs", "/healthz", "/health", "/livez", "/readyz", "/metrics", "/ping", "/api/public/otel/v1/traces":
		return true
	}
	return false
}
