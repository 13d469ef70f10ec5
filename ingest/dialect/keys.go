package dialect

// key is the index of an attribute that some dialect knows.
type key uint16

// Attribute keys. The order has no meaning; groups follow the alias tables.
const (
	kNone key = iota
	// what it is
	kOperation
	kOIKind
	kAIOperation
	kOperationNameLegacy
	kLangfuseType
	kTraceloopKind
	kLLMRequestType
	kLangsmithKind
	kGenkitSubtype
	kGenkitName
	kMCPMethod
	kSpanType
	kEventName
	kEventKind
	kLiteLLMCallType
	kOutputType
	kSentryOp
	kOpenLITOperation
	// provider and model
	kProvider
	kSystem
	kOIProvider
	kOISystem
	kAIProvider
	kResponseModel
	kOIResponseModel
	kAIResponseModel
	kLangfuseModel
	kOIModel
	kOIEmbeddingModel
	kOIRerankModel
	kRequestModel
	kLLMRequestModel
	kAIModel
	kLiteLLMModel
	kBareModel
	kServerAddress
	kNetPeerName
	// ids
	kResponseID
	kAIResponseID
	kRequestID
	kAnthropicRequestID
	kToolCallID
	kOIToolCallID
	kOIToolID
	kAIToolCallID
	kToolUseID
	// tier
	kTierOpenAIResponse
	kTierGenAIOpenAIResponse
	kTierResponse
	kTierAnthropicResponse
	kTierOpenAIRequest
	kTierGenAIOpenAIRequest
	kTierRequest
	kSpeed
	kOIParameters
	// usage, gen_ai family
	kInput
	kPrompt
	kOutput
	kCompletion
	kRead
	kReadUnderscore
	kReadTokens
	kReadSentry
	kReadRig
	kReadLiveKit
	kReadBifrost
	kReadOpenLIT
	kReadDetails
	kWrite
	kWriteCreation
	kWriteCreationUnderscore
	kWriteStrands
	kWriteSentry
	kWriteBifrost
	kWriteOpenLIT
	kWriteDetails
	kReasoning
	kReasoningTokens
	kReasoningSentry
	kReasoningBifrost
	kReasoningOpenLIT
	kReasoningLLM
	kTotal
	kTotalLLM
	kTotalOpenLIT
	kWrite5mAnthropic
	kWrite1hAnthropic
	kInputAudio
	kInputAudioMEAI
	kInputImage
	kOutputAudio
	kOutputAudioMEAI
	kOutputImage
	kPartialInput
	kAggInput
	kInputLLM
	kOutputLLM
	kPydanticInputAudio
	kPydanticOutputAudio
	kReadAudio
	kReadAudioPydantic
	// usage, OpenInference family
	kOIInput
	kOIOutput
	kOIRead
	kOIWrite
	kOIReasoning
	kOITotal
	kOIInputAudio
	kOIOutputAudio
	// usage, AI SDK family
	kAIInput
	kAIPrompt
	kAIOutput
	kAICompletion
	kAIRead
	kAIReadDetail
	kAIWriteDetail
	kAINoCache
	kAIReasoning
	kAIReasoningDetail
	kAITotal
	kAITokens
	// usage, bare names of agent command lines
	kBareInput
	kBareOutput
	kBareRead
	kBareCreation
	kBareWrite5m
	kBareWrite1h
	kCodexInput
	kCodexOutput
	kCodexCached
	kCodexWrite
	kCodexReasoning
	kGeminiCached
	kGeminiThoughts
	kGeminiTool
	kGeminiTotal
	// blobs
	kUsage
	kUsageRaw
	kLiteLLMUsage
	kAIProviderMetadata
	kADKResponse
	kLangfuseUsage
	kLangfuseCost
	kOIOutputValue
	kLangsmithUsage
	kInputDetails
	kOutputDetails
	kMastraBody
	kGenkitOutput
	kResponseData
	// reported cost
	kCostOperation
	kCostUsage
	kCostUsageTotal
	kCostOI
	kCostLiteLLM1
	kCostLiteLLM2
	kCostClaude
	kCostAgentgateway
	kCostSentry
	// units
	kWebSearches
	kWebSearchesOI
	kImages
	// identity
	kUserID
	kEndUser
	kLangfuseUser
	kAIUser
	kMastraUser
	kMastraSession
	kLLMUser
	kGenAIRequestUser
	kGenAIUser
	kTraceloopUser
	kLiteLLMEndUser
	kLiteLLMMetaUser
	kLiteLLMMetaUser1
	kUserAccount
	kUserEmail
	kOIMetadata
	kTenantID
	kTenant
	kOrganization
	kLiteLLMTeam
	kLiteLLMMetaTeam
	kBifrostTeam
	kBifrostCustomer
	kTraceloopTenant
	kAITenant
	kLangfuseTenant
	kConversation
	kSession
	kLangfuseSession
	kLangfuseSessionMeta
	kAISession
	kSpringSession
	kADKSession
	kTraceloopSession
	kTraceloopThread
	kAIFunction
	kLangfuseTraceName
	kPromptName
	kAgentName
	kAgentNameOld
	kAIAgent
	kOIAgent
	kClaudeAgentID
	kWorkflowName
	kTraceloopWorkflow
	kAgentVersion
	kTraceloopVersion
	kPromptVersion
	kLangfuseVersion
	kLangfuseRelease
	kServiceVersion
	kDeployEnv
	kDeployEnvOld
	kLangfuseEnv
	kPromptIDClaude
	kPromptIDGemini
	kADKInvocation
	// tools
	kToolName
	kOIToolName
	kAIToolName
	kTraceloopEntity
	kClaudeToolName
	kGeminiToolName
	kToolArgs
	kOIToolParams
	kAIToolArgs
	kToolArguments
	kOIInputValue
	kTraceloopInput
	kLangfuseInput
	kMCPArgs
	kToolResult
	kAIToolResult
	kTraceloopOutput
	kLangfuseOutput
	kOIOutputMime
	kInputMessages
	// failure and attempts
	kErrorType
	kErrorTypeBifrost
	kErrorCodeBifrost
	kErrorCodeLiteLLM
	kErrorCodeLiteLLM2
	kHTTPStatus
	kHTTPStatusOld
	kRPCStatus
	kGRPCStatus
	kFinishReasons
	kFinishReason
	kAIFinish
	kLangfuseLevel
	kResendCount
	kStainlessRetry
	kStainlessRetryPy
	kAttempt
	kRetryAttempt
	kRetriesBifrost
	kFallbackBifrost
	kTurns
	kDeliveryPubSub
	kDeliveryAttempt
	kDeliveryServiceBus
	kDeliveryRabbit
	kCeleryRetries
	kStatusCode
	// clients
	kHTTPMethod
	kHTTPMethodOld
	kURLFull
	kURLFullOld
	kURLPath
	kURLPathOld
	kDBSystem
	kDBSystemOld
	kDBOperation
	kDBOperationOld
	kDBCollection
	kDBCollectionOld
	kDBQuerySummary
	kRPCSystem
	kRPCSystemOld
	kRPCService
	kRPCMethod
	kMessagingSystem
	kMessagingDestination
	kMessagingOperation
	kMessagingOperationOld
	// emitters
	kAIUserAgent
	kSDKName
	kDistro
	kSpringKind
	kSampledProbability
	kCacheHit
	kServiceName
	kStreaming
	kLangfuseAppRoot
	kDurationMS
	kSuccess
	// counts whose names no table has, by the words in them; usageName says which
	kInputWords
	kOutputWords
	kReadWords
	kWriteWords
	kWrite5mWords
	kWrite1hWords
	kReasoningWords
	kInputAudioWords
	kInputImageWords
	kOutputAudioWords
	kOutputImageWords
	kReadAudioWords
	kTotalWords
	kSearchesWords
	kImagesWords
	kSecondsWords
	kPagesWords
	kUserWords
	kSessionWords
	numKeys
)

// firstWords is the first of the keys that have no name of their own.
const firstWords = kInputWords

// keyNames spells the attributes. Sources: the OpenTelemetry GenAI conventions,
// OpenInference's and OpenLLMetry's, the Vercel AI SDK's telemetry page, and what
// recorded exporters really send.
var keyNames = [numKeys]string{
	kOperation: "gen_ai.operation.name", kOIKind: "openinference.span.kind", kAIOperation: "ai.operationId", kOperationNameLegacy: "operation.name",
	kLangfuseType: "langfuse.observation.type", kTraceloopKind: "traceloop.span.kind", kLLMRequestType: "llm.request.type", kLangsmithKind: "langsmith.span.kind",
	kGenkitSubtype: "genkit:metadata:subtype", kGenkitName: "genkit:name", kMCPMethod: "mcp.method.name", kSpanType: "span.type", kEventName: "event.name", kEventKind: "event.kind",
	kLiteLLMCallType: "litellm.call_type", kOutputType: "gen_ai.output.type", kSentryOp: "sentry.op", kOpenLITOperation: "gen_ai.type",

	kProvider: "gen_ai.provider.name", kSystem: "gen_ai.system", kOIProvider: "llm.provider", kOISystem: "llm.system", kAIProvider: "ai.model.provider",
	kResponseModel: "gen_ai.response.model", kOIResponseModel: "llm.response.model_name", kAIResponseModel: "ai.response.model", kLangfuseModel: "langfuse.observation.model.name",
	kOIModel: "llm.model_name", kOIEmbeddingModel: "embedding.model_name", kOIRerankModel: "reranker.model_name", kRequestModel: "gen_ai.request.model",
	kLLMRequestModel: "llm.request.model_name", kAIModel: "ai.model.id", kLiteLLMModel: "litellm.provider.model", kBareModel: "model", kServerAddress: "server.address", kNetPeerName: "net.peer.name",

	kResponseID: "gen_ai.response.id", kAIResponseID: "ai.response.id", kRequestID: "request_id", kAnthropicRequestID: "anthropic.request.id",
	kToolCallID: "gen_ai.tool.call.id", kOIToolCallID: "tool_call.id", kOIToolID: "tool.id", kAIToolCallID: "ai.toolCall.id", kToolUseID: "tool_use_id",

	kTierOpenAIResponse: "openai.response.service_tier", kTierGenAIOpenAIResponse: "gen_ai.openai.response.service_tier", kTierResponse: "gen_ai.response.service_tier", kTierAnthropicResponse: "anthropic.response.service_tier",
	kTierOpenAIRequest: "openai.request.service_tier", kTierGenAIOpenAIRequest: "gen_ai.openai.request.service_tier", kTierRequest: "gen_ai.request.service_tier", kSpeed: "speed", kOIParameters: "llm.invocation_parameters",

	kInput: "gen_ai.usage.input_tokens", kPrompt: "gen_ai.usage.prompt_tokens", kOutput: "gen_ai.usage.output_tokens", kCompletion: "gen_ai.usage.completion_tokens",
	kRead: "gen_ai.usage.cache_read.input_tokens", kReadUnderscore: "gen_ai.usage.cache_read_input_tokens", kReadTokens: "gen_ai.usage.cache_read_tokens", kReadSentry: "gen_ai.usage.input_tokens.cached",
	kReadRig: "gen_ai.usage.cached_tokens", kReadLiveKit: "gen_ai.usage.input_cached_tokens", kReadBifrost: "gen_ai.usage.prompt_token_details.cached_read_tokens", kReadOpenLIT: "gen_ai.usage.prompt_tokens_details.cached_tokens", kReadDetails: "gen_ai.usage.details.cache_read_tokens",
	kWrite: "gen_ai.usage.cache_write.input_tokens", kWriteCreation: "gen_ai.usage.cache_creation.input_tokens", kWriteCreationUnderscore: "gen_ai.usage.cache_creation_input_tokens", kWriteStrands: "gen_ai.usage.cache_write_input_tokens",
	kWriteSentry: "gen_ai.usage.input_tokens.cache_write", kWriteBifrost: "gen_ai.usage.prompt_token_details.cached_write_tokens", kWriteOpenLIT: "gen_ai.usage.prompt_tokens_details.cache_creation_tokens", kWriteDetails: "gen_ai.usage.details.cache_write_tokens",
	kReasoning: "gen_ai.usage.reasoning.output_tokens", kReasoningTokens: "gen_ai.usage.reasoning_tokens", kReasoningSentry: "gen_ai.usage.output_tokens.reasoning", kReasoningBifrost: "gen_ai.usage.completion_token_details.reasoning_tokens", kReasoningOpenLIT: "gen_ai.usage.completion_tokens_details.reasoning_tokens", kReasoningLLM: "llm.usage.reasoning_tokens",
	kTotal: "gen_ai.usage.total_tokens", kTotalLLM: "llm.usage.total_tokens", kTotalOpenLIT: "gen_ai.client.token.usage",
	kWrite5mAnthropic: "anthropic.usage.cache_creation.ephemeral_5m_input_tokens", kWrite1hAnthropic: "anthropic.usage.cache_creation.ephemeral_1h_input_tokens",
	kInputAudio: "gen_ai.usage.audio.input_tokens", kInputAudioMEAI: "gen_ai.usage.input_audio_tokens", kInputImage: "gen_ai.usage.image.input_tokens",
	kOutputAudio: "gen_ai.usage.audio.output_tokens", kOutputAudioMEAI: "gen_ai.usage.output_audio_tokens", kOutputImage: "gen_ai.usage.image.output_tokens",

	kInputLLM: "llm.usage.prompt_tokens", kOutputLLM: "llm.usage.completion_tokens", kPydanticInputAudio: "gen_ai.usage.details.input_audio_tokens", kPydanticOutputAudio: "gen_ai.usage.details.output_audio_tokens",
	kReadAudio: "gen_ai.usage.audio.cache_read.input_tokens", kReadAudioPydantic: "gen_ai.usage.details.cache_audio_read_tokens",
	kPartialInput: "gen_ai.usage.partial.input_tokens", kAggInput: "gen_ai.aggregated_usage.input_tokens",

	kOIInput: "llm.token_count.prompt", kOIOutput: "llm.token_count.completion", kOIRead: "llm.token_count.prompt_details.cache_read", kOIWrite: "llm.token_count.prompt_details.cache_write",
	kOIReasoning: "llm.token_count.completion_details.reasoning", kOITotal: "llm.token_count.total", kOIInputAudio: "llm.token_count.prompt_details.audio", kOIOutputAudio: "llm.token_count.completion_details.audio",

	kAIInput: "ai.usage.inputTokens", kAIPrompt: "ai.usage.promptTokens", kAIOutput: "ai.usage.outputTokens", kAICompletion: "ai.usage.completionTokens",
	kAIRead: "ai.usage.cachedInputTokens", kAIReadDetail: "ai.usage.inputTokenDetails.cacheReadTokens", kAIWriteDetail: "ai.usage.inputTokenDetails.cacheWriteTokens", kAINoCache: "ai.usage.inputTokenDetails.noCacheTokens",
	kAIReasoning: "ai.usage.reasoningTokens", kAIReasoningDetail: "ai.usage.outputTokenDetails.reasoningTokens", kAITotal: "ai.usage.totalTokens", kAITokens: "ai.usage.tokens",

	kBareInput: "input_tokens", kBareOutput: "output_tokens", kBareRead: "cache_read_tokens", kBareCreation: "cache_creation_tokens", kBareWrite5m: "cache_creation_5m_tokens", kBareWrite1h: "cache_creation_1h_tokens",
	kCodexInput: "input_token_count", kCodexOutput: "output_token_count", kCodexCached: "cached_token_count", kCodexWrite: "cache_write_token_count", kCodexReasoning: "reasoning_token_count",
	kGeminiCached: "cached_content_token_count", kGeminiThoughts: "thoughts_token_count", kGeminiTool: "tool_token_count", kGeminiTotal: "total_token_count",

	kUsage: "gen_ai.usage", kUsageRaw: "gen_ai.usage.raw", kLiteLLMUsage: "metadata.usage_object", kAIProviderMetadata: "ai.response.providerMetadata", kADKResponse: "gcp.vertex.agent.llm_response", kLangfuseUsage: "langfuse.observation.usage_details", kLangfuseCost: "langfuse.observation.cost_details",
	kOIOutputValue: "output.value", kLangsmithUsage: "langsmith.usage_metadata", kInputDetails: "gen_ai.usage.input_token_details", kOutputDetails: "gen_ai.usage.output_token_details", kMastraBody: "mastra.metadata.body", kGenkitOutput: "genkit:output", kResponseData: "response_data",

	kCostOperation: "operation.cost", kCostUsage: "gen_ai.usage.cost", kCostUsageTotal: "gen_ai.usage.total_cost", kCostOI: "llm.cost.total", kCostLiteLLM1: "gen_ai.cost.total_cost", kCostLiteLLM2: "litellm.cost.total",
	kCostClaude: "cost_usd", kCostAgentgateway: "agw.ai.usage.cost.total", kCostSentry: "gen_ai.cost.total_tokens",

	kWebSearches: "gen_ai.usage.completion_token_details.num_search_queries", kWebSearchesOI: "gen_ai.usage.web_search_requests", kImages: "gen_ai.usage.images",

	kUserID: "user.id", kEndUser: "enduser.id", kLangfuseUser: "langfuse.user.id", kAIUser: "ai.telemetry.metadata.userId", kMastraUser: "mastra.metadata.userId", kMastraSession: "mastra.metadata.sessionId", kLLMUser: "llm.user", kGenAIRequestUser: "gen_ai.request.user", kGenAIUser: "gen_ai.user",
	kTraceloopUser: "traceloop.association.properties.user_id", kLiteLLMEndUser: "litellm.end_user.id", kLiteLLMMetaUser: "litellm.metadata.user_api_key_end_user_id", kLiteLLMMetaUser1: "metadata.user_api_key_end_user_id", kUserAccount: "user.account_uuid", kUserEmail: "user.email", kOIMetadata: "metadata",
	kTenantID: "tenant.id", kTenant: "tenant", kOrganization: "organization.id", kLiteLLMTeam: "litellm.team.id", kLiteLLMMetaTeam: "metadata.user_api_key_team_id", kBifrostTeam: "gen_ai.team_id", kBifrostCustomer: "gen_ai.customer_id",
	kTraceloopTenant: "traceloop.association.properties.tenant_id", kAITenant: "ai.telemetry.metadata.tenantId", kLangfuseTenant: "langfuse.trace.metadata.tenant_id",
	kConversation: "gen_ai.conversation.id", kSession: "session.id", kLangfuseSession: "langfuse.session.id", kLangfuseSessionMeta: "langfuse.trace.metadata.langfuse_session_id", kAISession: "ai.telemetry.metadata.sessionId", kSpringSession: "spring.ai.chat.client.conversation.id",
	kADKSession: "gcp.vertex.agent.session_id", kTraceloopSession: "traceloop.association.properties.session_id", kTraceloopThread: "traceloop.association.properties.thread_id",
	kAIFunction: "ai.telemetry.functionId", kLangfuseTraceName: "langfuse.trace.name", kPromptName: "gen_ai.prompt.name",
	kAgentName: "gen_ai.agent.name", kAgentNameOld: "agent_name", kAIAgent: "ai.agent.name", kOIAgent: "agent.name", kClaudeAgentID: "agent_id", kWorkflowName: "gen_ai.workflow.name", kTraceloopWorkflow: "traceloop.workflow.name",
	kAgentVersion: "gen_ai.agent.version", kTraceloopVersion: "traceloop.entity.version", kPromptVersion: "gen_ai.prompt.version", kLangfuseVersion: "langfuse.version", kLangfuseRelease: "langfuse.release", kServiceVersion: "service.version",
	kDeployEnv: "deployment.environment.name", kDeployEnvOld: "deployment.environment", kLangfuseEnv: "langfuse.environment",
	kPromptIDClaude: "prompt.id", kPromptIDGemini: "prompt_id", kADKInvocation: "gcp.vertex.agent.invocation_id",

	kToolName: "gen_ai.tool.name", kOIToolName: "tool.name", kAIToolName: "ai.toolCall.name", kTraceloopEntity: "traceloop.entity.name", kClaudeToolName: "tool_name", kGeminiToolName: "function_name",
	kToolArgs: "gen_ai.tool.call.arguments", kOIToolParams: "tool.parameters", kAIToolArgs: "ai.toolCall.args", kToolArguments: "tool_arguments", kOIInputValue: "input.value", kTraceloopInput: "traceloop.entity.input", kLangfuseInput: "langfuse.observation.input", kMCPArgs: "mcp.request.argument",
	kToolResult: "gen_ai.tool.call.result", kAIToolResult: "ai.toolCall.result", kTraceloopOutput: "traceloop.entity.output", kLangfuseOutput: "langfuse.observation.output", kOIOutputMime: "output.mime_type", kInputMessages: "gen_ai.input.messages",

	kErrorType: "error.type", kErrorTypeBifrost: "gen_ai.error.type", kErrorCodeBifrost: "gen_ai.error.code", kErrorCodeLiteLLM: "error_code", kErrorCodeLiteLLM2: "litellm.provider.error.code",
	kHTTPStatus: "http.response.status_code", kHTTPStatusOld: "http.status_code", kRPCStatus: "rpc.response.status_code", kGRPCStatus: "rpc.grpc.status_code",
	kFinishReasons: "gen_ai.response.finish_reasons", kFinishReason: "gen_ai.response.finish_reason", kAIFinish: "ai.response.finishReason", kLangfuseLevel: "langfuse.observation.level",
	kResendCount: "http.request.resend_count", kStainlessRetry: "http.request.header.x-stainless-retry-count", kStainlessRetryPy: "http.request.header.x_stainless_retry_count", kAttempt: "attempt", kRetryAttempt: "retry.attempt", kRetriesBifrost: "gen_ai.number_of_retries", kFallbackBifrost: "gen_ai.fallback_index", kTurns: "num_turns",
	kDeliveryPubSub: "messaging.gcp_pubsub.message.delivery_attempt", kDeliveryAttempt: "messaging.message.delivery_attempt", kDeliveryServiceBus: "messaging.servicebus.message.delivery_count", kDeliveryRabbit: "messaging.rabbitmq.message.redelivered", kCeleryRetries: "celery.retries", kStatusCode: "status_code",

	kHTTPMethod: "http.request.method", kHTTPMethodOld: "http.method", kURLFull: "url.full", kURLFullOld: "http.url", kURLPath: "url.path", kURLPathOld: "http.target",
	kDBSystem: "db.system.name", kDBSystemOld: "db.system", kDBOperation: "db.operation.name", kDBOperationOld: "db.operation", kDBCollection: "db.collection.name", kDBCollectionOld: "db.sql.table", kDBQuerySummary: "db.query.summary",
	kRPCSystem: "rpc.system.name", kRPCSystemOld: "rpc.system", kRPCService: "rpc.service", kRPCMethod: "rpc.method", kMessagingSystem: "messaging.system", kMessagingDestination: "messaging.destination.name", kMessagingOperation: "messaging.operation.type", kMessagingOperationOld: "messaging.operation",

	kAIUserAgent: "ai.request.headers.user-agent", kSDKName: "telemetry.sdk.name", kDistro: "telemetry.distro.name", kSpringKind: "spring.ai.kind", kSampledProbability: "sampling.probability", kCacheHit: "cache_hit", kServiceName: "service.name", kStreaming: "llm.is_streaming", kLangfuseAppRoot: "langfuse.internal.is_app_root", kDurationMS: "duration_ms", kSuccess: "success",
}

// Alias lists, first present wins.
var (
	providerKeys = []key{kProvider, kOIProvider, kAIProvider, kSystem, kOISystem}
	modelKeys    = []key{kResponseModel, kOIResponseModel, kAIResponseModel, kLangfuseModel, kOIModel, kOIEmbeddingModel, kOIRerankModel, kRequestModel, kLLMRequestModel, kAIModel, kLiteLLMModel, kBareModel}
	requestKeys  = []key{kRequestModel, kLLMRequestModel, kAIModel, kLangfuseModel, kOIModel, kOIEmbeddingModel, kBareModel}
	responseKeys = []key{kResponseID, kAIResponseID}
	requestIDs   = []key{kRequestID, kAnthropicRequestID}
	toolCallKeys = []key{kToolCallID, kOIToolCallID, kOIToolID, kAIToolCallID, kToolUseID}
	toolKeys     = []key{kToolName, kOIToolName, kAIToolName, kClaudeToolName, kTraceloopEntity, kGeminiToolName}
	argKeys      = []key{kToolArgs, kAIToolArgs, kOIToolParams, kToolArguments, kMCPArgs, kOIInputValue, kTraceloopInput, kLangfuseInput}
	resultKeys   = []key{kToolResult, kAIToolResult, kOIOutputValue, kTraceloopOutput, kLangfuseOutput}
	servedTier   = []key{kTierOpenAIResponse, kTierGenAIOpenAIResponse, kTierResponse, kTierAnthropicResponse}
	askedTier    = []key{kTierOpenAIRequest, kTierGenAIOpenAIRequest, kTierRequest}
	costKeys     = []key{kCostOperation, kCostUsage, kCostUsageTotal, kCostOI, kCostLiteLLM1, kCostLiteLLM2, kCostClaude, kCostAgentgateway, kCostSentry}
	errorKeys    = []key{kErrorType, kErrorTypeBifrost, kErrorCodeBifrost, kErrorCodeLiteLLM2, kErrorCodeLiteLLM}
	tenantKeys   = []key{kTenantID, kTenant, kOrganization, kLiteLLMTeam, kLiteLLMMetaTeam, kBifrostCustomer, kBifrostTeam, kTraceloopTenant, kAITenant, kLangfuseTenant}
	runKeys      = []key{kPromptIDClaude, kPromptIDGemini, kADKInvocation}
)

// dimKeys are the dialects' own attributes for each identity dimension but run,
// which has rules of its own.
var dimKeys = [...][]key{
	nil,
	{kUserID, kEndUser, kLangfuseUser, kAIUser, kMastraUser, kLLMUser, kGenAIRequestUser, kGenAIUser, kTraceloopUser, kLiteLLMEndUser, kLiteLLMMetaUser, kLiteLLMMetaUser1, kUserAccount, kUserEmail, kUserWords},
	{kAIFunction, kPromptName},
	{kWorkflowName, kTraceloopWorkflow, kLangfuseTraceName},
	{kAgentVersion, kTraceloopVersion, kPromptVersion, kLangfuseVersion, kLangfuseRelease},
	{kAgentName, kAgentNameOld, kAIAgent, kOIAgent, kClaudeAgentID},
	{kConversation, kSession, kLangfuseSession, kLangfuseSessionMeta, kAISession, kMastraSession, kSpringSession, kADKSession, kTraceloopSession, kTraceloopThread, kSessionWords},
	nil,
	nil,
	{kDeployEnv, kDeployEnvOld, kLangfuseEnv},
}
