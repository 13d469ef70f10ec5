package trace

import (
	"fmt"

	"github.com/flyball/flyball/schema"
)

// Forget puts a pseudonym in the place of a user's id in every trace in memory, and in
// everything that comes in from now on, is read from the store or the journal, or is
// replayed; nil ends that. What stands for the user is changed without an entry: the
// journal is to change in the same way.
func (a *Assembler) Forget(f *schema.Forgetting) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forget = f
	if f == nil {
		return nil
	}
	for key, t := range a.traces {
		if key.tenant != f.Tenant {
			continue
		}
		f.Rename(key.tenant, &t.level[schema.User])
		renamed := false
		for i := range t.lines {
			l := &t.lines[i]
			call, post, err := f.Forms(l.call, l.post)
			if err != nil {
				return fmt.Errorf("forget user in trace %s: %w", t.id(), err)
			}
			if call == nil {
				continue
			}
			a.bytes += int64(len(call) + len(post) - len(l.call) - len(l.post))
			l.call, l.post = call, post
			t.markPage(int32(i))
			renamed = true
		}
		if renamed {
			a.markDirty(t, a.end)
		}
	}
	return nil
}

// ForgetPage is a stored page of a trace with the pseudonym in the place of the user;
// nil where it does not have him.
func ForgetPage(page []byte, f *schema.Forgetting) ([]byte, error) {
	out, renamed := []byte(nil), false
	err := eachLine(page, func(head uint64, received int64, call, post []byte) error {
		newCall, newPost, err := f.Forms(call, post)
		if err != nil {
			return err
		}
		if newCall != nil {
			renamed = true
			call, post = newCall, newPost
		}
		out = appendLine(out, head, received, call, post)
		return nil
	})
	if err != nil || !renamed {
		return nil, err
	}
	return out, nil
}
