//! Which attributes a condition reads.

use cel::common::ast::{Expr, IdedExpr, LiteralValue, operators};

use super::work::push_children;

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
        Expr::Call(call) => {
            if let (operators::INDEX, [map, name]) | (operators::IN, [name, map]) =
                (call.func_name.as_str(), call.args.as_slice())
                && is_attributes(map)
            {
                return Some(text_of(name).map_or(ConditionRead::Any, ConditionRead::Name));
            }
        }
        Expr::Ident(_) if is_attributes(node) => return Some(ConditionRead::Any),
        Expr::Ident(_) => return Some(ConditionRead::Other),
        Expr::Struct(_) => return Some(ConditionRead::Any),
        _ => {}
    }
    push_children(node, open);
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
