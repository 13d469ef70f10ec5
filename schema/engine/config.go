package engine

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// grants are the rights of the engine's only user. What is missing is the
// point: SOURCES, so that file(), url(), remote(), s3() and their like can
// neither read this machine nor reach another, from any connection. Tables of
// any engine can be created; the operator's own migrations decide.
var grants = []string{
	"GRANT SELECT, INSERT, ALTER, CREATE DATABASE, CREATE TABLE, CREATE VIEW, CREATE DICTIONARY, CREATE TEMPORARY TABLE, DROP, UNDROP TABLE, TRUNCATE, OPTIMIZE, SHOW, KILL QUERY, SYSTEM, BACKUP, dictGet ON *.*",
	"GRANT TABLE ENGINE ON *",
}

// mergeNice is the nice value of the threads that merge parts. What they do can wait.
const mergeNice = 19

// writeConfig writes the engine's configuration to path, readable by its owner
// only. memory is the cap of the whole engine in bytes.
func writeConfig(path, dir string, memory int64, threads int, fsync bool) error {
	mark := min(memory/8, 256<<20)
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("<clickhouse>")
	p("  <max_server_memory_usage>%d</max_server_memory_usage>", memory)
	p("  <mark_cache_size>%d</mark_cache_size>", mark)
	p("  <index_mark_cache_size>%d</index_mark_cache_size>", mark/4)
	p("  <uncompressed_cache_size>0</uncompressed_cache_size>")
	p("  <mmap_cache_size>100</mmap_cache_size>")
	p("  <background_pool_size>2</background_pool_size>")
	p("  <background_schedule_pool_size>8</background_schedule_pool_size>")
	p("  <os_threads_nice_value_merge_mutate>%d</os_threads_nice_value_merge_mutate>", mergeNice)
	p("  <max_thread_pool_size>200</max_thread_pool_size>")
	p("  <max_thread_pool_free_size>16</max_thread_pool_free_size>")
	p("  <logger><level>warning</level><console>0</console></logger>")
	p("  <user_files_path>%s</user_files_path>", escapeXML(filepath.Join(dir, "user_files")+"/"))
	p("  <backups><allowed_path>%s</allowed_path></backups>", escapeXML(filepath.Join(dir, "backups")+"/"))
	p("  <merge_tree>")
	// The server's own default; the library's is 0, which drops the sources of
	// a merge before the merged part is certain to be on disk.
	p("    <old_parts_lifetime>480</old_parts_lifetime>")
	// Each row is merged about half as often as with the default of 5, at the price of more parts.
	p("    <merge_selector_base>10</merge_selector_base>")
	// To make them takes 4 % of the engine's CPU while spans come in.
	p("    <auto_statistics_types></auto_statistics_types>")
	if fsync {
		p("    <fsync_after_insert>1</fsync_after_insert>")
		p("    <fsync_part_directory>1</fsync_part_directory>")
	}
	p("  </merge_tree>")
	// Without this path the users below are ignored.
	p("  <user_directories><users_xml><path>%s</path></users_xml></user_directories>", escapeXML(path))
	p("  <profiles><default>")
	// What a SETTINGS clause may not do, on any connection: log_comment is how
	// a statement is found to be killed, and 0 would mean no limit.
	p("    <constraints>")
	p("      <log_comment><const/></log_comment>")
	p("      <max_memory_usage><min>1</min><max>%d</max></max_memory_usage>", memory)
	p("      <max_threads><min>1</min><max>%d</max></max_threads>", max(threads, 8))
	p("    </constraints>")
	p("  </default></profiles>")
	p("  <quotas><default/></quotas>")
	p("  <users><default>")
	p("    <password></password><networks><ip>127.0.0.1</ip><ip>::1</ip></networks>")
	p("    <profile>default</profile><quota>default</quota>")
	p("    <grants>")
	for _, g := range grants {
		p("      <query>%s</query>", g)
	}
	p("    </grants>")
	p("  </default></users>")
	p("</clickhouse>")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		return fmt.Errorf("write engine configuration: %w", err)
	}
	return nil
}

func escapeXML(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}
