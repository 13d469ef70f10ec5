package engine

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// forgetLostTokens drops from the store's deduplication logs the tokens of parts
// that are not there, and an unfinished last line. It does nothing while another process
// has the store.
//
// The engine notes the token of a part before it gives the part its name. Killed
// between the two, it would take the block for one it has when the block is sent again.
func forgetLostTokens(dir string) error {
	status, err := os.OpenFile(filepath.Join(dir, "status"), os.O_RDWR|os.O_CREATE, 0o600) // what the engine locks
	if err != nil {
		return err
	}
	defer status.Close()
	if err := syscall.Flock(int(status.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil // opening says who has it
	}
	logs, err := filepath.Glob(filepath.Join(dir, "store", "*", "*", "deduplication_logs", "deduplication_log_*.txt"))
	if err != nil {
		return err
	}
	tables := map[string][]blockRange{} // by directory
	for _, log := range logs {
		table := filepath.Dir(filepath.Dir(log))
		parts, ok := tables[table]
		if !ok {
			if parts, err = blocksOf(table); err != nil {
				return err
			}
			tables[table] = parts
		}
		if err := forgetLostIn(log, parts, filepath.Join(dir, "deduplication_log.tmp")); err != nil {
			return err
		}
	}
	return nil
}

// blockRange are the inserted blocks that a part has, in its partition. A part made by
// a merge has those of all that went into it.
type blockRange struct {
	partition string
	min, max  int64
}

// blocksOf reads the names of a table's parts.
func blocksOf(table string) ([]blockRange, error) {
	entries, err := os.ReadDir(table)
	if err != nil {
		return nil, err
	}
	var parts []blockRange
	for _, e := range entries {
		if r, ok := parseBlocks(e.Name()); ok {
			parts = append(parts, r)
		}
	}
	return parts, nil
}

// parseBlocks reads PARTITION_MIN_MAX_LEVEL or PARTITION_MIN_MAX_LEVEL_MUTATION.
// Names of unfinished parts begin with tmp.
func parseBlocks(part string) (r blockRange, ok bool) {
	f := strings.Split(part, "_")
	if len(f) != 4 && len(f) != 5 || strings.HasPrefix(part, "tmp") {
		return r, false
	}
	r.partition = f[0]
	var err, err2 error
	r.min, err = strconv.ParseInt(f[1], 10, 64)
	r.max, err2 = strconv.ParseInt(f[2], 10, 64)
	return r, err == nil && err2 == nil
}

// addToken begins the lines that note a token: operation, name of the part, token.
const addToken = "1\t"

// forgetLostIn writes the log again where it has tokens of parts that are not there.
// The new text is first written to the file tmp.
func forgetLostIn(log string, parts []blockRange, tmp string) error {
	b, err := os.ReadFile(log)
	if err != nil {
		return err
	}
	kept := make([]byte, 0, len(b))
	for line := range bytes.Lines(b) {
		text := string(line)
		if !strings.HasSuffix(text, "\n") {
			continue
		}
		if add, ok := strings.CutPrefix(text, addToken); ok {
			name, _, _ := strings.Cut(add, "\t")
			if r, ok := parseBlocks(name); ok && !covered(r, parts) {
				continue
			}
		}
		kept = append(kept, line...)
	}
	if len(kept) == len(b) {
		return nil
	}
	if err := os.WriteFile(tmp, kept, 0o640); err != nil {
		return err
	}
	return os.Rename(tmp, log)
}

func covered(r blockRange, parts []blockRange) bool {
	for _, p := range parts {
		if p.partition == r.partition && p.min <= r.min && r.max <= p.max {
			return true
		}
	}
	return false
}
