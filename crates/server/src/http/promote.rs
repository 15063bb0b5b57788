//! `POST /v1/rules/{id}/promote`: takes a rule that is tried to its next step, or shows the change as a preview.

use std::sync::Arc;

use http::StatusCode;
use http::header::ETAG;
use serde::Deserialize;

use super::call::ApiCall;
use super::history::{compared, reply};
use super::rules::{change, expected, no_such_rule, one, with_header};
use super::{body, need_rules};
use crate::problem::{ApiReply, HttpProblem};
use crate::rulebook::{ChangeError, Preview, RuleChange, etag_of};

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct PromoteBody {
    #[serde(default)]
    dry_run: bool,
}

pub(super) async fn promote(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let (admin, [id, _]) = (&call.api.admin, &call.names);
    let body = call.body.read(&admin.decider.bodies).await?;
    let PromoteBody { dry_run } = if body.is_empty() {
        PromoteBody::default()
    } else {
        body::parse(&body)?
    };
    need_rules(&admin.decider)?;
    let tag = match admin.gate.rules().get(id) {
        Some(rule) => etag_of(&rule),
        // Rules of a file are not changed here, whatever their ids are.
        None if admin.book.file().is_some() => String::new(),
        None => return Err(no_such_rule(id)),
    };
    let expected = expected(&call.parts.headers)?;
    let promotion = RuleChange::Promote(id.clone());
    if !dry_run {
        change(admin, expected, &call.caller.name, promotion).await?;
        let rules = admin.gate.rules();
        let rule = rules.get(id).ok_or_else(|| no_such_rule(id))?;
        return Ok(one(StatusCode::OK, &rule));
    }
    let comparing = {
        let admin = Arc::clone(admin);
        async move {
            let previewing = admin.book.preview(&admin.gate, &expected, &promotion);
            let Preview {
                version,
                before,
                after,
            } = previewing.await?;
            let (before, after) = (Arc::new(before), Arc::new(after));
            let body = compared([version, version + 1], before, after).await?;
            // With this tag in `If-Match`, the previewed rule is promoted, or none.
            Ok::<_, HttpProblem>(with_header(reply(&body), ETAG, &tag))
        }
    };
    let compared = admin.turns.take(comparing).await;
    compared.ok_or(ChangeError::Interrupted)?
}
