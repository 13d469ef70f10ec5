package dialect

import (
	"strings"

	"github.com/flyball/flyball/schema"
)

// vendor is whose model it is, by its name: it decides the shape of usage, and
// stands in where no provider is named.
func vendor(model string) string {
	m := strings.ToLower(model)
	m = m[strings.LastIndexByte(m, '/')+1:]
	switch {
	case strings.Contains(m, "claude"):
		return "anthropic"
	case strings.HasPrefix(m, "gpt-"), strings.HasPrefix(m, "o1"), strings.HasPrefix(m, "o3"), strings.HasPrefix(m, "o4"), strings.HasPrefix(m, "text-embedding-"), strings.HasPrefix(m, "chatgpt"), strings.HasPrefix(m, "whisper"), strings.HasPrefix(m, "tts-"), strings.HasPrefix(m, "dall-e"), strings.HasPrefix(m, "codex"):
		return "openai"
	case strings.Contains(m, "gemini"), strings.HasPrefix(m, "text-embedding-00"):
		return "google"
	case strings.HasPrefix(m, "grok"):
		return "xai"
	case strings.HasPrefix(m, "deepseek"):
		return "deepseek"
	case strings.HasPrefix(m, "mistral"), strings.HasPrefix(m, "codestral"), strings.HasPrefix(m, "ministral"), strings.HasPrefix(m, "magistral"):
		return "mistral"
	case strings.HasPrefix(m, "command-"), strings.HasPrefix(m, "rerank-"):
		return "cohere"
	case strings.HasPrefix(m, "amazon."), strings.HasPrefix(m, "nova-"), strings.Contains(m, ".nova-"):
		return "amazon"
	case strings.HasPrefix(m, "kimi"), strings.HasPrefix(m, "moonshot"):
		return "moonshot"
	}
	return ""
}

// model fills provider, model names, tier and ids of a model-like record.
func (rec *record) model(c *schema.Call) {
	c.Model = rec.cut(rec.first(modelKeys), 128)
	c.RequestedModel = rec.cut(rec.first(requestKeys), 128)
	if c.Model == "" && rec.str(kGenkitSubtype) != "" {
		c.RequestedModel = rec.cut(rec.str(kGenkitName), 128)
		if c.Model = rec.cut(rec.genkitAnswer().Get("raw.model").String(), 128); c.Model == "" {
			c.Model = c.RequestedModel
		}
	}
	if lm := rec.str(kLiteLLMModel); lm != "" && c.Model == c.RequestedModel {
		c.Model = rec.cut(lm, 128)
	}
	for _, k := range providerKeys {
		if c.Provider = rec.cut(schema.Provider(rec.str(k)), 64); c.Provider != "" {
			break
		}
	}
	// A router prefix or a Bedrock id names the host better than a framework does.
	// So it does than a vendor, whom some clients name wherever his models are hosted.
	switch c.Provider {
	case "", "litellm_proxy":
		c.Provider = providerOfModel(c.Model, c.RequestedModel)
	case "openai": // whose SDK its instrumentation names, whoever answers
		if strings.HasPrefix(c.Model, "gpt-") {
			break
		}
		if h := modelHost(strings.ToLower(rec.str(kServerAddress))); h != "" {
			c.Provider = h
		} else if v := vendor(c.Model); v == "anthropic" || v == "google" || v == "xai" { // whose models nobody else has
			c.Provider = v
		}
	case "anthropic", "cohere", "mistral", "meta", "amazon", "ai21":
		if providerOfModel(c.Model, c.RequestedModel) == "bedrock" {
			c.Provider = "bedrock"
		}
	}
	if c.Provider == "" {
		if h := rec.str(kServerAddress); h != "" {
			c.Provider = modelHost(strings.ToLower(h))
		}
	}
	if c.Provider == "" {
		if c.Provider = vendor(c.Model); c.Provider == "" {
			c.Provider = vendor(c.RequestedModel)
		}
		if c.Provider == "amazon" {
			c.Provider = "bedrock"
		}
	}
	// LiteLLM's name of the route: its client's record of the call has the model alone.
	if rec.has(kLiteLLMModel) {
		c.Model = strings.TrimPrefix(c.Model, c.Provider+"/")
	}
	if c.Role&schema.RoleRefinesParent != 0 {
		c.Provider, c.Model, c.RequestedModel = rec.cut(schema.Provider(rec.rawProvider), 64), rec.cut(rec.rawModel, 128), rec.cut(rec.rawModel, 128)
	}
	c.ResponseID = rec.cut(rec.first(responseKeys), 128)
	if c.ResponseID == "" && c.Role&schema.RoleRefinesParent != 0 {
		c.ResponseID = rec.cut(rec.rawID, 128)
	}
	c.AltResponseID = rec.cut(rec.first(requestIDs), 128)
	if strings.HasPrefix(c.ResponseID, "req_") && (c.AltResponseID == "" || c.AltResponseID == c.ResponseID) { // a request id under the response's name
		c.ResponseID, c.AltResponseID = "", c.ResponseID
	}
	if c.ServiceTier = rec.cut(tierName(rec.first(servedTier)), 32); c.ServiceTier == "" {
		c.ServiceTier = rec.cut(tierName(rec.first(askedTier)), 32)
	}
	if c.Role&schema.RoleRefinesParent != 0 {
		c.ServiceTier = rec.cut(tierName(rec.rawTier), 32)
	} else if p := rec.str(kOIParameters); c.ServiceTier == "" && strings.Contains(p, `"service_tier"`) {
		c.ServiceTier = rec.cut(tierName(parseBlob(p).Get("service_tier").String()), 32)
	}
	if c.ServiceTier == "" && rec.str(kSpeed) == "fast" {
		c.ServiceTier = "fast"
	}
	if c.Identity[schema.Mode] == "" && c.ServiceTier == "batch" {
		c.Identity[schema.Mode] = "batch"
	}
}

func providerOfModel(models ...string) string {
	for _, m := range models {
		m = strings.ToLower(m)
		if strings.HasPrefix(m, "arn:aws") && strings.Contains(m, ":bedrock:") { // of whichever partition
			return "bedrock"
		}
		if i := strings.IndexAny(m, "/:"); i > 0 {
			if p, ok := schema.ProviderSpelled(m[:i]); ok {
				return p
			}
		}
		for _, v := range [...]string{"anthropic.", "amazon.", "meta.", "cohere.", "mistral.", "ai21."} {
			if i := strings.Index(m, v); i == 0 || i > 0 && m[i-1] == '.' {
				return "bedrock"
			}
		}
	}
	return ""
}

// modelHost is the provider behind a host name, "" for every other host.
func modelHost(host string) string {
	switch host {
	case "api.openai.com":
		return "openai"
	case "api.anthropic.com":
		return "anthropic"
	case "generativelanguage.googleapis.com", "aiplatform.googleapis.com":
		return "google"
	case "api.mistral.ai":
		return "mistral"
	case "api.deepseek.com":
		return "deepseek"
	case "api.groq.com":
		return "groq"
	case "api.x.ai":
		return "xai"
	case "openrouter.ai":
		return "openrouter"
	case "api.cohere.com", "api.cohere.ai":
		return "cohere"
	case "api.perplexity.ai":
		return "perplexity"
	case "api.together.xyz", "api.together.ai":
		return "together"
	case "api.fireworks.ai":
		return "fireworks"
	case "api.moonshot.cn", "api.moonshot.ai":
		return "moonshot"
	case "api.cerebras.ai":
		return "cerebras"
	case "api.voyageai.com":
		return "voyageai"
	}
	switch {
	case strings.HasSuffix(host, ".openai.azure.com"), strings.HasSuffix(host, ".services.ai.azure.com"), strings.HasSuffix(host, ".cognitiveservices.azure.com"):
		return "azure"
	case strings.Contains(host, "bedrock-runtime") && (strings.HasSuffix(host, ".amazonaws.com") || strings.HasSuffix(host, ".amazonaws.com.cn") || strings.HasSuffix(host, ".api.aws")):
		return "bedrock"
	case strings.HasSuffix(host, ".api.openai.com"):
		return "openai"
	case strings.HasSuffix(host, "-aiplatform.googleapis.com"), strings.HasPrefix(host, "aiplatform.") && strings.HasSuffix(host, ".googleapis.com"):
		return "google"
	}
	return ""
}
