package schema

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Forgetting is a user id that a pseudonym takes the place of, in every spelling that
// guards take for the same user. A nil Forgetting changes nothing.
type Forgetting struct {
	Tenant, User, Pseudonym string

	normal string
}

// Pseudonym makes a name that has nothing to do with whom it stands for.
func Pseudonym() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return pseudonymPrefix + hex.EncodeToString(b[:])
}

const pseudonymPrefix = "forgotten-"

// Pseudonymous reports whether a user's id is one that Pseudonym made.
func Pseudonymous(user string) bool {
	return len(user) == len(pseudonymPrefix)+16 && strings.HasPrefix(user, pseudonymPrefix)
}

// NewForgetting names whom to forget, and what stands for him.
func NewForgetting(tenant, user, pseudonym string) *Forgetting {
	return &Forgetting{Tenant: tenant, User: user, Pseudonym: pseudonym, normal: normalUser(user)}
}

// normalUser is an id as the accounts of guards have it.
func normalUser(id string) string { return strings.ToLower(strings.TrimSpace(id)) }

// Is reports whether that is the user.
func (f *Forgetting) Is(tenant, user string) bool {
	return f != nil && user != "" && tenant == f.Tenant && normalUser(user) == f.normal
}

// Rename puts the pseudonym in the place of the user's id and reports whether it did.
func (f *Forgetting) Rename(tenant string, user *string) bool {
	if !f.Is(tenant, *user) {
		return false
	}
	*user = f.Pseudonym
	return true
}

// Call renames the user of a call.
func (f *Forgetting) Call(c *Call) bool { return f != nil && f.Rename(c.Tenant, &c.Identity[User]) }

// Entry renames the user of an entry, of its call and of what was posted for it.
func (f *Forgetting) Entry(e *Entry) bool {
	if f == nil {
		return false
	}
	call := f.Call(&e.Call)
	return f.Rename(e.Tenant, &e.Posting.Identity[User]) || call
}

// Forms renames the user in the binary forms of a call and its posting. They are nil
// where nothing changes.
func (f *Forgetting) Forms(call, posting []byte) (newCall, newPosting []byte, err error) {
	if f == nil {
		return nil, nil, nil
	}
	var e Entry
	if err := DecodeCall(call, &e.Call); err != nil {
		return nil, nil, err
	}
	if err := DecodePosting(posting, &e.Posting, &e.Call); err != nil {
		return nil, nil, err
	}
	if !f.Entry(&e) {
		return nil, nil, nil
	}
	return AppendCall(nil, &e.Call), AppendPosting(nil, &e.Posting, &e.Call), nil
}

// looseText is from which length on an id is taken for itself wherever a text has it as
// a word of its own. A shorter one, which may be any number, has to stand behind "user".
const looseText = 6

// Text renames the user in a text that a program or a person wrote.
func (f *Forgetting) Text(s string) string {
	if f == nil || f.normal == "" {
		return s
	}
	lower := strings.ToLower(s)
	if len(lower) != len(s) { // a letter whose small form is longer: the text as it stands
		lower = s
	}
	var out strings.Builder
	done := 0
	for at := 0; ; {
		i := strings.Index(lower[at:], f.normal)
		if i < 0 {
			break
		}
		i += at
		end := i + len(f.normal)
		at = end
		if wordEnd(s[:i], s[end:]) && (len(f.normal) >= looseText || strings.HasSuffix(strings.TrimRight(s[:i], " :=\"'[("), "user")) {
			out.WriteString(s[done:i] + f.Pseudonym)
			done = end
		}
	}
	return out.String() + s[done:]
}

// wordEnd reports whether what stands between the two is a word of its own.
func wordEnd(before, after string) bool {
	in := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-@+", r)
	}
	b, _ := utf8.DecodeLastRuneInString(before)
	a, size := utf8.DecodeRuneInString(after)
	if a == '.' { // the end of a sentence, or a part of a name
		a, _ = utf8.DecodeRuneInString(after[size:])
	}
	return !in(b) && !in(a)
}

// ErrForgetCluster says that rows cannot be renamed in a replicated database.
var ErrForgetCluster = errors.New("users cannot be forgotten in a ClickHouse cluster: partitions are replaced on one node only; rename the user there by hand")

// userTable is a table with a column for users.
type userTable struct {
	name, engine string
	sorted       bool     // the user is part of the sorting key
	texts        bool     // it has texts that may name users: of enforcement
	sums, key    []string // columns outside the sorting key, and in it
}

// userTables finds the tables that have users. It is an error if there is one that
// ForgetRows cannot treat.
func userTables(ctx context.Context, conn driver.Conn) ([]userTable, error) {
	rows, err := conn.Query(ctx, `SELECT t.name, t.engine, c.name, c.is_in_sorting_key, c.is_in_partition_key FROM system.tables AS t INNER JOIN system.columns AS c ON c.database = t.database AND c.table = t.name
WHERE t.database = currentDatabase() AND t.engine LIKE '%MergeTree' AND NOT startsWith(t.name, '`+scratchPrefix+`') AND c.default_kind != 'ALIAS'
	AND t.name IN (SELECT table FROM system.columns WHERE database = currentDatabase() AND name = 'user') ORDER BY t.name, c.position`)
	if err != nil {
		return nil, fmt.Errorf("list tables with users: %w", err)
	}
	defer rows.Close()
	var out []userTable
	for rows.Next() {
		var table, engine, column string
		var sorted, partitioned uint8
		if err := rows.Scan(&table, &engine, &column, &sorted, &partitioned); err != nil {
			return nil, fmt.Errorf("list tables with users: %w", err)
		}
		if strings.HasPrefix(engine, "Replicated") {
			return nil, ErrForgetCluster
		}
		if len(out) == 0 || out[len(out)-1].name != table {
			out = append(out, userTable{name: table, engine: engine})
		}
		t := &out[len(out)-1]
		switch {
		case sorted == 1:
			t.key = append(t.key, column)
			t.sorted = t.sorted || column == "user"
		case column != "user":
			t.sums = append(t.sums, column)
		}
		if column == "user" && partitioned == 1 || t.sorted && engine == "ReplacingMergeTree" {
			return nil, fmt.Errorf("forget user: table %s of engine %s is not one in which a user can be renamed", table, engine)
		}
	}
	for i := range out {
		out[i].texts = slices.Contains(out[i].sums, "reason") && slices.Contains(out[i].sums, "scope") && slices.Contains(out[i].sums, "directive")
	}
	return out, rows.Err()
}

// digest is what must be the same of rows before and after their user was renamed,
// whatever is merged meanwhile.
func (t *userTable) digest() string {
	var parts []string
	switch t.engine {
	case "SummingMergeTree":
		for _, c := range t.sums {
			parts = append(parts, "toString(sum(toInt128("+c+")))")
		}
	case "ReplacingMergeTree":
		parts = []string{"toString(uniqExact(" + strings.Join(t.key, ", ") + "))"}
	default:
		var all []string
		for _, c := range append(slices.Clone(t.key), t.sums...) {
			if c != "user" {
				all = append(all, c)
			}
		}
		parts = []string{"toString(count())", "toString(sumWithOverflow(cityHash64(" + strings.Join(all, ", ") + ")))"}
	}
	return "arrayStringConcat([" + strings.Join(parts, ", ") + "], ' ')"
}

// ForgetTables checks that users can be renamed in this database.
func ForgetTables(ctx context.Context, conn driver.Conn) error {
	_, err := userTables(ctx, conn)
	return err
}

const scratchPrefix = "forget_"

// ForgetRows puts the pseudonym in the place of the user in every table that has users,
// and waits until the files of before are gone. Where the user is no part of the sorting
// key it is an update of one column; elsewhere each partition with rows of the user is
// copied and replaced by its copy, which is one step for readers and fires no view.
// alone runs a function while nobody inserts. Rows are checked against what they were
// before. After an error the same call goes on; nothing is lost or doubled meanwhile.
// No row of the user may be inserted any more.
func ForgetRows(ctx context.Context, conn driver.Conn, f *Forgetting, alone func(func() error) error) error {
	tables, err := userTables(ctx, conn)
	if err != nil {
		return err
	}
	// A server that logs its queries must not keep the id there.
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"log_queries": 0, "max_execution_time": 0}))
	var left renaming
	// An update of an attempt that was cut off goes on by itself, and needs whom it is about.
	for _, step := range []func(*renaming) error{(*renaming).mutated, func(r *renaming) error { return r.run(alone) }} {
		for i := range tables {
			left = renaming{ctx: ctx, conn: conn, f: f, t: &tables[i]}
			if err := step(&left); err != nil {
				return fmt.Errorf("forget user in table %s: %w", tables[i].name, err)
			}
		}
	}
	if err := left.drop(); err != nil {
		return fmt.Errorf("forget user: %w", err)
	}
	return nil
}

// scratchUsers and scratchTexts say whom an update is about.
const (
	scratchUsers = scratchPrefix + "users"
	scratchTexts = scratchPrefix + "texts"
)

// drop removes what an update was about.
func (r *renaming) drop() error {
	for _, table := range []string{scratchUsers, scratchTexts} {
		if err := r.exec("DROP TABLE IF EXISTS " + table + " SYNC"); err != nil {
			return err
		}
	}
	return nil
}

// renaming is the work on one table.
type renaming struct {
	ctx  context.Context
	conn driver.Conn
	f    *Forgetting
	t    *userTable
	in   string // spellings of the user, as an SQL list; "" is none

	old, fresh []string // texts that name the user, and what they are to be
}

func (r *renaming) exec(sql string) error { return r.conn.Exec(r.ctx, sql) }

func (r *renaming) strings(sql string) (out []string, err error) {
	rows, err := r.conn.Query(r.ctx, sql)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, rows.Err()
}

func (r *renaming) one(sql string) (out string, err error) {
	err = r.conn.QueryRow(r.ctx, sql).Scan(&out)
	return out, err
}

// of selects rows of the tenant by user.
func (r *renaming) of(users string) string {
	return "tenant = " + quote(r.f.Tenant) + " AND user IN (" + users + ")"
}

// spell looks for the spellings of the user that the table has, and for texts that name
// him.
func (r *renaming) spell() error {
	all, err := r.strings("SELECT DISTINCT user FROM " + r.t.name + " WHERE tenant = " + quote(r.f.Tenant) + " AND positionCaseInsensitiveUTF8(user, " + quote(r.f.normal) + ") > 0")
	if err != nil {
		return err
	}
	var list []string
	for _, u := range all {
		if r.f.Is(r.f.Tenant, u) {
			list = append(list, quote(u))
		}
	}
	r.in, r.old, r.fresh = strings.Join(list, ", "), nil, nil
	if !r.t.texts {
		return nil
	}
	texts, err := r.strings("SELECT DISTINCT arrayJoin([scope, reason]) AS text FROM " + r.t.name + " WHERE tenant IN (" + quote(r.f.Tenant) + ", '') AND positionCaseInsensitiveUTF8(text, " + quote(r.f.normal) + ") > 0")
	for _, text := range texts {
		if fresh := r.f.Text(text); fresh != text {
			r.old, r.fresh = append(r.old, text), append(r.fresh, fresh)
		}
	}
	return err
}

// found reports whether there is anything to rename.
func (r *renaming) found() bool { return r.in != "" || len(r.old) > 0 }

func quoteAll(list []string) string {
	var out []string
	for _, s := range list {
		out = append(out, quote(s))
	}
	return "[" + strings.Join(out, ", ") + "]"
}

func (r *renaming) run(alone func(func() error) error) error {
	// Its old parts are to go at once.
	if err := r.exec("ALTER TABLE " + r.t.name + " MODIFY SETTING old_parts_lifetime = 1"); err != nil {
		return err
	}
	err := r.spell()
	if err == nil && r.found() {
		if r.t.sorted {
			err = r.replace(alone)
		} else {
			err = alone(r.update)
		}
	}
	if err == nil {
		err = r.clean()
	}
	if err != nil {
		return err
	}
	return r.exec("ALTER TABLE " + r.t.name + " RESET SETTING old_parts_lifetime")
}

// check compares digests of before and after.
func (r *renaming) check(what, before, after string) error {
	if before != after {
		return fmt.Errorf("%s was %s and would be %s", what, before, after)
	}
	return nil
}

// update renames where the user is no part of the key: part by part, each in one step.
// ClickHouse keeps the text of an update in a file, so whom it is about stands in tables
// that go when it is done.
func (r *renaming) update() error {
	if r.in == "" {
		r.in = quote(r.f.Pseudonym)
	}
	digest := func(users string) (string, error) {
		return r.one("SELECT " + r.t.digest() + " FROM " + r.t.name + " WHERE " + r.of(users))
	}
	before, err := digest(r.in + ", " + quote(r.f.Pseudonym))
	if err != nil {
		return err
	}
	if err := r.drop(); err != nil {
		return err
	}
	const users, texts = scratchUsers, scratchTexts
	set, where := "user = "+quote(r.f.Pseudonym), r.of("SELECT user FROM "+users)
	list := []string{"CREATE TABLE " + users + " (user String) ENGINE = MergeTree ORDER BY user", "INSERT INTO " + users + " SELECT arrayJoin([" + r.in + "])"}
	if r.t.texts {
		list = append(list, "CREATE TABLE "+texts+" (old String, fresh String) ENGINE = MergeTree ORDER BY old")
		if len(r.old) > 0 {
			list = append(list, "INSERT INTO "+texts+" SELECT t.1, t.2 FROM (SELECT arrayJoin(arrayZip("+quoteAll(r.old)+", "+quoteAll(r.fresh)+")) AS t)")
		}
		all := func(column string) string {
			return "(SELECT groupArray(" + column + ") FROM (SELECT " + column + " FROM " + texts + " ORDER BY old))"
		}
		if len(r.old) > 0 {
			is := where
			named := "scope IN (SELECT old FROM " + texts + ")"
			set = "user = if(" + is + ", " + quote(r.f.Pseudonym) + ", user), directive = if(directive != '' AND (" + is + " OR " + named + "), concat(guard, '/" + r.f.Pseudonym + "'), directive)"
			for _, c := range []string{"scope", "reason"} {
				set += ", " + c + " = transform(" + c + ", " + all("old") + ", " + all("fresh") + ", " + c + ")"
			}
			where = "(" + is + ") OR tenant IN (" + quote(r.f.Tenant) + ", '') AND (" + named + " OR reason IN (SELECT old FROM " + texts + "))"
		} else {
			set += ", directive = if(directive = '', '', concat(guard, '/" + r.f.Pseudonym + "'))"
		}
	}
	for _, sql := range append(list, "ALTER TABLE "+r.t.name+" UPDATE "+set+" WHERE "+where) {
		if err := r.exec(sql); err != nil {
			return err
		}
	}
	if err := r.mutated(); err != nil {
		return err
	}
	after, err := digest(quote(r.f.Pseudonym))
	if err != nil {
		return err
	}
	return r.check("the sum of the user's rows", before, after)
}

// mutated waits until the updates of the table are through. Those of an earlier attempt
// go on by themselves.
func (r *renaming) mutated() error {
	return r.until("updates of "+r.t.name, func() (bool, error) {
		left, err := r.strings("SELECT latest_fail_reason FROM system.mutations WHERE database = currentDatabase() AND table = " + quote(r.t.name) + " AND NOT is_done")
		for _, why := range left {
			if why != "" {
				return false, errors.New(why)
			}
		}
		return len(left) == 0, err
	})
}

// replace renames where the user is part of the key: partition by partition.
func (r *renaming) replace(alone func(func() error) error) error {
	scratch := scratchPrefix + r.t.name
	drop := "DROP TABLE IF EXISTS " + scratch + " SYNC"
	partitions, err := r.strings("SELECT DISTINCT _partition_id FROM " + r.t.name + " WHERE " + r.of(r.in))
	if err != nil {
		return err
	}
	for _, id := range partitions {
		if err := alone(func() error { return r.replacePartition(id, scratch, drop) }); err != nil {
			return fmt.Errorf("partition %s: %w", id, err)
		}
	}
	return r.exec(drop)
}

func (r *renaming) replacePartition(id, scratch, drop string) error {
	const whole = "1"
	digest := func(table, where string) (string, error) {
		return r.one("SELECT " + r.t.digest() + " FROM " + table + " WHERE _partition_id = " + quote(id) + " AND " + where)
	}
	for _, sql := range []string{
		drop, // of an attempt that was cut off
		"CREATE TABLE " + scratch + " AS " + r.t.name,
		"INSERT INTO " + scratch + " SELECT * REPLACE (if(" + r.of(r.in) + ", " + quote(r.f.Pseudonym) + ", user) AS user) FROM " + r.t.name + " WHERE _partition_id = " + quote(id),
	} {
		if err := r.exec(sql); err != nil {
			return err
		}
	}
	for _, c := range [...]struct{ what, before, after string }{
		{"the sum of the partition", whole, whole},
		{"the sum of the user's rows", r.of(r.in + ", " + quote(r.f.Pseudonym)), r.of(quote(r.f.Pseudonym))},
	} {
		before, err := digest(r.t.name, c.before)
		if err != nil {
			return err
		}
		after, err := digest(scratch, c.after)
		if err != nil {
			return err
		}
		if err := r.check(c.what, before, after); err != nil {
			return err
		}
	}
	if err := r.exec("ALTER TABLE " + r.t.name + " REPLACE PARTITION ID " + quote(id) + " FROM " + scratch); err != nil {
		return err
	}
	return r.exec(drop)
}

// clean waits until nothing of before is left: no row and no old part.
func (r *renaming) clean() error {
	if err := r.spell(); err != nil {
		return err
	}
	if r.found() {
		return errors.New("rows of the user came after they were renamed")
	}
	if err := r.exec("DROP TABLE IF EXISTS " + scratchPrefix + r.t.name + " SYNC"); err != nil {
		return err
	}
	inactive := "SELECT name FROM system.parts WHERE database = currentDatabase() AND table = " + quote(r.t.name) + " AND NOT active"
	old, err := r.strings(inactive)
	if err != nil || len(old) == 0 {
		return err
	}
	return r.until("old parts of "+r.t.name, func() (bool, error) {
		// A table at rest looks for them every ten minutes at most; to drop a partition,
		// which need not be there, makes it look now.
		if err := r.exec("ALTER TABLE " + r.t.name + " DROP PARTITION ID 'none'"); err != nil {
			return false, err
		}
		left, err := r.strings(inactive)
		return !slices.ContainsFunc(left, func(p string) bool { return slices.Contains(old, p) }), err
	})
}

// forgetPatience is how long background work of ClickHouse is waited for before the
// attempt is given up, to be made again.
const forgetPatience = time.Hour

func (r *renaming) until(what string, done func() (bool, error)) error {
	for pause, end := 50*time.Millisecond, time.Now().Add(forgetPatience); ; pause = min(2*pause, time.Second) {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("wait for %s: nothing happens", what)
		}
		select {
		case <-r.ctx.Done():
			return r.ctx.Err()
		case <-time.After(pause):
		}
	}
}
