package schema

import "strings"

// providers maps the spellings in use to the canonical provider: the host that
// bills, not the vendor whose model it is. Calls and price lines meet in it.
var providers = map[string]string{
	"openai": "openai", "chatopenai": "openai", "openai_chat": "openai", "openai_responses": "openai", "azure": "azure", "azure.ai.openai": "azure", "az.ai.openai": "azure", "azure.openai": "azure", "azure.ai.inference": "azure", "az.ai.inference": "azure", "azure_openai": "azure", "azure_ai": "azure", "azure-openai": "azure", "azureopenai": "azure", "azurechatopenai": "azure", "microsoft.foundry": "azure",
	"anthropic": "anthropic", "chatanthropic": "anthropic", "anthropic_messages": "anthropic", "aws.anthropic": "bedrock", "gcp.anthropic": "google",
	"bedrock": "bedrock", "aws.bedrock": "bedrock", "aws": "bedrock", "bedrock_converse": "bedrock", "amazon-bedrock": "bedrock", "amazon_bedrock": "bedrock",
	"google": "google", "gcp.gemini": "google", "gcp.vertex_ai": "google", "gcp.gen_ai": "google", "vertex_ai": "google", "vertexai": "google", "google_genai": "google", "gemini": "google", "google.vertex": "google", "google_vertexai": "google", "google-gla": "google", "google-vertex": "google", "google_ai_studio": "google", "google.generative-ai": "google", "vertex_ai_beta": "google", "google-cloud": "google", "google_gemini": "google", "google_gla": "google", "chatgooglegenerativeai": "google", "googlegenerativeai": "google", "google_ai": "google",
	"xai": "xai", "x_ai": "xai", "x-ai": "xai", "mistral": "mistral", "mistral_ai": "mistral", "mistralai": "mistral", "moonshot": "moonshot", "moonshot_ai": "moonshot", "moonshotai": "moonshot",
	"deepseek": "deepseek", "groq": "groq", "cohere": "cohere", "perplexity": "perplexity", "together": "together", "together_ai": "together", "fireworks": "fireworks", "fireworks_ai": "fireworks", "cerebras": "cerebras", "openrouter": "openrouter", "ollama": "ollama", "ibm.watsonx.ai": "watsonx", "watsonx": "watsonx", "voyageai": "voyageai", "voyage": "voyageai", "novita": "novita", "zai": "zai", "zhipuai": "zhipuai", "minimax": "minimax", "huggingface": "huggingface", "replicate": "replicate", "nvidia": "nvidia", "databricks": "databricks", "cloudflare": "cloudflare", "github": "github", "alibaba": "alibaba", "qwen": "alibaba", "dashscope": "alibaba", "baseten": "baseten", "vllm": "vllm",
	"text_completion_openai": "openai", "cohere_chat": "cohere", "fireworks_ai_embedding_models": "fireworks", "nvidia_nim": "nvidia", "meta_llama": "meta", "github_copilot": "github-copilot",
}

// frameworks name the emitter where a provider was asked for.
var frameworks = map[string]bool{"strands-agents": true, "strands": true, "langchain": true, "langgraph": true, "crewai": true, "spring_ai": true, "openai_agents": true, "claude_agent_sdk": true, "gcp.vertex.agent": true, "litellm": true, "llamaindex": true, "llama_index": true, "haystack": true, "autogen": true, "microsoft.agent_framework": true, "agent_framework": true, "pydantic_ai": true, "pydantic-ai": true, "mastra": true, "agno": true, "smolagents": true, "dspy": true, "semantic_kernel": true, "vercel": true, "gateway": true, "_other": true, "unknown": true}

var dashes = strings.NewReplacer(" ", "_", "-", "_")

// ProviderSpelled is the canonical provider of a known spelling in lower case.
func ProviderSpelled(s string) (name string, known bool) {
	name, known = providers[s]
	return name, known
}

// Provider is the canonical name of a provider. What nobody has a spelling of stands
// for itself in lower case; the empty string and the name of a framework are "".
func Provider(s string) string {
	if p, ok := providers[s]; ok {
		return p
	}
	s = strings.ToLower(strings.TrimSpace(s))
	if s == "" || frameworks[s] {
		return ""
	}
	if p, ok := providers[s]; ok {
		return p
	}
	if i := strings.IndexByte(s, '.'); i > 0 { // the AI SDK's openai.chat, anthropic.messages
		if p, ok := providers[s[:i]]; ok {
			return p
		}
	}
	// Words of the same name, with blanks or other dashes between them, and a vendor's models
	// at another host, which bills them.
	w := dashes.Replace(s)
	if p, ok := providers[w]; ok {
		return p
	}
	switch {
	case strings.Contains(w, "vertex"):
		return "google"
	case strings.Contains(w, "bedrock"):
		return "bedrock"
	case strings.Contains(w, "azure"):
		return "azure"
	}
	return s
}
