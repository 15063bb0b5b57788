//! Whether a client decides by itself that an exception holds, because all that it reads is in the client's
//! hands.

use cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, operators};

use super::matching::{HEADER, Match};

/// Whether an item of `except` reads headers or the host, and nothing that a client cannot write.
///
/// A client writes the path and the method, too, but the server acts on these: they do not count either
/// way.
pub(super) fn is_client_written(item: &Match) -> bool {
    if !item.ip.is_empty() {
        return false;
    }
    let in_condition = match &item.when {
        Some(condition) => match names_in(condition.expression()) {
            Some(names) => names,
            None => return false,
        },
        None => Vec::new(),
    };
    let host = (!item.host.is_empty()).then_some("host");
    let attributes = item.attributes.iter().map(|(name, _)| name.as_str());
    let mut names = attributes
        .chain(host)
        .chain(in_condition)
        .filter(|name| !matches!(*name, "path" | "method"))
        .peekable();
    names.peek().is_some() && names.all(|name| name == "host" || name.starts_with(HEADER))
}

/// The attributes that a condition reads; none if that cannot be said, and if it reads the cost.
fn names_in(root: &IdedExpr) -> Option<Vec<&str>> {
    let mut names = Vec::new();
    let mut open = vec![root];
    while let Some(node) = open.pop() {
        match &node.expr {
            Expr::Select(select) if is_attributes(&select.operand) => {
                names.push(select.field.as_str());
            }
            Expr::Select(select) => open.push(&select.operand),
            Expr::Call(call) => match (call.func_name.as_str(), call.args.as_slice()) {
                (operators::INDEX, [map, name]) | (operators::IN, [name, map])
                    if is_attributes(map) =>
                {
                    names.push(text_of(name)?);
                }
                (_, args) => {
                    open.extend(args);
                    open.extend(call.target.as_deref());
                }
            },
            Expr::List(list) => open.extend(&list.elements),
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        open.extend([&entry.key, &entry.value]);
                    }
                }
            }
            Expr::Literal(_) | Expr::Unspecified => {}
            // All attributes, or the cost.
            Expr::Ident(_) | Expr::Comprehension(_) | Expr::Struct(_) => return None,
        }
    }
    Some(names)
}

fn is_attributes(node: &IdedExpr) -> bool {
    matches!(&node.expr, Expr::Ident(name) if name == "attributes")
}

fn text_of(node: &IdedExpr) -> Option<&str> {
    match &node.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::condition::Condition;
    use super::*;

    #[test]
    fn only_headers_and_the_host_are_in_the_hands_of_a_client() {
        #[rustfmt::skip]
        let table = [
            (r#"attributes["header.x-a"] == "1""#,                                       true),
            (r#"has(attributes.host) && attributes.host == "a""#,                        true),
            (r#""header.x-a" in attributes"#,                                            true),
            (r#"attributes["header.x-a"].startsWith("b") && attributes.path == "/c""#,   true),
            (r#"attributes.path == "/c" && attributes.method == "GET""#,                 false),
            (r#"attributes["header.x-a"] == "1" && attributes.user_id == "u""#,          false),
            (r#"attributes["header.x-a"] == "1" && cost > 1"#,                           false),
            (r#"attributes.exists(name, name == "header.x-a")"#,                         false),
            (r#"attributes[attributes["header.x-a"]] == "1""#,                           false),
        ];
        for (text, expected) in table {
            let item = Match {
                when: Some(Condition::parse(text).unwrap()),
                ..Match::default()
            };
            assert_eq!(is_client_written(&item), expected, "{text}");
        }
    }
}
