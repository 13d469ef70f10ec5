{{define "fx" -}}
{{/* cost, 1e-12 USD, in the currency at the rate of fx_day: half even on both sides of zero. */ -}}
indexOf({fx_days:Array(String)}, toString(fx_day)) AS fx_at, throwIf(fx_at = 0 AND cost != 0, 'a day without a rate') AS fx_missing,
        toInt256(if(fx_at = 0, '1', {fx_rates:Array(String)}[fx_at])) AS fx_rate, toInt256(abs(cost)) * toInt256('1000000000000') AS fx_amount, intDiv(fx_amount, fx_rate) AS fx_whole, 2 * (fx_amount - fx_whole * fx_rate) AS fx_twice,
        fx_whole + (fx_twice > fx_rate OR fx_twice = fx_rate AND fx_whole % 2 = 1) AS fx_near, if(cost < 0, -fx_near, fx_near) AS converted
{{- end}}
