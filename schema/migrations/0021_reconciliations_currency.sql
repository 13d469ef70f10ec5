-- A bill in another currency: its own amounts, and the rate with its day and source that each row was converted with. What was
-- known when it was compared, and whether the difference was split by the kinds of token.
ALTER TABLE reconciliations {{.OnCluster}}
    ADD COLUMN IF NOT EXISTS as_of       String COMMENT 'what was known then was compared; empty is when it was made',
    ADD COLUMN IF NOT EXISTS currency    String DEFAULT 'USD' COMMENT 'of the bill',
    ADD COLUMN IF NOT EXISTS billed      Int128 DEFAULT theirs COMMENT '1e-12 of currency',
    ADD COLUMN IF NOT EXISTS rate        String COMMENT 'USD for one of the currency, as its file has it; empty for USD',
    ADD COLUMN IF NOT EXISTS rate_of     Date COMMENT 'the day of the rate, which may be an earlier one than the row',
    ADD COLUMN IF NOT EXISTS rate_source String COMMENT 'name of its file',
    ADD COLUMN IF NOT EXISTS split_by    String COMMENT 'kinds or totals: the tokens that told price from volume'
