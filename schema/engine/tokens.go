package engine

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// forgetLostTokens drops from the store's deduplication logs the tokens of parts behind the last
// one that is there, and unfinished lines. It does nothing while another process has the store.
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
	last := map[string]int64{} // by directory of the table
	for _, log := range logs {
		table := filepath.Dir(filepath.Dir(log))
		n, ok := last[table]
		if !ok {
			if n, err = lastBlock(table); err != nil {
				return err
			}
			last[table] = n
		}
		if err := forgetLostIn(log, n, filepath.Join(dir, "deduplication_log.tmp")); err != nil {
			return err
		}
	}
	return nil
}

// lastBlock is the highest number of an inserted block that a part of the table has, 0 if there is
// none. Blocks of a table are numbered as they come, and so are parts that replace others.
func lastBlock(table string) (int64, error) {
	entries, err := os.ReadDir(table)
	if err != nil {
		return 0, err
	}
	last := int64(0)
	for _, e := range entries {
		if _, to, ok := parseBlocks(e.Name()); ok {
			last = max(last, to)
		}
	}
	return last, nil
}

// parseBlocks reads PARTITION_FROM_TO_LEVEL or PARTITION_FROM_TO_LEVEL_MUTATION. Names of
// unfinished parts begin with tmp.
func parseBlocks(part string) (from, to int64, ok bool) {
	f := strings.Split(part, "_")
	if len(f) != 4 && len(f) != 5 || strings.HasPrefix(part, "tmp") {
		return 0, 0, false
	}
	from, err := strconv.ParseInt(f[1], 10, 64)
	to, err2 := strconv.ParseInt(f[2], 10, 64)
	return from, to, err == nil && err2 == nil
}

// addToken begins the lines that note a token: operation, name of the part, token.
const addToken = "1\t"

// forgetLostIn writes the log again where it has tokens of parts behind the last block: those of parts
// before it were replaced or dropped, and their blocks may come again. The new text is first
// written to the file tmp.
func forgetLostIn(log string, last int64, tmp string) error {
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
			if from, _, ok := parseBlocks(name); ok && from > last {
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
