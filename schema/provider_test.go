package schema

import "testing"

// Calls and price lines meet in the canonical name, whoever spelled it.
func TestProvider(t *testing.T) {
	f := func(spelling, want string) {
		t.Helper()
		got := Provider(spelling)
		if got != want {
			t.Errorf("%q: got %q, want %q", spelling, got, want)
		}
		if again := Provider(got); again != got {
			t.Errorf("%q: the canonical name %q becomes %q", spelling, got, again)
		}
	}
	f("openai", "openai")
	f("OpenAI ", "openai")
	f("openai.chat", "openai")
	f("text-completion-openai", "openai")
	f("azure.ai.openai", "azure")
	f("Azure OpenAI", "azure")
	f("x_ai", "xai")
	f("together_ai", "together")
	f("fireworks_ai-embedding-models", "fireworks")
	f("vertex_ai-anthropic_models", "google")
	f("bedrock_mantle", "bedrock")
	f("github_copilot", "github-copilot")
	f("house-gateway", "house-gateway")
	f("langchain", "")
	f("", "")
}
