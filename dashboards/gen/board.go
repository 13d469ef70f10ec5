package main

import (
	"cmp"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/text"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// The data sources. Boards name the variables, never an instance.
const (
	clickhouseType = "grafana-clickhouse-datasource"
	prometheusType = "prometheus"
)

var (
	clickhouseSource = common.DataSourceRef{Type: cog.ToPtr(clickhouseType), Uid: cog.ToPtr("${clickhouse}")}
	prometheusSource = common.DataSourceRef{Type: cog.ToPtr(prometheusType), Uid: cog.ToPtr("${prometheus}")}
)

// Units, as Grafana calls them.
const (
	usd     = "currencyUSD"
	count   = "short"
	share   = "percentunit"
	ratio   = "none"
	seconds = "s"
	size    = "bytes"
	perSec  = "ops"
	instant = "time:YYYY-MM-DD HH:mm:ss"
	date    = "time:YYYY-MM-DD"
	words   = "string"
)

// board collects what one file holds.
type board struct {
	b    *dashboard.DashboardBuilder
	last uint32 // panel id
}

// newBoard starts one. The time zone is UTC on boards whose days are UTC days.
func newBoard(uid, title, about, zone, from, to string) *board {
	b := dashboard.NewDashboardBuilder(title).Uid(uid).Description(about).Tags([]string{"flyball"}).
		Timezone(zone).Time(from, to).Refresh("1m").Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Link(dashboard.NewDashboardLinkBuilder("Flyball").Type(dashboard.DashboardLinkTypeDashboards).Tags([]string{"flyball"}).AsDropdown(true).KeepTime(true).IncludeVars(true))
	return &board{b: b}
}

func (d *board) build() (dashboard.Dashboard, error) { return d.b.Build() }

func value(s string) dashboard.StringOrArrayOfString {
	return dashboard.StringOrArrayOfString{String: &s}
}

// source adds the variable that chooses a data source.
func (d *board) source(name, label, typ string) {
	d.b.WithVariable(dashboard.NewDatasourceVariableBuilder(name).Label(label).Type(typ))
}

// pick adds a variable of dimension values, several or all of them. Values come
// from the time that is shown; where others are passed, from their selection.
func (d *board) pick(name string, by ...string) {
	const each = "SELECT DISTINCT {value} AS value\nFROM spend_15m\nWHERE {time}{by}\nORDER BY value\nLIMIT 5000"
	cond := ""
	for _, b := range by {
		cond += " AND " + chosen(b)
	}
	sql := strings.NewReplacer("{value}", named(name), "{time}", quarters, "{by}", cond).Replace(each)
	d.b.WithVariable(dashboard.NewQueryVariableBuilder(name).Label(label(name)).Datasource(clickhouseSource).
		Query(dashboard.StringOrMap{Map: map[string]any{"refId": name, "editorType": "sql", "queryType": "table", "format": formatTable, "rawSql": sql}}).
		Definition(sql).Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Multi(true).IncludeAll(true).
		Current(dashboard.VariableOption{Selected: cog.ToPtr(true), Text: dashboard.StringOrArrayOfString{ArrayOfString: []string{"All"}}, Value: dashboard.StringOrArrayOfString{ArrayOfString: []string{"$__all"}}}))
}

// instances adds the variable that chooses services among those scraped.
func (d *board) instances() {
	const q = "label_values(flyball_spans_received_total, instance)"
	d.b.WithVariable(dashboard.NewQueryVariableBuilder("instance").Label("Instance").Datasource(prometheusSource).
		Query(dashboard.StringOrMap{Map: map[string]any{"refId": "instance", "query": q}}).Definition(q).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Sort(dashboard.VariableSortAlphabeticalAsc).Multi(true).IncludeAll(true).AllValue(".*").
		Current(dashboard.VariableOption{Selected: cog.ToPtr(true), Text: dashboard.StringOrArrayOfString{ArrayOfString: []string{"All"}}, Value: dashboard.StringOrArrayOfString{ArrayOfString: []string{"$__all"}}}))
}

// choice adds a variable with a few fixed values, of which the first counts.
func (d *board) choice(name, label, about string, values ...string) {
	var options []dashboard.VariableOption
	for i, v := range values {
		options = append(options, dashboard.VariableOption{Selected: cog.ToPtr(i == 0), Text: value(v), Value: value(v)})
	}
	d.b.WithVariable(dashboard.NewCustomVariableBuilder(name).Label(label).Description(about).Values(dashboard.StringOrMap{String: cog.ToPtr(strings.Join(values, ","))}).Options(options).Current(options[0]))
}

// input adds a text box.
func (d *board) input(name, label, about, byDefault string) {
	o := dashboard.VariableOption{Selected: cog.ToPtr(true), Text: value(byDefault), Value: value(byDefault)}
	d.b.WithVariable(dashboard.NewTextBoxVariableBuilder(name).Label(label).Description(about).DefaultValue(dashboard.StringOrMap{String: &byDefault}).Current(o).Options([]dashboard.VariableOption{o}))
}

// console adds the text box with the place that links lead to, traces that of traces.
func (d *board) console() {
	d.input("console", "Console", "Where Flyball's console and API are, for links.", "http://127.0.0.1:8080")
}

func (d *board) traces() {
	d.input("trace_url", "Trace URL", "What stands before a trace id in the address of your trace UI, for links.", "http://127.0.0.1:16686/trace/")
}

// killed marks on every graph when the kill switch was on.
func (d *board) killed() {
	d.b.Annotation(dashboard.NewAnnotationQueryBuilder().Name("Kill switch").Datasource(prometheusSource).Enable(true).IconColor("red").
		Expr(`max(flyball_kill_switch) == 1`).Step("30s").TitleFormat("The kill switch is on"))
}

// acted marks on every graph what guards and the kill switch did to somebody, from
// ClickHouse; guards in warn mode did nothing.
func (d *board) acted() {
	d.b.Annotation(dashboard.NewAnnotationQueryBuilder().Name("Enforcement").Datasource(clickhouseSource).Enable(true).IconColor("orange").
		Target(rows(`
SELECT at AS time, concat(guard, ' ', kind, ' ', action, if(scope = '', '', concat(': ', scope))) AS title, reason AS text, concat(kind, ',', guard) AS tags
FROM enforcement FINAL
WHERE at >= $__fromTime AND at < $__toTime AND kind IN ('directive', 'release', 'kill') AND NOT shadow AND action != 'warn' AND {whose}
ORDER BY at
LIMIT 500`)))
}

func (d *board) row(title string) {
	d.last++
	d.b.WithRow(dashboard.NewRowBuilder(title).Id(d.last))
}

// link is a place that a value leads to. URLs take values as ${__data.fields.NAME}
// in tables and ${__field.labels.NAME} in graphs.
type link struct{ title, url string }

// step is where a threshold's color begins.
type step struct {
	from  float64
	color string
}

// Thresholds of counts of which one is too many.
var (
	warnAny  = []step{{1, "orange"}}
	alarmAny = []step{{1, "red"}}
)

// column is how a table shows one column of its query.
type column struct {
	name, title, unit string
	width             float64
	links             []link
	base              string // see panel
	steps             []step
	empty             string // what stands for an empty string
}

// panel is what every kind of panel has.
type panel struct {
	title, about string
	unit         string
	decimals     *float64
	width        uint32
	height       uint32
	queries      []query
	grain        string // the shortest interval of SQL over time; "" is that of the rollup
	base         string // color below the first step; "" is green
	steps        []step
	links        []link
	none         string             // shown where there is no value
	states       map[string]outcome // texts of values
	each         string             // how a series is called, from its labels
	bars         bool               // bars instead of lines
	stacked      bool
	right        map[string]string // series on the right axis, with their units
	columns      []column
	names        map[string]string // texts of a stat's columns
}

type outcome struct{ text, color string }

// builder is what the builders of all kinds of panels share.
type builder[B any] interface {
	cog.Builder[dashboard.Panel]
	Id(uint32) B
	Title(string) B
	Description(string) B
	Span(uint32) B
	Height(uint32) B
	Unit(string) B
	Decimals(float64) B
	Datasource(common.DataSourceRef) B
	WithTarget(cog.Builder[variants.Dataquery]) B
	Thresholds(cog.Builder[dashboard.ThresholdsConfig]) B
	DataLinks([]cog.Builder[dashboard.DashboardLink]) B
	NoValue(string) B
	Interval(string) B
	Mappings([]dashboard.ValueMapping) B
	OverrideByName(string, []dashboard.DynamicConfigValue) B
}

func fill[B builder[B]](d *board, b B, p panel) {
	d.last++
	b.Id(d.last).Title(p.title).Description(p.about).Span(p.width).Height(p.height)
	if p.unit != "" {
		b.Unit(p.unit)
	}
	if p.decimals != nil {
		b.Decimals(*p.decimals)
	}
	for i, q := range p.queries {
		q.ref = string(rune('A' + i))
		switch {
		case q.sql != "":
			b.Datasource(clickhouseSource).Interval(cmp.Or(p.grain, "15m"))
		default:
			b.Datasource(prometheusSource)
		}
		b.WithTarget(q)
	}
	b.Thresholds(thresholds(p.base, p.steps))
	if len(p.links) > 0 {
		b.DataLinks(builders(p.links))
	}
	if p.none != "" {
		b.NoValue(p.none)
	}
	if p.states != nil {
		options := map[string]dashboard.ValueMappingResult{}
		for v, o := range p.states {
			options[v] = dashboard.ValueMappingResult{Text: cog.ToPtr(o.text), Color: cog.ToPtr(o.color)}
		}
		b.Mappings([]dashboard.ValueMapping{{ValueMap: &dashboard.ValueMap{Type: dashboard.MappingTypeValueToText, Options: options}}})
	}
	d.b.WithPanel(b)
}

func thresholds(base string, steps []step) *dashboard.ThresholdsConfigBuilder {
	out := []dashboard.Threshold{{Color: cmp.Or(base, "green")}}
	for _, s := range steps {
		out = append(out, dashboard.Threshold{Value: cog.ToPtr(s.from), Color: s.color})
	}
	return dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(out)
}

func builders(links []link) []cog.Builder[dashboard.DashboardLink] {
	var out []cog.Builder[dashboard.DashboardLink]
	for _, l := range links {
		out = append(out, dashboard.NewDashboardLinkBuilder(l.title).Type(dashboard.DashboardLinkTypeLink).Url(l.url).TargetBlank(true))
	}
	return out
}

// raw is a list of links as an override holds it.
func raw(links []link) []map[string]any {
	var out []map[string]any
	for _, l := range links {
		out = append(out, map[string]any{"title": l.title, "url": l.url, "targetBlank": true})
	}
	return out
}

// number adds a panel with one big value for each column or query.
func (d *board) number(p panel) {
	b := stat.NewPanelBuilder().ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).
		ColorMode(common.BigValueColorModeValue).GraphMode(common.BigValueGraphModeNone).JustifyMode(common.BigValueJustifyModeAuto).TextMode(common.BigValueTextModeAuto)
	for _, n := range sorted(p.names) {
		b.OverrideByName(n, []dashboard.DynamicConfigValue{{Id: "displayName", Value: p.names[n]}})
	}
	fill(d, b, p)
}

// graph adds a panel over time.
func (d *board) graph(p panel) {
	b := timeseries.NewPanelBuilder().LineWidth(1).ShowPoints(common.VisibilityModeNever).
		Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom).ShowLegend(true).Calcs([]string{})).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending)).
		AxisSoftMin(0)
	if p.bars {
		b.DrawStyle(common.GraphDrawStyleBars).FillOpacity(60)
	} else {
		b.DrawStyle(common.GraphDrawStyleLine).FillOpacity(10)
	}
	if p.stacked {
		b.Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal).Group("A"))
	}
	if p.each != "" {
		b.DisplayName(p.each)
	}
	for _, n := range sorted(p.right) {
		b.OverrideByName(n, []dashboard.DynamicConfigValue{
			{Id: "unit", Value: p.right[n]},
			{Id: "custom.axisPlacement", Value: "right"},
			{Id: "custom.drawStyle", Value: "line"},
			{Id: "custom.stacking", Value: map[string]any{"mode": "none"}},
		})
	}
	for _, n := range sorted(p.names) {
		b.OverrideByName(n, []dashboard.DynamicConfigValue{{Id: "displayName", Value: p.names[n]}})
	}
	fill(d, b, p)
}

// list adds a table.
func (d *board) list(p panel) {
	b := table.NewPanelBuilder().ShowHeader(true).CellHeight(common.TableCellHeightSm).
		Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{"sum"}))
	for _, c := range p.columns {
		o := []dashboard.DynamicConfigValue{{Id: "displayName", Value: c.title}, {Id: "unit", Value: c.unit}}
		if c.width > 0 {
			o = append(o, dashboard.DynamicConfigValue{Id: "custom.width", Value: c.width})
		}
		if len(c.links) > 0 {
			o = append(o, dashboard.DynamicConfigValue{Id: "links", Value: raw(c.links)})
		}
		if len(c.steps) > 0 {
			steps, _ := thresholds(c.base, c.steps).Build()
			o = append(o, dashboard.DynamicConfigValue{Id: "thresholds", Value: steps}, dashboard.DynamicConfigValue{Id: "custom.cellOptions", Value: map[string]any{"type": "color-text"}})
		}
		if c.empty != "" {
			o = append(o, dashboard.DynamicConfigValue{Id: "mappings", Value: []dashboard.ValueMapping{{SpecialValueMap: &dashboard.SpecialValueMap{Type: dashboard.MappingTypeSpecialValue,
				Options: dashboard.DashboardSpecialValueMapOptions{Match: dashboard.SpecialValueMatchEmpty, Result: dashboard.ValueMappingResult{Text: cog.ToPtr(c.empty)}}}}}})
		}
		b.OverrideByName(c.name, o)
	}
	fill(d, b, p)
}

// note adds a panel of text.
func (d *board) note(title, about, content string, width, height uint32) {
	fill(d, text.NewPanelBuilder().Mode(text.TextModeMarkdown).Content(content), panel{title: title, about: about, width: width, height: height})
}

// query is one statement, in SQL or in PromQL.
type query struct {
	ref    string
	sql    string
	series bool // SQL whose first column is the time, for a graph
	expr   string
	legend string
	now    bool // PromQL of which only the present value is shown
}

// The forms in which the ClickHouse plugin answers.
const (
	formatSeries = 0
	formatTable  = 1
)

// Build implements cog.Builder.
func (q query) Build() (variants.Dataquery, error) {
	if q.sql == "" {
		b := prometheus.NewDataqueryBuilder().Expr(q.expr).LegendFormat(q.legend).RefId(q.ref).Datasource(prometheusSource)
		if q.now {
			return b.Instant().Build()
		}
		return b.Range().Build()
	}
	format, kind := formatTable, "table"
	if q.series {
		format, kind = formatSeries, "timeseries"
	}
	return variants.UnknownDataquery{"refId": q.ref, "datasource": clickhouseSource, "editorType": "sql", "rawSql": q.sql, "format": format, "queryType": kind}, nil
}
