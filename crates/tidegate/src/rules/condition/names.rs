//! Which attributes a condition reads.

use cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, operators};

/// The attributes that a condition reads; none if that cannot be said, and if it reads the cost.
pub(super) fn names_in(root: &IdedExpr) -> Option<Vec<&str>> {
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
