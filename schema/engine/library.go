package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// fetchCommand is what the error of FindLibrary tells the operator to run.
const fetchCommand = "deploy/engine/fetch.sh bin/libchdb.so"

// cacheName is the file fetch.sh leaves in its cache.
const cacheName = "libchdb-26.7.3/libchdb.so"

// FindLibrary returns the absolute path of libchdb.so: explicit if given, else
// FLYBALL_LIBCHDB, else beside the executable, else in the cache of
// deploy/engine/fetch.sh. A place that is named must have it; the others are
// tried in turn. The error says where it looked and the command that fetches it.
func FindLibrary(explicit string) (string, error) {
	named, from := explicit, "the given path"
	if named == "" {
		named, from = os.Getenv("FLYBALL_LIBCHDB"), "FLYBALL_LIBCHDB"
	}
	if named != "" {
		path, err := regularFile(named)
		if err != nil {
			return "", fmt.Errorf("find engine library at %s: %w (fetch it with %s)", from, err, fetchCommand)
		}
		return path, nil
	}
	var places []string
	if exe, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			exe = real
		}
		places = append(places, filepath.Join(filepath.Dir(exe), "libchdb.so"))
	}
	if dir := cacheDir(); dir != "" {
		places = append(places, filepath.Join(dir, cacheName))
	}
	for _, p := range places {
		if path, err := regularFile(p); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("find engine library: libchdb.so is not at %q nor named by FLYBALL_LIBCHDB: fetch it with %s, or set clickhouse.dsn to a server", places, fetchCommand)
}

func regularFile(path string) (string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !st.Mode().IsRegular() || st.Size() == 0 {
		return "", &os.PathError{Op: "open", Path: path, Err: errors.New("not a library file")}
	}
	return filepath.Abs(path)
}

// cacheDir is fetch.sh's: FLYBALL_CACHE, XDG_CACHE_HOME/flyball or ~/.cache/flyball.
func cacheDir() string {
	if d := os.Getenv("FLYBALL_CACHE"); d != "" {
		return d
	}
	if d := os.Getenv("XDG_CACHE_HOME"); d != "" {
		return filepath.Join(d, "flyball")
	}
	if home, err := os.UserHomeDir(); err == nil {
		return filepath.Join(home, ".cache", "flyball")
	}
	return ""
}
