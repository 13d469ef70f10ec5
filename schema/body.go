package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// bodyLimit bounds what a request to the API may say.
const bodyLimit = 1 << 20

// ReadBody reads the JSON object that a request carries, strictly: unknown fields, a
// second value and anything that is no object are mistakes. No body is an empty object.
// The error says what is wrong, for the caller.
func ReadBody(w http.ResponseWriter, r *http.Request, v any) error {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyLimit))
	if err != nil {
		return fmt.Errorf("the body cannot be read: %w", err)
	}
	if b = bytes.TrimLeft(b, " \t\r\n"); len(b) == 0 {
		return nil
	}
	if b[0] != '{' {
		return errors.New("the body has to be a JSON object")
	}
	if err := noNullItems(json.NewDecoder(bytes.NewReader(b))); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return errors.New("the body cannot be read: " + strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("the body goes on after its JSON object")
	}
	return nil
}

// noNullItems refuses null in a list, which would decode into an empty item. What is no
// JSON is left to the caller.
func noNullItems(d *json.Decoder) error {
	var lists []bool // whether what is open is a list
	for {
		t, err := d.Token()
		switch {
		case err != nil:
			return nil
		case t == json.Delim('['), t == json.Delim('{'):
			lists = append(lists, t == json.Delim('['))
		case t == json.Delim(']'), t == json.Delim('}'):
			lists = lists[:len(lists)-1]
		case t == nil && len(lists) > 0 && lists[len(lists)-1]:
			return errors.New("the body has null in a list; leave it out")
		}
	}
}
