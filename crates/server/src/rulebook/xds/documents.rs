//! Resources of a management server as the documents that files of envoyproxy/ratelimit have: in one order, whatever the
//! order of the server is, so that the same limits are the same rules.

use std::sync::Arc;

use prost::Message as _;
use prost_types::value::Kind;
use prost_types::{Struct, Value as Metadata};
use tidegate::document::{Entry, Node, Place, Problem, Scalar, ScalarKind, Value};
use tidegate::rules::DescriptorSource;
use tidegate_codec::grpc::proto::rate_limit::Unit;
use tidegate_codec::grpc::proto::rate_limit_config::{
    ConfiguredDescriptor, ConfiguredDomain, ConfiguredLimit,
};

/// The domains of resources, sorted; or why they cannot be read.
pub(super) fn decoded(resources: &[bytes::Bytes]) -> Result<Vec<ConfiguredDomain>, String> {
    let decode = |(index, bytes): (usize, &bytes::Bytes)| {
        ConfiguredDomain::decode(bytes.clone())
            .map_err(|error| format!("resource {index} is no RateLimitConfig: {error}"))
    };
    let decoded: Result<Vec<_>, _> = resources.iter().enumerate().map(decode).collect();
    let mut domains = decoded?;
    sort(&mut domains);
    Ok(domains)
}

/// Puts resources into their order.
pub(super) fn sort(domains: &mut [ConfiguredDomain]) {
    domains.sort_by(|one, other| (&one.domain, &one.name).cmp(&(&other.domain, &other.name)));
}

/// Resources as documents.
pub(super) fn documents(domains: &[ConfiguredDomain]) -> Vec<DescriptorSource> {
    domains.iter().map(document).collect()
}

/// A problem with the resource and the field that it is in.
pub(super) fn named(problem: &Problem) -> String {
    let resource = problem.source.as_deref().unwrap_or_default();
    let field = match &problem.place {
        Place::Setting(field) => field,
        Place::Text { .. } | Place::Nowhere => &problem.field,
    };
    format!(
        "resource `{resource}`, field `{field}`: {}",
        problem.message
    )
}

fn document(domain: &ConfiguredDomain) -> DescriptorSource {
    // A resource without a name is that of its domain.
    let name = match domain.name.as_str() {
        "" => domain.domain.as_str(),
        name => name,
    };
    let below = list("", &domain.descriptors);
    let node = map("", [Some(text("", "domain", &domain.domain)), below]);
    DescriptorSource {
        name: Arc::from(name),
        documents: vec![node],
    }
}

/// Descriptors in one order. Their fields are named by the order of the server.
fn list(path: &str, descriptors: &[ConfiguredDescriptor]) -> Option<Entry> {
    let mut sorted: Vec<(usize, &ConfiguredDescriptor)> = descriptors.iter().enumerate().collect();
    sorted.sort_by(|(_, one), (_, other)| (&one.key, &one.value).cmp(&(&other.key, &other.value)));
    let item = |(index, descriptor): &(usize, &ConfiguredDescriptor)| {
        item(
            &format!("{}[{index}]", below(path, "descriptors")),
            descriptor,
        )
    };
    let items: Vec<Node> = sorted.iter().map(item).collect();
    let list = |path: String| Node {
        value: Value::List(items),
        place: Place::Setting(path),
    };
    (!descriptors.is_empty()).then(|| entry(path, "descriptors", list))
}

fn item(path: &str, descriptor: &ConfiguredDescriptor) -> Node {
    let value = (!descriptor.value.is_empty()).then(|| text(path, "value", &descriptor.value));
    let limit = descriptor.rate_limit.as_ref();
    let limit = limit.map(|limit| entry(path, "rate_limit", |path| rate_limit(&path, limit)));
    let metadata = descriptor.metadata.as_ref();
    let metadata = metadata.map(|metadata| {
        entry(path, "metadata", |path| Node {
            value: fields(metadata),
            place: Place::Setting(path),
        })
    });
    let entries = [
        Some(text(path, "key", &descriptor.key)),
        value,
        limit,
        list(path, &descriptor.descriptors),
        flag(path, "shadow_mode", descriptor.shadow_mode),
        flag(path, "detailed_metric", descriptor.detailed_metric),
        flag(path, "quota_mode", descriptor.quota_mode),
        metadata,
    ];
    map(path, entries)
}

fn rate_limit(path: &str, limit: &ConfiguredLimit) -> Node {
    // Without a unit the reader says that it is missing; one that is unknown is its number.
    let unit = match Unit::try_from(limit.unit) {
        Ok(Unit::Unknown) => None,
        Ok(unit) => Some(format!("{unit:?}").to_lowercase()),
        Err(_) => Some(limit.unit.to_string()),
    };
    let count = limit.requests_per_unit;
    let count = (!limit.unlimited || count > 0).then(|| {
        let count = count.to_string();
        scalar(path, "requests_per_unit", count, ScalarKind::Number)
    });
    let name = (!limit.name.is_empty()).then(|| text(path, "name", &limit.name));
    let replaces = limit.replaces.iter().enumerate().map(|(index, replaced)| {
        let path = format!("{}[{index}]", below(path, "replaces"));
        map(&path, [Some(text(&path, "name", &replaced.name))])
    });
    let replaces: Vec<Node> = replaces.collect();
    let replaces = (!replaces.is_empty()).then(|| {
        entry(path, "replaces", |path| Node {
            value: Value::List(replaces),
            place: Place::Setting(path),
        })
    });
    let entries = [
        unit.map(|unit| text(path, "unit", &unit)),
        count,
        flag(path, "unlimited", limit.unlimited),
        name,
        replaces,
    ];
    map(path, entries)
}

fn fields(metadata: &Struct) -> Value {
    let field = |(key, value): (&String, &Metadata)| Entry {
        key: key.clone(),
        key_place: Place::Nowhere,
        value: free(value),
    };
    Value::Map(metadata.fields.iter().map(field).collect())
}

/// A value of metadata. How deep they are nested is bounded by the decoder.
fn free(value: &Metadata) -> Node {
    let scalar = |text: String, kind| Value::Scalar(Scalar { text, kind });
    let value = match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::StringValue(text)) => scalar(text.clone(), ScalarKind::Text),
        Some(Kind::NumberValue(number)) => scalar(number.to_string(), ScalarKind::Number),
        Some(Kind::BoolValue(flag)) => scalar(flag.to_string(), ScalarKind::Boolean),
        Some(Kind::StructValue(metadata)) => fields(metadata),
        Some(Kind::ListValue(list)) => Value::List(list.values.iter().map(free).collect()),
    };
    Node {
        value,
        place: Place::Nowhere,
    }
}

fn below(path: &str, field: &str) -> String {
    if path.is_empty() {
        return field.to_owned();
    }
    format!("{path}.{field}")
}

fn map(path: &str, entries: impl IntoIterator<Item = Option<Entry>>) -> Node {
    Node {
        value: Value::Map(entries.into_iter().flatten().collect()),
        place: Place::Setting(path.to_owned()),
    }
}

fn entry(path: &str, field: &str, value: impl FnOnce(String) -> Node) -> Entry {
    let path = below(path, field);
    Entry {
        key: field.to_owned(),
        key_place: Place::Setting(path.clone()),
        value: value(path),
    }
}

fn text(path: &str, field: &str, text: &str) -> Entry {
    scalar(path, field, text.to_owned(), ScalarKind::Text)
}

fn flag(path: &str, field: &str, is_set: bool) -> Option<Entry> {
    let flag = || scalar(path, field, "true".to_owned(), ScalarKind::Boolean);
    is_set.then(flag)
}

fn scalar(path: &str, field: &str, text: String, kind: ScalarKind) -> Entry {
    entry(path, field, |path| Node {
        value: Value::Scalar(Scalar { text, kind }),
        place: Place::Setting(path),
    })
}

#[cfg(test)]
mod tests {
    use tidegate::rules::{RuleSet, RuleSettings};
    use tidegate_testkit_xds::{descriptor, domain, limited, per};

    use tidegate_codec::grpc::proto::rate_limit_config::ReplacedLimit;

    use super::*;

    fn read(domains: &[ConfiguredDomain]) -> Result<RuleSet, Vec<String>> {
        let rules = RuleSet::from_descriptors(&documents(domains), &RuleSettings::default());
        rules.map_err(|problems| problems.errors().map(named).collect())
    }

    #[test]
    fn the_order_of_the_server_does_not_matter() {
        let hour = || per(3, Unit::Hour);
        let domains = |is_reversed: bool| {
            let mut below = vec![limited("b", "", hour()), limited("b", "x", hour())];
            let mut above = vec![limited("z", "", hour())];
            if is_reversed {
                below.reverse();
                above.insert(0, descriptor("a", "1", below));
            } else {
                above.push(descriptor("a", "1", below));
            }
            let mut domains = vec![domain("one", above), domain("two", [])];
            if is_reversed {
                domains.reverse();
            }
            sort(&mut domains);
            read(&domains).unwrap().descriptors().cloned()
        };
        assert_eq!(domains(false), domains(true));
        assert!(domains(true).is_some());
    }

    #[test]
    fn problems_name_the_resource_and_the_field_in_the_order_of_the_server() {
        let replacing = |name: &str| {
            let mut limit = per(1, Unit::Day);
            limit.name = "own".to_owned();
            limit.replaces.push(ReplacedLimit::default());
            limit.replaces[0].name = name.to_owned();
            limit
        };
        let unlimited = ConfiguredLimit {
            unlimited: true,
            ..per(0, Unit::Day)
        };
        let odd = ConfiguredLimit {
            unit: 99,
            ..per(1, Unit::Day)
        };
        #[rustfmt::skip]
        let table = [
            (limited("b", "", per(1, Unit::Unknown)),   "descriptors[0].rate_limit"),
            (limited("b", "", odd),                     "descriptors[0].rate_limit.unit"),
            (limited("b", "", unlimited),               "descriptors[0].rate_limit.unit"),
            (limited("b", "", replacing("")),           "descriptors[0].rate_limit.replaces[0]"),
            (limited("b", "", replacing("own")),        "descriptors[0].rate_limit.replaces[0]"),
            (limited("", "x", per(1, Unit::Day)),       "descriptors[0].key"),
            (descriptor("a", "", []),                   "descriptors[1]"),
        ];
        for (wrong, field) in table {
            let good = limited("a", "", per(1, Unit::Day));
            let problems = read(&[domain("edge", [wrong, good])]).unwrap_err();
            assert_eq!(problems.len(), 1, "{problems:?}");
            let begins = format!("resource `edge`, field `{field}`: ");
            assert!(problems[0].starts_with(&begins), "{problems:?}");
        }
        let nameless = ConfiguredDomain {
            domain: String::new(),
            ..domain("edge", [])
        };
        let problems = read(&[nameless]).unwrap_err();
        assert!(problems[0].starts_with("resource `edge`, field `domain`: "));
    }

    #[test]
    fn every_field_is_read() {
        let fields = [
            (
                "tier".to_owned(),
                Metadata {
                    kind: Some(Kind::NumberValue(2.0)),
                },
            ),
            (
                "on".to_owned(),
                Metadata {
                    kind: Some(Kind::BoolValue(true)),
                },
            ),
            (
                "name".to_owned(),
                Metadata {
                    kind: Some(Kind::StringValue("7".to_owned())),
                },
            ),
        ];
        let mut limit = per(5, Unit::Week);
        limit.name = "weekly".to_owned();
        let full = ConfiguredDescriptor {
            shadow_mode: true,
            detailed_metric: true,
            quota_mode: true,
            metadata: Some(Struct {
                fields: fields.into_iter().collect(),
            }),
            ..limited("k", "*", limit)
        };
        let rules = read(&[domain("edge", [full])]).unwrap();
        assert!(rules.warnings().is_empty(), "{:?}", rules.warnings());
        let rule = rules.iter().next().unwrap().written().clone();
        assert_eq!(rule["rate_limit"]["requests_per_unit"], 5);
        assert_eq!(rule["rate_limit"]["unit"], "week");
        assert_eq!(rule["rate_limit"]["name"], "weekly");
        assert_eq!(rule["descriptor"][0]["value"], "*");
        assert_eq!(
            (&rule["mode"], &rule["quota_mode"]),
            (&"shadow".into(), &true.into())
        );
        assert_eq!(
            rule["metadata"],
            serde_json::json!({"tier": 2, "on": true, "name": "7"})
        );
    }

    #[test]
    fn what_is_no_message_is_named() {
        let good = domain("edge", []).encode_to_vec();
        let resources = [good.into(), vec![0xff].into()];
        let problem = decoded(&resources).unwrap_err();
        assert!(
            problem.starts_with("resource 1 is no RateLimitConfig"),
            "{problem}"
        );
    }
}
