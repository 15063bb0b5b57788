//! How much work a condition is, by its expression.

use cel::common::ast::{EntryExpr, Expr, IdedExpr};

use crate::rules::work::ConditionWork;

impl ConditionWork {
    /// Walks the expression without recursion.
    pub(super) fn measure(root: &IdedExpr) -> Self {
        let (mut operations, mut has_loop) = (0, false);
        let mut open = vec![root];
        while let Some(node) = open.pop() {
            operations += 1;
            has_loop |= matches!(node.expr, Expr::Comprehension(_));
            push_children(node, &mut open);
        }
        Self {
            operations,
            has_loop,
        }
    }
}

/// Adds the nodes directly below one.
pub(super) fn push_children<'e>(node: &'e IdedExpr, open: &mut Vec<&'e IdedExpr>) {
    match &node.expr {
        Expr::Call(call) => {
            open.extend(&call.args);
            open.extend(call.target.as_deref());
        }
        Expr::Comprehension(inner) => open.extend([
            &inner.iter_range,
            &inner.accu_init,
            &inner.loop_cond,
            &inner.loop_step,
            &inner.result,
        ]),
        Expr::List(list) => open.extend(&list.elements),
        Expr::Select(select) => open.push(&select.operand),
        Expr::Map(map) => {
            for entry in &map.entries {
                if let EntryExpr::MapEntry(entry) = &entry.expr {
                    open.extend([&entry.key, &entry.value]);
                }
            }
        }
        Expr::Struct(_) | Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
    }
}
