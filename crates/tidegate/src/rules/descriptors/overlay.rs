//! An overlay: how limits are counted whose file, or management server, does not say it. Applied to rules that are read,
//! so that it can change without them.

use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value as Json;

use super::Units;
use super::descriptor::Descriptor;
use super::read_grant::{Own, grant_of, read_own};
use super::stat::written_path;
use super::wildcard::Wildcard;
use crate::internal::document::{Fields, Node, Place, Problems, Source, Spot, Value};
use crate::rules::grant::Grant;
use crate::rules::keys::OVERLAY;
use crate::rules::rule::{Consistency, Mode, Rule};

/// How limits are counted, by their paths. The first item that fits a limit counts.
///
/// ```
/// use tidegate::rules::{Overlay, Source};
///
/// let text = "- {path: 'infra/gw/http.*', tidegate: {algorithm: token_bucket, burst: 20}}";
/// Overlay::read(&Source::new("overlay.yaml", text))?;
/// # Ok::<(), tidegate::rules::Problems>(())
/// ```
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    items: Vec<OverlayItem>,
}

#[derive(Debug, PartialEq, Eq)]
struct OverlayItem {
    path: OverlayPath,
    own: Own,
}

/// A path, or a pattern in which `*` stands for anything.
#[derive(Debug, PartialEq, Eq)]
enum OverlayPath {
    Text(String),
    Fitting(Wildcard),
}

/// The overlay that rules are read with. Shared by the copies of the settings, so that it can be replaced.
#[derive(Debug, Clone, Default)]
pub struct CurrentOverlay(Arc<RwLock<Arc<Overlay>>>);

impl CurrentOverlay {
    /// Replaces it. Rules that are read already stay as they are until they are
    /// [overlaid again](crate::rules::RuleSet::overlaid).
    pub fn replace(&self, overlay: Overlay) {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(overlay);
    }

    fn load(&self) -> Arc<Overlay> {
        let current = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current)
    }
}

impl PartialEq for CurrentOverlay {
    fn eq(&self, other: &Self) -> bool {
        self.load() == other.load()
    }
}

impl Eq for CurrentOverlay {}

impl Overlay {
    /// The overlay of a file.
    pub fn read(source: &Source) -> Result<Self, Problems> {
        let mut problems = Problems::new();
        let node = source.read(&mut problems);
        let items = match node.as_ref().map(|node| (node, &node.value)) {
            Some((_, Value::List(items))) => items.as_slice(),
            Some((node, Value::Map(_) | Value::Scalar(_))) => {
                let message = format!(
                    "this must be a list of items such as `- {{path: \"web.*\", tidegate: {{algorithm: token_bucket}}}}`, not {}",
                    node.kind()
                );
                problems.error(&node.place, &Spot::document(), message);
                &[]
            }
            Some((_, Value::Null)) | None => &[],
        };
        let items = items.iter().enumerate();
        let items = items
            .filter_map(|(index, node)| {
                OverlayItem::read(&Spot::document().item(index), node, &mut problems)
            })
            .collect();
        problems.sort();
        if problems.has_errors() {
            return Err(problems);
        }
        Ok(Self { items })
    }

    fn own_for(&self, descriptor: &Descriptor) -> Option<&Own> {
        let written = written_path(&descriptor.domain, &descriptor.steps);
        let fits =
            |item: &&OverlayItem| item.path.fits(&descriptor.stat) || item.path.fits(&written);
        self.items.iter().find(fits).map(|item| &item.own)
    }
}

impl OverlayItem {
    fn read(spot: &Spot, node: &Node, problems: &mut Problems) -> Option<Self> {
        let fields = Fields::new(node, spot.clone(), &OVERLAY, problems)?;
        let (path, own) = (fields.take("path"), fields.take("tidegate"));
        let all_known = fields.done(problems);
        for (taken, key, advice) in [
            (
                &path,
                "path",
                "give the path of limits, such as `infra/gw/http.*`",
            ),
            (
                &own,
                "tidegate",
                "say how they are counted, such as `{algorithm: token_bucket}`",
            ),
        ] {
            if taken.is_none() && all_known {
                let message = format!("the key `{key}` is missing; {advice}");
                problems.error(&node.place, &spot.field(key), message);
            }
        }
        let path = path.and_then(|(spot, node)| spot.text(node, problems))?;
        let before = problems.error_count();
        let (own, _) = read_own(Some(&own?), problems);
        (problems.error_count() == before).then(|| Self {
            path: OverlayPath::parse(path),
            own,
        })
    }
}

impl OverlayPath {
    fn parse(text: &str) -> Self {
        match Wildcard::parse(text) {
            Some(wildcard) => Self::Fitting(wildcard),
            None => Self::Text(text.to_owned()),
        }
    }

    fn fits(&self, path: &str) -> bool {
        match self {
            Self::Text(text) => text == path,
            Self::Fitting(wildcard) => wildcard.matches(path),
        }
    }
}

/// A rule as the overlay says that it is counted. The rule itself if the overlay does not name it, or it says itself
/// how it is counted; also if the algorithm cannot count it, which is a warning.
pub(in crate::rules) fn overlaid(
    rule: &Arc<Rule>,
    current: &CurrentOverlay,
    units: Units,
    warnings: &mut Problems,
) -> Arc<Rule> {
    let overlay = current.load();
    let Some(descriptor) = rule.descriptor.as_deref() else {
        return Arc::clone(rule);
    };
    let own = overlay.own_for(descriptor);
    let (Some(own), false, Some(unit)) = (own, descriptor.is_counted_by_file, descriptor.unit)
    else {
        return Arc::clone(rule);
    };
    let count = match &rule.grants[..] {
        [Grant::Limits(limits)] => limits.first().map_or(0, |limit| limit.rate().count),
        _ => return Arc::clone(rule),
    };
    match grant_of(count, unit, own, units) {
        Ok(grant) => Arc::new(counted(rule, grant, own)),
        Err(error) => {
            let spot = Spot::rule_with_id(rule.id());
            let message = format!("the overlay has no effect on this limit: {error}");
            warnings.warning(&Place::Nowhere, &spot, message);
            Arc::clone(rule)
        }
    }
}

/// The rule with another way of counting.
fn counted(rule: &Rule, grant: Grant, own: &Own) -> Rule {
    let is_leased = own.sync == Consistency::Leased && rule.mode == Mode::Enforce;
    let mut counted = Rule {
        algorithm: matches!(grant, Grant::Limits(_)).then(|| own.algorithm()),
        grants: vec![grant],
        max_delay: own.max_delay,
        on_store_failure: own.on_store_failure,
        sync: own.sync,
        scope: if is_leased {
            rule.scope.clone().leased()
        } else {
            rule.scope.clone()
        },
        ..rule.clone()
    };
    let mut written = counted.to_json();
    if let (Json::Object(written), Json::Object(before)) = (&mut written, &rule.written) {
        for key in [
            "domain",
            "descriptor",
            "rate_limit",
            "quota_mode",
            "metadata",
        ] {
            if let Some(value) = before.get(key) {
                written.insert(key.to_owned(), value.clone());
            }
        }
    }
    counted.written = written;
    counted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{RuleSet, RuleSettings};

    const RULES: &str = "
domain: infra/gw/http
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 100}}
  - {key: a, value: '10.0.0.1', rate_limit: {unit: minute, requests_per_unit: 100}}
  - {key: own, rate_limit: {unit: minute, requests_per_unit: 100}, tidegate: {algorithm: sliding_window_log}}
  - {key: month, rate_limit: {unit: month, requests_per_unit: 100}}
  - {key: free, rate_limit: {unlimited: true}}
---
domain: other
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 100}}
";

    fn overlay(text: &str) -> Overlay {
        Overlay::read(&Source::new("overlay.yaml", text)).unwrap()
    }

    /// The algorithms of the rules, by their ids.
    fn algorithms(rules: &RuleSet) -> Vec<String> {
        let written = |rule: &Arc<Rule>| {
            let algorithm = rule.written()["algorithm"].as_str().unwrap_or("none");
            let descriptor = rule.descriptor.as_deref().unwrap();
            format!("{}={algorithm}", descriptor.stat)
        };
        rules.iter().map(written).collect()
    }

    #[test]
    fn the_first_item_that_fits_a_path_counts() {
        let settings = RuleSettings::default();
        settings.overlay.replace(overlay(
            "
- {path: 'infra/gw/http.a_10.0.0.1', tidegate: {algorithm: sliding_window_counter}}
- {path: 'infra/gw/http.*', tidegate: {algorithm: token_bucket, burst: 20, on_store_failure: error}}
- {path: '*', tidegate: {algorithm: sliding_window_slots}}
",
        ));
        let rules = RuleSet::read(&Source::new("rules.yaml", RULES), &settings).unwrap();
        let expected = [
            "infra/gw/http.a=token_bucket",
            "infra/gw/http.a_10_0_0_1=sliding_window_counter",
            "infra/gw/http.own=sliding_window_log",
            "infra/gw/http.month=fixed_window",
            "infra/gw/http.free=none",
            "other.a=sliding_window_slots",
        ];
        assert_eq!(algorithms(&rules), expected);
        let warnings: Vec<String> = rules.warnings().iter().map(ToString::to_string).collect();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("the overlay has no effect on this limit"));
        let written = rules.iter().next().unwrap().written();
        assert_eq!(written["limit"], "100/minute burst 20");
        assert_eq!(written["on_store_failure"], "error");
        assert_eq!(written["domain"], "infra/gw/http");

        settings.overlay.replace(Overlay::default());
        let rules = rules.overlaid();
        assert_eq!(algorithms(&rules)[0], "infra/gw/http.a=fixed_window");
        assert_eq!(rules.warnings().iter().count(), 0);
    }

    #[test]
    fn an_invalid_overlay_is_refused() {
        #[rustfmt::skip]
        let table = [
            ("{path: a}",                                               "must be a list"),
            ("- {tidegate: {algorithm: token_bucket}}",                 "the key `path` is missing"),
            ("- {path: a}",                                             "the key `tidegate` is missing"),
            ("- {path: a, tidegate: {algorithm: bucket}}",              "token_bucket"),
            ("- {path: a, tidegate: {burst: 5}}",                       "say which"),
            ("- {path: a, limit: 5/minute}",                            "unknown key `limit`"),
            ("- {path: a, tidegate: {algorithm: sliding_window_log, sync: leased}}", "write `sync: exact`"),
        ];
        for (text, expected) in table {
            let problems = Overlay::read(&Source::new("overlay.yaml", text)).unwrap_err();
            assert!(
                problems.to_string().contains(expected),
                "{text}: {problems}"
            );
        }
        for nothing in ["[]", "# none yet\n"] {
            assert!(Overlay::read(&Source::new("overlay.yaml", nothing)).is_ok());
        }
    }
}
