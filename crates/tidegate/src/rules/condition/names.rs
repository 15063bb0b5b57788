//! Which attributes a condition reads.

use cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, operators};

/// Something that a condition reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConditionRead<'e> {
    /// The attribute of this name: `attributes["host"]` or `attributes.host`.
    Name(&'e str),
    /// Any attribute: the name is computed.
    Any,
    /// The cost, or the variable of a loop.
    Other,
}

/// The attributes that a condition reads. `None` if they are not known, or if it reads the cost.
pub(super) fn names_in(root: &IdedExpr) -> Option<Vec<&str>> {
    let name = |read| match read {
        ConditionRead::Name(name) => Some(name),
        ConditionRead::Any | ConditionRead::Other => None,
    };
    reads_in(root).map(name).collect()
}

/// Everything that a condition reads, in no order, possibly with duplicates.
pub(super) fn reads_in(root: &IdedExpr) -> impl Iterator<Item = ConditionRead<'_>> {
    let mut open = vec![root];
    std::iter::from_fn(move || {
        while let Some(node) = open.pop() {
            if let Some(read) = read_by(node, &mut open) {
                return Some(read);
            }
        }
        None
    })
}

/// The read of this node alone. Adds the child nodes that may read more to `open`.
fn read_by<'e>(node: &'e IdedExpr, open: &mut Vec<&'e IdedExpr>) -> Option<ConditionRead<'e>> {
    match &node.expr {
        Expr::Select(select) if is_attributes(&select.operand) => {
            return Some(ConditionRead::Name(select.field.as_str()));
        }
        Expr::Select(select) => open.push(&select.operand),
        Expr::Call(call) => match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::INDEX, [map, name]) | (operators::IN, [name, map])
                if is_attributes(map) =>
            {
                return Some(text_of(name).map_or(ConditionRead::Any, ConditionRead::Name));
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
        Expr::Comprehension(each) => open.extend([
            &each.iter_range,
            &each.accu_init,
            &each.loop_cond,
            &each.loop_step,
            &each.result,
        ]),
        Expr::Literal(_) | Expr::Unspecified => {}
        Expr::Ident(_) if is_attributes(node) => return Some(ConditionRead::Any),
        Expr::Ident(_) => return Some(ConditionRead::Other),
        Expr::Struct(_) => return Some(ConditionRead::Any),
    }
    None
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
