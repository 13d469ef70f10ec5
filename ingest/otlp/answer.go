package otlp

import (
	"encoding/json"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// The answers of the three services have one form: partial_success = 1 {rejected_x = 1, error_message = 2}. They are
// written by hand, since pdata always writes an empty partial_success and OTLP wants it unset on full success.

// answerProto is the response message.
func answerProto(res Result) []byte {
	if res.Rejected == 0 && res.Reasons == "" {
		return nil
	}
	var partial []byte
	if res.Rejected != 0 {
		partial = protowire.AppendTag(partial, 1, protowire.VarintType)
		partial = protowire.AppendVarint(partial, uint64(res.Rejected))
	}
	if res.Reasons != "" {
		partial = protowire.AppendTag(partial, 2, protowire.BytesType)
		partial = protowire.AppendString(partial, res.Reasons)
	}
	return appendMessage(nil, 1, partial)
}

// answerJSON is the response in protobuf's JSON, in which 64-bit integers are strings.
func answerJSON(sig signal, res Result) []byte {
	if res.Rejected == 0 && res.Reasons == "" {
		return []byte("{}")
	}
	out := []byte(`{"partialSuccess":{`)
	if res.Rejected != 0 {
		name := [...]string{"rejectedSpans", "rejectedLogRecords", "rejectedDataPoints"}[sig]
		out = append(out, `"`+name+`":"`+strconv.FormatInt(res.Rejected, 10)+`"`...)
	}
	if res.Reasons != "" {
		if res.Rejected != 0 {
			out = append(out, ',')
		}
		msg, err := json.Marshal(res.Reasons)
		if err != nil {
			panic("BUG: encode a string: " + err.Error())
		}
		out = append(append(out, `"errorMessage":`...), msg...)
	}
	return append(out, "}}"...)
}
