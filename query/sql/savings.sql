-- Signed sums of everything that one unit price may hold for, as in focus.sql, by the dimensions of the question.
SELECT *, throwIf(max(foreign) OVER () != 0, 'a row of another tenant') AS guard FROM (
    SELECT {{range .Columns}}j.{{.}} AS {{.}}, {{end}}j.tenant AS tenant, j.provider AS seller, j.model AS product, toString(j.cost_status) AS state, price_id, currency, service_tier,{{if .FX}} {{.FXDay}} AS fx_day,{{end}}
        arrayCount(x -> x < j.tok_input + j.tok_cache_read + j.tok_cache_write_5m + j.tok_cache_write_1h + j.tok_input_audio + j.tok_input_image, {above:Array(UInt64)}) AS size,
        substring(price_id, position(price_id, ':') + 1) AS named,
        if(has({by_clock:Array(String)}, named), toUInt32(toDayOfWeek(toDateTime(j.started_at, 'UTC'), 0, 'UTC') * 10000 + arrayCount(x -> x <= toHour(j.started_at, 'UTC') * 60 + toMinute(j.started_at, 'UTC'), {minutes:Array(UInt16)})), toUInt32(0)) AS clock,
        {{if .Eras}}transform(named, {era_lines:Array(String)}, {era_calendars:Array(UInt16)}, toUInt16(0)) AS calendar,
        if(calendar = 0, toUInt64(0), toUInt64(arrayCount((c, x) -> c = calendar AND x <= toUnixTimestamp64Nano(j.started_at), {era_of:Array(UInt16)}, {era_at:Array(Int64)}))){{else}}toUInt64(0){{end}} AS era,
        max(j.tok_input + j.tok_cache_read + j.tok_cache_write_5m + j.tok_cache_write_1h + j.tok_input_audio + j.tok_input_image) AS input_of_one, min(j.started_at) AS started, toInt64(count()) AS entries,
        sum(j.sign * (toInt64(j.model_calls) + j.tool_calls + j.retries + j.fallbacks + j.hedges)) AS calls,
        sumIf(j.sign * (toInt64(j.model_calls) + j.tool_calls + j.retries + j.fallbacks + j.hedges), j.tok_cache_read + j.tok_cache_write_5m + j.tok_cache_write_1h > 0) AS cached, sum(j.sign * toInt128(ifNull(j.cost, 0))) AS cost,
        sum(j.sign * toInt64(bitAnd(j.flags, {unsaid:UInt64}) != 0)) AS unsaid,
        sum(j.sign * toInt64(j.part = 0)) AS q_request, sum(j.sign * toInt64(j.tok_input)) AS q_input, sum(j.sign * toInt64(j.tok_cache_read)) AS q_cache_read, sum(j.sign * toInt64(j.tok_cache_write_5m)) AS q_cache_write_5m,
        sum(j.sign * toInt64(j.tok_cache_write_1h)) AS q_cache_write_1h, sum(j.sign * toInt64(j.tok_output)) AS q_output, sum(j.sign * toInt64(j.tok_input_audio)) AS q_input_audio,
        sum(j.sign * toInt64(j.tok_input_image)) AS q_input_image, sum(j.sign * toInt64(j.tok_output_audio)) AS q_output_audio, sum(j.sign * toInt64(j.tok_output_image)) AS q_output_image,
        sum(j.sign * toInt64(j.web_searches)) AS q_web_search, sum(j.sign * toInt64(j.images)) AS q_image, sum(j.sign * toInt64(j.pages)) AS q_page, sum(j.sign * toInt64(j.media_ms)) AS q_second,
        max(NOT ({{.Allowed}})) AS foreign
    FROM journal AS j
    WHERE {{template "entries_time" .}} AND j.cost_status IN ('priced', 'free', 'unpriced', 'unknown') AND {{.Lines}} AND {{.Filter}}
    GROUP BY {{range .Columns}}{{.}}, {{end}}tenant, seller, product, state, price_id, currency, service_tier, size, clock, era{{if .FX}}, fx_day{{end}}
    HAVING sum(j.sign) != 0 OR cost != 0 OR calls != 0
    LIMIT {limit:UInt32}
)
