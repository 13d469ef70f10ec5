package limiter

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

// settled sends an answer through the meter and returns what the lease was settled
// with. read is how the answer is read.
func settled(t *testing.T, l *Limiter, ends chan string, path, kind string, body io.Reader, read func(io.ReadCloser)) string {
	t.Helper()
	base := roundTrip(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(body), Request: r}, nil
	})
	resp, err := l.Transport(TransportOptions{Base: base, Lease: true}).RoundTrip(post(path, `{"model":"m"}`))
	if err != nil {
		t.Fatal(err)
	}
	read(resp.Body)
	_ = resp.Body.Close()
	return strings.TrimPrefix(<-ends, "settle ")
}

const (
	chatPath, messagesPath, geminiPath = "/v1/chat/completions", "/v1/messages", "/v1beta/models/g:generateContent"
	jsonType, streamType               = "application/json", "text/event-stream; charset=utf-8"
)

func sse(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString("data: " + e + "\n\n")
	}
	return b.String()
}

const (
	openAIStream    = `{"id":"c-1","model":"m-1","choices":[{"delta":{"content":"\"usage\":{\"prompt_tokens\":9}"}}],"usage":null}`
	openAILast      = `{"id":"c-1","model":"m-1","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":60},"completion_tokens_details":{"reasoning_tokens":5}}}`
	anthropicStart  = `{"type":"message_start","message":{"id":"msg-1","model":"c-1","usage":{"input_tokens":10,"cache_read_input_tokens":30,"cache_creation_input_tokens":50,"cache_creation":{"ephemeral_5m_input_tokens":40,"ephemeral_1h_input_tokens":10},"output_tokens":1}}}`
	anthropicDelta  = `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":25}}`
	geminiChunk     = `{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"promptTokenCount":12,"candidatesTokenCount":1},"modelVersion":"g-1","responseId":"g-r"}`
	geminiLast      = `{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":12,"cachedContentTokenCount":4,"candidatesTokenCount":7,"thoughtsTokenCount":3,"toolUsePromptTokenCount":2},"modelVersion":"g-1","responseId":"g-r"}`
	openAIWant      = `{"tokens":{"cache_read":60,"input":40,"output":20,"reasoning":5},"model":"m-1","provider":"openai","response_id":"c-1"}`
	anthropicWant   = `{"tokens":{"cache_read":30,"cache_write_1h":10,"cache_write_5m":40,"input":10,"output":25},"model":"c-1","provider":"anthropic","response_id":"msg-1"}`
	geminiWant      = `{"tokens":{"cache_read":4,"input":10,"output":10,"reasoning":3},"model":"g-1","provider":"google","response_id":"g-r"}`
	openAIUnknown   = `{"model":"m-1","provider":"openai","response_id":"c-1"}`
	anthropicSoFar  = `{"model":"c-1","provider":"anthropic","response_id":"msg-1"}`
	geminiSoFar     = `{"model":"g-1","provider":"google","response_id":"g-r"}`
	responsesEvent  = `{"type":"response.completed","response":{"id":"resp-1","model":"m-1","output":[{"id":"msg"}],"usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":60},"output_tokens":20,"output_tokens_details":{"reasoning_tokens":5},"total_tokens":120}}}`
	responsesBegins = `{"type":"response.created","response":{"id":"resp-1","model":"m-1","usage":null}}`
)

// TestUsage reads the usage off each provider's answers, whole and cut at any byte.
func TestUsage(t *testing.T) {
	l, ends := service(t, grant)
	f := func(what, path, kind, body, want string) {
		t.Helper()
		all := func(r io.ReadCloser) {
			if b, err := io.ReadAll(r); err != nil || string(b) != body {
				t.Errorf("%s: the answer is not intact: %v", what, err)
			}
		}
		readers := []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.HalfReader, iotest.DataErrReader}
		if len(body) < 4096 {
			readers = append(readers, iotest.OneByteReader)
		}
		for i, r := range readers {
			if got := settled(t, l, ends, path, kind, r(strings.NewReader(body)), all); got != want {
				t.Errorf("%s, reader %d: settled with %s\nwant %s", what, i, got, want)
			}
		}
	}
	f("OpenAI", chatPath, jsonType, openAILast, openAIWant)
	f("OpenAI, spoken", chatPath, jsonType, `{"id":"c-1","model":"m-1","usage":{"prompt_tokens":100,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":10,"audio_tokens":30},"completion_tokens_details":{"audio_tokens":15}}}`, `{"tokens":{"cache_read":10,"input":60,"input_audio":30,"output":5,"output_audio":15},"model":"m-1","provider":"openai","response_id":"c-1"}`)
	f("OpenAI embeddings", "/v1/embeddings", jsonType, `{"data":["`+strings.Repeat("0.123,", keepTail)+`"],"model":"m-1","usage":{"prompt_tokens":7,"total_tokens":7}}`, `{"tokens":{"input":7},"provider":"openai"}`)
	f("OpenAI responses", "/v1/responses", jsonType, `{"id":"resp-1","model":"m-1","usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":60},"output_tokens":20,"output_tokens_details":{"reasoning_tokens":5}}}`, strings.Replace(openAIWant, "c-1", "resp-1", 1))
	f("Anthropic", messagesPath, jsonType, `{"id":"msg-1","model":"c-1","usage":{"input_tokens":10,"cache_read_input_tokens":30,"cache_creation_input_tokens":50,"cache_creation":{"ephemeral_1h_input_tokens":10},"output_tokens":25}}`, anthropicWant)
	f("Gemini", geminiPath, jsonType, geminiLast, geminiWant)
	f("Gemini list", geminiPath, jsonType, "["+geminiChunk+",\r\n"+geminiLast+"]", `{"tokens":{"cache_read":4,"input":10,"output":10,"reasoning":3},"provider":"google"}`)
	f("an id that is a number", chatPath, jsonType, `{"id":5,"model":"m-1","usage":{"prompt_tokens":3,"completion_tokens":4}}`, `{"tokens":{"input":3,"output":4},"model":"m-1","provider":"openai"}`)
	f("figures that are none", chatPath, jsonType, `{"id":"c-1","model":"m-1","usage":{"prompt_tokens":-3,"completion_tokens":"4","x":1e300}}`, openAIUnknown)
	f("no usage", chatPath, jsonType, `{"id":"c-1","model":"m-1"}`, openAIUnknown)
	f("no JSON", chatPath, jsonType, `<html>"usage":`, `{"provider":"openai"}`)
	f("empty", chatPath, jsonType, ``, `{"provider":"openai"}`)

	f("OpenAI stream", chatPath, streamType, sse(openAIStream, openAIStream, openAILast, "[DONE]"), openAIWant)
	f("OpenAI stream, CRLF", chatPath, streamType, strings.ReplaceAll(sse(openAIStream, openAILast, "[DONE]"), "\n", "\r\n"), openAIWant)
	f("OpenAI stream without usage", chatPath, streamType, sse(openAIStream, openAIStream, "[DONE]"), openAIUnknown)
	f("OpenAI stream, last line without an end", chatPath, streamType, strings.TrimSpace(sse(openAIStream, openAILast)), openAIWant)
	f("OpenAI responses stream", "/v1/responses", streamType, "event: response.created\n"+sse(responsesBegins)+"event: response.completed\n"+sse(responsesEvent), strings.Replace(openAIWant, "c-1", "resp-1", 1))
	f("OpenAI responses stream with an image", "/v1/responses", streamType, sse(responsesBegins, strings.Replace(responsesEvent, `"msg"`, `"`+strings.Repeat("iVBOR", keepTail/2)+`"`, 1)), strings.Replace(openAIWant, "c-1", "resp-1", 1))
	f("Anthropic stream", messagesPath, streamType, "event: message_start\n"+sse(anthropicStart)+sse(`{"type":"ping"}`, anthropicDelta, `{"type":"message_stop"}`), anthropicWant)
	f("Gemini stream", geminiPath, streamType, strings.ReplaceAll(sse(geminiChunk, geminiLast), "\n", "\r\n"), geminiWant)
	f("Gemini stream that was blocked", geminiPath, streamType, sse(`{"promptFeedback":{"blockReason":"X"},"usageMetadata":{"promptTokenCount":12},"modelVersion":"g-1","responseId":"g-r"}`), `{"tokens":{"input":12},"model":"g-1","provider":"google","response_id":"g-r"}`)
}

// TestUsageCutOff holds what was reserved for a stream that ended before its usage:
// what it said by then is not what it costs.
func TestUsageCutOff(t *testing.T) {
	l, ends := service(t, grant)
	f := func(what, path, body string, n int, want string) {
		t.Helper()
		part := func(r io.ReadCloser) { _, _ = io.ReadFull(r, make([]byte, n)) }
		if got := settled(t, l, ends, path, streamType, strings.NewReader(body), part); got != want {
			t.Errorf("%s: settled with %s\nwant %s", what, got, want)
		}
	}
	a := sse(openAIStream)
	f("OpenAI", chatPath, a+a+sse(openAILast), len(a), openAIUnknown)
	f("OpenAI, in the middle of its usage", chatPath, a+sse(openAILast), len(a)+len(openAILast)-10, openAIUnknown)
	f("OpenAI, after its usage", chatPath, a+sse(openAILast, "[DONE]"), len(a)+len(sse(openAILast)), openAIWant)
	b := sse(anthropicStart)
	f("Anthropic", messagesPath, b+sse(anthropicDelta), len(b), anthropicSoFar)
	f("Anthropic, after its usage", messagesPath, b+sse(anthropicDelta, `{"type":"message_stop"}`), len(b)+len(sse(anthropicDelta)), anthropicWant)
	c := sse(geminiChunk)
	f("Gemini", geminiPath, c+sse(geminiLast), len(c), geminiSoFar)
	f("Gemini, after its usage", geminiPath, c+sse(geminiLast, "{}"), len(c)+len(sse(geminiLast)), geminiWant)
	f("nothing", chatPath, a, 0, `{"provider":"openai"}`)
}

// TestUsageCloseWhileRead settles once, however a stream ends.
func TestUsageCloseWhileRead(t *testing.T) {
	l, ends := service(t, grant)
	for range 20 {
		pr, pw := io.Pipe()
		base := roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {streamType}}, Body: pr}, nil
		})
		resp, err := l.Transport(TransportOptions{Base: base, Lease: true}).RoundTrip(post(chatPath, `{"model":"m"}`))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { defer close(done); _, _ = io.Copy(io.Discard, resp.Body) }()
		go func() { _, _ = fmt.Fprint(pw, sse(openAIStream, openAILast)); _ = pw.Close() }()
		_ = resp.Body.Close()
		<-done
		ended(t, ends, "settle")
	}
	if len(ends) != 0 {
		t.Errorf("%d leases were settled twice", len(ends))
	}
}
