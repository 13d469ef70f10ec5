package price

import (
	"strings"
	"time"
)

// neutral are router labels that do not change the price. Others, such as
// ":free", name products of their own.
var neutral = map[string]bool{"beta": true, "latest": true, "default": true, "extended": true, "nitro": true, "floor": true, "online": false}

// routers are the providers' names that stand before a model's and a colon.
var routers = map[string]bool{"openai": true, "openai_chat": true, "openai_responses": true, "anthropic": true, "azure": true, "azure_openai": true, "azure_ai": true, "bedrock": true, "bedrock_converse": true, "google": true, "google_gla": true, "google_vertex": true, "google_genai": true, "google_vertexai": true, "google_anthropic_vertex": true, "vertexai": true, "gemini": true, "groq": true, "mistral": true, "mistralai": true, "cohere": true, "deepseek": true, "xai": true, "grok": true, "together": true, "fireworks": true, "openrouter": true, "huggingface": true, "moonshotai": true, "cerebras": true, "perplexity": true, "nvidia": true, "litellm": true, "vercel": true, "github": true, "ollama": true}

// Candidates are the names a model may be listed under, most specific first.
// Only whole names are ever compared: a new name never matches an older model's
// line because it starts like it.
func Candidates(provider, model string) []string {
	m := strings.ToLower(strings.TrimSpace(model))
	var out []string
	add := func(s string) {
		if s == "" {
			return
		}
		for _, o := range out {
			if o == s {
				return
			}
		}
		out = append(out, s)
	}
	add(m)
	if strings.HasPrefix(m, "ft:") {
		if parts := strings.SplitN(m, ":", 3); len(parts) > 1 {
			base := parts[1]
			add("ft:" + base)
			add("ft:" + dropDate(base))
		}
		return out
	}
	if strings.HasPrefix(m, "arn:") {
		if strings.Contains(m, ":application-inference-profile/") {
			return out // names no model: only an alias can tell
		}
		region := strings.Split(m, ":")
		if i := strings.LastIndexByte(m, '/'); i >= 0 {
			m = m[i+1:]
		} else {
			m = m[strings.LastIndexByte(m, ':')+1:]
		}
		if len(region) > 3 && region[3] != "" {
			add(region[3] + "/" + m) // a line of that region alone
		}
		add(m)
	}
	// Router prefixes and publisher paths, one segment after the other.
	for {
		// pydantic-ai and LangChain write the provider before a colon.
		if i := strings.IndexByte(m, ':'); i > 0 && routers[strings.ReplaceAll(m[:i], "-", "_")] {
			m = m[i+1:]
		}
		for _, s := range variants(m) {
			add(s)
		}
		i := strings.IndexByte(m, '/')
		if i < 0 {
			break
		}
		m = m[i+1:]
	}
	if provider == "bedrock" || strings.Contains(m, ".") {
		geo, base := bedrock(m)
		if base != m || provider == "bedrock" {
			region := "regional"
			if geo == "global" {
				region = "global"
			}
			vendorless := base
			if i := strings.IndexByte(base, '.'); i > 0 && bedrockVendors[base[:i]] {
				vendorless = base[i+1:]
			}
			for _, b := range []string{base, dropVersion(base), dropDate(dropVersion(base)), vendorless, dropVersion(vendorless), dropDate(dropVersion(vendorless))} {
				add(region + "." + b)
			}
			for _, b := range []string{base, dropVersion(base), dropDate(dropVersion(base)), vendorless, dropVersion(vendorless), dropDate(dropVersion(vendorless))} {
				if provider == "bedrock" {
					add(b)
				}
			}
		}
	}
	return out
}

// Canonical is the model's name for reports: without router, geography, version
// and date.
func Canonical(provider, model string) string {
	c := Candidates(provider, model)
	if len(c) == 0 {
		return ""
	}
	return c[len(c)-1]
}

// variants lists a single path segment's spellings.
func variants(m string) []string {
	out := []string{m}
	base := m
	if i := strings.IndexByte(base, '['); i > 0 && strings.HasSuffix(base, "]") { // a context label
		base = base[:i]
		out = append(out, base)
	}
	if i := strings.LastIndexByte(base, ':'); i > 0 && neutral[base[i+1:]] {
		base = base[:i]
		out = append(out, base)
	}
	if i := strings.IndexByte(base, '@'); i > 0 {
		if label := base[i+1:]; neutral[label] {
			base = base[:i]
		} else {
			base = base[:i] + "-" + label
		}
		out = append(out, base)
	}
	if d := dropDate(base); d != base {
		out = append(out, d)
	}
	return out
}

// dropDate removes a trailing -YYYY-MM-DD or -YYYYMMDD if it is a real date.
func dropDate(m string) string {
	for _, layout := range [...]string{"2006-01-02", "20060102"} {
		i := len(m) - len(layout) - 1
		if i > 0 && m[i] == '-' {
			if d, err := time.Parse(layout, m[i+1:]); err == nil && d.Year() >= 2015 && d.Year() < 2100 {
				return m[:i]
			}
		}
	}
	return m
}

// dropVersion removes a Bedrock version such as -v1:0. A later one than the first is
// another model, unless the date before it says which.
func dropVersion(m string) string {
	i := strings.LastIndex(m, "-v")
	if i <= 0 {
		return m
	}
	if rest := m[i+2:]; rest != "1" && !strings.HasPrefix(rest, "1:") && dropDate(m[:i]) == m[:i] {
		return m
	}
	for j, c := range m[i+2:] {
		if (c < '0' || c > '9') && (c != ':' || j == 0) {
			return m
		}
	}
	if len(m) == i+2 {
		return m
	}
	return m[:i]
}

var bedrockGeos = map[string]bool{"us": true, "eu": true, "apac": true, "global": true, "us-gov": true, "au": true, "jp": true, "ca": true, "sa": true, "in": true, "me": true, "af": true, "mx": true, "il": true, "uk": true, "regional": true}

var bedrockVendors = map[string]bool{"anthropic": true, "amazon": true, "meta": true, "mistral": true, "cohere": true, "ai21": true, "deepseek": true, "openai": true, "qwen": true, "stability": true, "writer": true, "google": true, "minimax": true, "moonshot": true, "moonshotai": true, "nvidia": true, "twelvelabs": true, "luma": true, "zai": true}

// bedrock splits the geography off an inference profile's name.
func bedrock(m string) (geo, base string) {
	i := strings.IndexByte(m, '.')
	if i <= 0 || !bedrockGeos[m[:i]] {
		return "", m
	}
	return m[:i], m[i+1:]
}
