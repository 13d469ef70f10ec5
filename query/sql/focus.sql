-- Signed sums of everything that one unit price may hold for: the price line, the service tier, and between the sizes and times
-- where prices change, of a day and for good. late is the month in which an entry was booked that corrects a closed one, else 1970.
SELECT *, throwIf(foreign != 0, 'a row of another tenant') AS guard FROM (
    SELECT tenant, {{.Day}} AS day, {{.Late}} AS late,
        toString(j.cost_status) AS state, if(state IN ('priced', 'free', 'unpriced', 'unknown') OR j.kind IN ('model', 'embedding', 'rerank', 'image', 'speech', 'transcription'), j.provider, '') AS seller,
        if(state IN ('priced', 'free', 'unpriced', 'unknown') OR j.kind IN ('model', 'embedding', 'rerank', 'image', 'speech', 'transcription'), j.model, '') AS product,
        price_id, currency, service_tier, if(j.kind = 'adjustment', j.scope, '') AS booked_by, if(j.kind = 'adjustment', j.name, '') AS reason,
        arrayCount(x -> x < j.tok_input + j.tok_cache_read + j.tok_cache_write_5m + j.tok_cache_write_1h + j.tok_input_audio + j.tok_input_image, {above:Array(UInt64)}) AS size,
        substring(price_id, position(price_id, ':') + 1) AS named,
        if(has({by_clock:Array(String)}, named), toUInt32(toDayOfWeek(toDateTime(j.started_at, 'UTC'), 0, 'UTC') * 10000 + arrayCount(x -> x <= toHour(j.started_at, 'UTC') * 60 + toMinute(j.started_at, 'UTC'), {minutes:Array(UInt16)})), toUInt32(0)) AS clock,
        {{if .Eras}}transform(named, {era_lines:Array(String)}, {era_calendars:Array(UInt16)}, toUInt16(0)) AS calendar,
        if(calendar = 0, toUInt64(0), toUInt64(arrayCount((c, x) -> c = calendar AND x <= toUnixTimestamp64Nano(j.started_at), {era_of:Array(UInt16)}, {era_at:Array(Int64)}))){{else}}toUInt64(0){{end}} AS era,
        max(j.tok_input + j.tok_cache_read + j.tok_cache_write_5m + j.tok_cache_write_1h + j.tok_input_audio + j.tok_input_image) AS input_of_one, min(j.started_at) AS started,
        sum(toInt64(j.sign)) AS lines, sum(j.sign * toInt64(j.part = 0)) AS q_request, sum(j.sign * toInt128(ifNull(j.cost, 0))) AS cost, sum(j.sign * toInt128(j.wasted)) AS wasted, toInt64(count()) AS entries,
        sum(j.sign * (toInt64(j.model_calls) + j.tool_calls + j.retries + j.hidden_attempts + j.fallbacks + j.hedges)) AS attempts, sum(j.sign * (toInt64(j.retries) + j.hidden_attempts)) AS retries,
        sum(j.sign * toInt64(j.tok_input)) AS q_input, sum(j.sign * toInt64(j.tok_cache_read)) AS q_cache_read, sum(j.sign * toInt64(j.tok_cache_write_5m)) AS q_cache_write_5m,
        sum(j.sign * toInt64(j.tok_cache_write_1h)) AS q_cache_write_1h, sum(j.sign * toInt64(j.tok_output)) AS q_output, sum(j.sign * toInt64(j.tok_input_audio)) AS q_input_audio,
        sum(j.sign * toInt64(j.tok_input_image)) AS q_input_image, sum(j.sign * toInt64(j.tok_output_audio)) AS q_output_audio, sum(j.sign * toInt64(j.tok_output_image)) AS q_output_image,
        sum(j.sign * toInt64(j.web_searches)) AS q_web_search, sum(j.sign * toInt64(j.images)) AS q_image, sum(j.sign * toInt64(j.pages)) AS q_page, sum(j.sign * toInt64(j.media_ms)) AS q_second,
        max(NOT ({{.Allowed}})) AS foreign
    FROM journal AS j
    LEFT JOIN (
        SELECT tenant, groupArray((starts_at, ends_at, booked_through + 1)) AS months
        FROM (SELECT DISTINCT tenant, starts_at, ends_at, booked_through FROM closes WHERE {{.Tenants}})
        GROUP BY tenant
    ) AS c ON j.tenant = c.tenant
    WHERE {{.Tenants}} AND j.started_at >= toDateTime64({from:String}, 9, 'UTC') AND j.started_at < toDateTime64({to:String}, 9, 'UTC')
        AND j.recorded_at >= toDateTime64({from:String}, 9, 'UTC') - INTERVAL 10 MINUTE
    GROUP BY tenant, day, late, state, seller, product, price_id, currency, service_tier, booked_by, reason, size, clock, era
    HAVING lines != 0 OR cost != 0 OR wasted != 0 OR attempts != 0 OR retries != 0 OR q_input != 0 OR q_cache_read != 0 OR q_cache_write_5m != 0 OR q_cache_write_1h != 0 OR q_output != 0
        OR q_input_audio != 0 OR q_input_image != 0 OR q_output_audio != 0 OR q_output_image != 0 OR q_web_search != 0 OR q_image != 0 OR q_page != 0 OR q_second != 0
    LIMIT {limit:UInt32}
)
ORDER BY tenant, day, late, seller, product, state, price_id, service_tier, booked_by, reason, size, clock, era
