//! Reads descriptors as they are written, and says everything that is wrong with them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use super::counter::scope_of_steps;
use super::descriptor::{Descriptor, DescriptorStep, Wanted};
use super::identity::id_of;
use super::places;
use super::read_grant::read_rate_limit;
use super::spelling::{rewritten, typed};
use super::stat::stat_of_steps;
use super::tree::{Branch, DescriptorLevel, Descriptors};
use super::wildcard::Wildcard;
use crate::credentials::{are_credentials, credentials, folded};
use crate::internal::document::{Fields, Node, Place, Problems, Spot, Value};
use crate::rules::grant::Grant;
use crate::rules::keys::{DESCRIPTOR, DOMAIN};
use crate::rules::rule::{Consistency, Mode, Rule};
use crate::rules::{RuleSet, RuleSettings, write};
use serde_json::{Value as Json, json};

/// Whether the first document is of this form.
pub(in crate::rules) fn are_written(documents: &[Node]) -> bool {
    let first = documents.first();
    let has = |key: &str| first.is_some_and(|node| node.get(key).is_some());
    !has("rules") && (has("domain") || has("descriptors"))
}

/// Documents of one file, or of one resource of a management server: each a domain.
#[doc(hidden)]
#[derive(Debug)]
pub struct DescriptorSource {
    /// The name that problems have.
    pub name: Arc<str>,
    /// The documents.
    pub documents: Vec<Node>,
}

/// The rules of these documents, each a domain; nothing if there is an error.
pub(in crate::rules) fn read(
    documents: &[Node],
    settings: &RuleSettings,
    problems: &mut Problems,
) -> Option<RuleSet> {
    let mut reader = DescriptorReader::new(settings, problems);
    for node in documents {
        reader.document(node);
    }
    reader.rules()
}

/// The same for several sources.
pub(in crate::rules) fn read_all(
    sources: &[DescriptorSource],
    settings: &RuleSettings,
    problems: &mut Problems,
) -> Option<RuleSet> {
    let mut reader = DescriptorReader::new(settings, problems);
    for source in sources {
        reader.problems.begin(&source.name);
        for node in &source.documents {
            reader.document(node);
        }
    }
    reader.rules()
}

struct DescriptorReader<'p> {
    settings: &'p RuleSettings,
    problems: &'p mut Problems,
    rules: Vec<Arc<Rule>>,
    /// Where the rule with an id stands.
    places: HashMap<String, Place>,
    descriptors: Descriptors,
    /// The documents in their canonical form.
    written: Vec<Json>,
}

/// The options of a descriptor, without its limit and its children.
struct Modes {
    is_shadow: bool,
    is_quota: bool,
    /// Whether its stats are named by all values of the request.
    is_detailed: bool,
    metadata: Json,
}

impl<'p> DescriptorReader<'p> {
    fn new(settings: &'p RuleSettings, problems: &'p mut Problems) -> Self {
        Self {
            settings,
            problems,
            rules: Vec::new(),
            places: HashMap::new(),
            descriptors: Descriptors::new(settings.clone()),
            written: Vec::new(),
        }
    }

    /// All of them, unless there is an error.
    fn rules(self) -> Option<RuleSet> {
        if self.problems.has_errors() {
            return None;
        }
        let mut descriptors = self.descriptors;
        descriptors.written = Json::Array(self.written);
        Some(RuleSet::by_descriptors(self.rules, descriptors))
    }

    fn document(&mut self, node: &Node) {
        let node = rewritten(node, self.problems);
        self.written.push(write::as_written(&node));
        self.domain(&node);
    }

    fn domain(&mut self, node: &Node) -> Option<()> {
        let document = Spot::document();
        let mut fields = Fields::new(node, document.clone(), &DOMAIN, self.problems)?;
        let domain = fields.take("domain");
        let below = fields.take("descriptors");
        places::ignore_others(&mut fields, &DOMAIN, self.problems);
        fields.done(self.problems);
        let Some((spot, domain_node)) = domain else {
            let message = "the key `domain` is missing; give the domain that Envoy's filter names";
            return document
                .field("domain")
                .refused(node, message, self.problems);
        };
        let domain = spot.text(domain_node, self.problems)?;
        if domain.is_empty() {
            let message = "a domain cannot be empty; give the one that Envoy's filter names";
            return spot.refused(domain_node, message, self.problems);
        }
        if !self.settings.merge_domains && self.descriptors.has_domain(domain) {
            let message = format!(
                "the domain `{domain}` is there twice; put its descriptors together, or set `merge_domains`"
            );
            self.problems.error(&domain_node.place, &spot, message);
        }
        let mut level = DescriptorLevel::default();
        if self.settings.merge_domains {
            level = self.descriptors.take_domain(domain);
        }
        self.level(below, domain, &mut Vec::new(), &mut level);
        self.descriptors.add(domain, level);
        Some(())
    }

    /// Adds the descriptors of a list.
    fn level(
        &mut self,
        list: Option<(Spot, &Node)>,
        domain: &str,
        steps: &mut Vec<DescriptorStep>,
        level: &mut DescriptorLevel,
    ) {
        let Some((spot, node)) = list else {
            return;
        };
        let Value::List(items) = &node.value else {
            let message = format!(
                "this must be a list of descriptors, each beginning with `- key:`, not {}",
                node.kind()
            );
            self.problems.error(&node.place, &spot, message);
            return;
        };
        for (index, item) in items.iter().enumerate() {
            self.descriptor(item, &spot.item(index), domain, steps, level);
        }
    }

    fn descriptor(
        &mut self,
        node: &Node,
        spot: &Spot,
        domain: &str,
        steps: &mut Vec<DescriptorStep>,
        level: &mut DescriptorLevel,
    ) -> Option<()> {
        let mut fields = Fields::new(node, spot.clone(), &DESCRIPTOR, self.problems)?;
        let (key, value) = (fields.take("key"), fields.take("value"));
        let rate_limit = fields.take("rate_limit");
        let below = fields.take("descriptors");
        let own = fields.take("tidegate");
        let is_shared = read_flag(&fields, "share_threshold", self.problems);
        let modes = Modes {
            is_shadow: read_flag(&fields, "shadow_mode", self.problems).0,
            is_quota: read_flag(&fields, "quota_mode", self.problems).0,
            is_detailed: read_flag(&fields, "detailed_metric", self.problems).0,
            metadata: fields.take("metadata").map_or(Json::Null, |(spot, node)| {
                spot.entries(node, self.problems);
                typed(node)
            }),
        };
        let names_stat = read_flag(&fields, "value_to_metric", self.problems).0;
        places::ignore_others(&mut fields, &DESCRIPTOR, self.problems);
        fields.done(self.problems);

        let step = self.step(node, spot, key, value, is_shared);
        let Some(step) = step else {
            // The children may have problems, too.
            steps.push(DescriptorStep {
                key: String::new(),
                wanted: Wanted::Any,
                names_stat: false,
            });
            self.level(below, domain, steps, &mut DescriptorLevel::default());
            steps.pop();
            return None;
        };
        let step = DescriptorStep {
            names_stat: names_stat && self.can_name_stats(&step),
            ..step
        };
        steps.push(step.clone());
        let rule =
            rate_limit.and_then(|limit| self.rule(&limit, own.as_ref(), &modes, domain, steps));
        if let (None, Some((spot, node))) = (&rate_limit_of(node), own) {
            let message = "this says how a limit is counted, and there is none; add a `rate_limit`, or remove it";
            self.problems.error(&node.place, &spot, message);
        }
        let mut branch = Branch {
            rule,
            ..Branch::default()
        };
        self.level(below, domain, steps, &mut branch.below);
        steps.pop();
        if !level.add(&step, branch) {
            let message = "there is the same descriptor before; put the two together";
            self.problems.error(&node.place, spot, message);
        }
        Some(())
    }

    fn step(
        &mut self,
        node: &Node,
        spot: &Spot,
        key: Option<(Spot, &Node)>,
        value: Option<(Spot, &Node)>,
        (is_shared, shared_at): (bool, Option<(Spot, &Node)>),
    ) -> Option<DescriptorStep> {
        let Some((key_spot, key_node)) = key else {
            let message = "the key `key` is missing; give the key of the entries that are meant";
            return spot.field("key").refused(node, message, self.problems);
        };
        let key = key_spot.text(key_node, self.problems)?;
        if key.is_empty() {
            let message = "this cannot be empty; give the key of the entries that are meant";
            return key_spot.refused(key_node, message, self.problems);
        }
        let value = match value {
            Some((spot, node)) => spot.text(node, self.problems)?,
            None => "",
        };
        let mut value = Cow::Borrowed(value);
        if are_credentials(key) {
            // A pattern is not decoded.
            value = match credentials(value.clone()) {
                Ok(form) if !value.contains('*') => form,
                _ => folded(value),
            };
        }
        let wanted = match Wildcard::parse(&value) {
            Some(wildcard) => Wanted::Fitting {
                wildcard,
                is_shared,
            },
            None if value.is_empty() => Wanted::Any,
            None => Wanted::Text(value.into_owned()),
        };
        if let (true, Some((spot, node))) = (is_shared, shared_at)
            && !matches!(wanted, Wanted::Fitting { .. })
        {
            let message = "values can share a counter only where the `value` has a `*` for them";
            return spot.refused(node, message, self.problems);
        }
        Some(DescriptorStep {
            key: key.to_owned(),
            wanted,
            names_stat: false,
        })
    }

    /// Whether the value of a request may name stats: the file leaves it open, and it is no secret.
    fn can_name_stats(&self, step: &DescriptorStep) -> bool {
        step.wanted.is_counted_by() && !self.settings.is_secret(&step.key)
    }

    /// The steps to a limit. Where its stats are detailed, all values that may name them do.
    fn steps_of_rule(&self, steps: &[DescriptorStep], modes: &Modes) -> Vec<DescriptorStep> {
        let mut steps = steps.to_vec();
        if modes.is_detailed {
            for step in &mut steps {
                step.names_stat = self.can_name_stats(step);
            }
        }
        steps
    }

    /// Makes a rule of a limit. Its index.
    fn rule(
        &mut self,
        (spot, node): &(Spot, &Node),
        own: Option<&(Spot, &Node)>,
        modes: &Modes,
        domain: &str,
        steps: &[DescriptorStep],
    ) -> Option<u32> {
        let (before, is_counted_by_file) = (self.problems.error_count(), own.is_some());
        let limit = read_rate_limit((spot, node), own, self.settings.units, self.problems);
        if self.problems.error_count() > before {
            return None;
        }
        let (limit, own) = limit?;
        let id = id_of(domain, steps);
        if self.places.insert(id.clone(), node.place.clone()).is_some() {
            let message = format!(
                "this limit and another would both be the rule `{id}`; change a value or a key"
            );
            return spot.refused(node, message, self.problems);
        }
        let counted_by = steps.iter().filter(|step| step.wanted.is_counted_by());
        let per: Vec<String> = counted_by.map(|step| step.key.clone()).collect();
        let mut scope = scope_of_steps(domain, steps, self.settings);
        let mode = if modes.is_shadow {
            Mode::Shadow
        } else {
            Mode::Enforce
        };
        if own.sync == Consistency::Leased && mode == Mode::Enforce {
            scope = scope.leased();
        }
        let has_limit = matches!(limit.grant, Grant::Limits(_));
        let algorithm = own.algorithm();
        let mut rule = Rule {
            id,
            scope,
            per,
            mode,
            algorithm: has_limit.then_some(algorithm),
            max_delay: own.max_delay,
            on_store_failure: own.on_store_failure,
            sync: own.sync,
            ipv6_prefix: self.settings.ipv6_prefix,
            descriptor: Some(Box::new(Descriptor {
                domain: domain.to_owned(),
                stat: stat_of_steps(domain, steps),
                steps: self.steps_of_rule(steps, modes),
                name: limit.name,
                replaces: limit.replaces,
                is_quota: modes.is_quota || self.settings.quota,
                is_counted_by_file,
                unit: limit.unit,
                units: self.settings.units,
                metadata: modes.metadata.clone(),
            })),
            settles: true,
            ..Rule::granting(limit.grant)
        };
        rule.written = written(&rule, domain, steps, modes, node);
        self.rules.push(Arc::new(rule));
        u32::try_from(self.rules.len() - 1).ok()
    }
}

/// A key that says `true` or `false`; also where it stands, if it is there.
pub(super) fn read_flag<'n>(
    fields: &Fields<'n>,
    key: &str,
    problems: &mut Problems,
) -> (bool, Option<(Spot, &'n Node)>) {
    let taken = fields.take(key);
    let said = taken
        .as_ref()
        .and_then(|(spot, node)| spot.boolean(node, problems));
    (said.unwrap_or(false), taken)
}

fn rate_limit_of(node: &Node) -> Option<&Node> {
    node.get("rate_limit")
}

/// The rule as JSON, as the API shows it: like any other, with its position in the file.
fn written(
    rule: &Rule,
    domain: &str,
    steps: &[DescriptorStep],
    modes: &Modes,
    limit: &Node,
) -> Json {
    let Json::Object(mut written) = rule.to_json() else {
        return Json::Null;
    };
    let step = |step: &DescriptorStep| match &step.wanted {
        Wanted::Any => json!({"key": step.key}),
        Wanted::Text(text) => json!({"key": step.key, "value": text}),
        Wanted::Fitting { wildcard, .. } => json!({"key": step.key, "value": wildcard.to_string()}),
    };
    let way: Vec<Json> = steps.iter().map(step).collect();
    written.insert("domain".to_owned(), json!(domain));
    written.insert("descriptor".to_owned(), Json::Array(way));
    written.insert("rate_limit".to_owned(), write::as_written(limit));
    if modes.is_quota {
        written.insert("quota_mode".to_owned(), json!(true));
    }
    if !modes.metadata.is_null() {
        written.insert("metadata".to_owned(), modes.metadata.clone());
    }
    Json::Object(written)
}
