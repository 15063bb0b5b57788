//! What of the known answers is not replayed, and why: whole lines, or fields of them.
//!
//! The list is held to the lines: an entry for a field that agrees after all fails the replay.

/// Lines, or fields of them, that a store has no answer to, or by our contract a different one.
#[derive(Debug, Clone, Copy)]
pub struct NotReplayed {
    /// The lines.
    pub ids: &'static [&'static str],
    /// The fields; none means the whole line.
    pub fields: &'static [&'static str],
    /// Why, in one sentence.
    pub reason: &'static str,
}

impl NotReplayed {
    const fn lines(ids: &'static [&'static str], reason: &'static str) -> Self {
        Self::fields(ids, &[], reason)
    }

    const fn fields(
        ids: &'static [&'static str],
        fields: &'static [&'static str],
        reason: &'static str,
    ) -> Self {
        Self {
            ids,
            fields,
            reason,
        }
    }

    /// Why the line `id` is not replayed at all, if so.
    pub fn reason_for(id: &str) -> Option<&'static str> {
        let whole = |listed: &&Self| listed.fields.is_empty() && listed.ids.contains(&id);
        NOT_REPLAYED.iter().find(whole).map(|listed| listed.reason)
    }

    /// Whether this field of the line `id` is listed.
    pub fn names(id: &str, field: &str) -> bool {
        NOT_REPLAYED
            .iter()
            .any(|listed| listed.ids.contains(&id) && listed.fields.contains(&field))
    }
}

/// All that is not replayed, and why.
pub const NOT_REPLAYED: &[NotReplayed] = &[
    NotReplayed::lines(
        &["envoy-hits-addend"],
        "how the gRPC front end reads `hits_addend`; a store is given the cost",
    ),
    NotReplayed::lines(
        &["envoy-headers"],
        "the text of headers in a gRPC answer, which that front end writes",
    ),
    NotReplayed::lines(
        &["envoy-errors"],
        "malformed gRPC requests and a missing configuration, which no store gets to see",
    ),
    NotReplayed::lines(
        &["envoy-shadow"],
        "shadow mode belongs to the rule; a store reports what the limit itself says",
    ),
    NotReplayed::lines(
        &["erl-draft6", "erl-draft7", "erl-draft8"],
        "the text of headers in drafts 6 to 8; ours are draft 10, and not a store's to write",
    ),
    NotReplayed::fields(
        &["redis-cell-main"],
        &["rate"],
        "says the limit once more in words, and answers nothing",
    ),
    NotReplayed::fields(
        &["redis-cell-e2e", "redis-cell-readme"],
        &["resp"],
        "the command that was sent, which the RESP front end reads",
    ),
    NotReplayed::fields(
        &["limits-moving-empty"],
        &["reset_in"],
        "an untouched key is whole now by our contract, and not a window later",
    ),
    NotReplayed::fields(
        &[
            "envoy-basic",
            "envoy-over-minute",
            "envoy-near-under",
            "envoy-near-at",
            "envoy-near-over",
            "envoy-add-under",
            "envoy-add-some-near",
            "envoy-add-all-near",
            "envoy-add-some-over",
            "envoy-add-three",
            "envoy-add-all-over",
        ],
        &[
            "near_limit_ratio",
            "near_limit_hits",
            "over_limit_hits",
            "within_limit_hits",
        ],
        "Envoy's statistics split one request's cost by a threshold; an outcome has one verdict",
    ),
    NotReplayed::fields(
        &[
            "envoy-over-minute",
            "envoy-near-over",
            "envoy-add-some-over",
            "envoy-add-three",
            "envoy-add-all-over",
        ],
        &["counter_after"],
        "Envoy counts denied requests; by our contract a denied request changes nothing",
    ),
    NotReplayed::fields(
        &["envoy-add-some-over", "envoy-add-three"],
        &["remaining"],
        "Envoy charged the denied request; by our contract what was left of the window stays",
    ),
];
