//! Whatever a server answers, reading it fails and nothing else.

use proptest::prelude::*;
use redis::Value;

use super::*;
use crate::wire::{BadReply, decode};

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        Just(Value::Okay),
        any::<i64>().prop_map(Value::Int),
        any::<u8>().prop_map(|number| Value::Int(number.into())),
        any::<f64>().prop_map(Value::Double),
        prop::collection::vec(any::<u8>(), 0..8).prop_map(Value::BulkString),
        ".{0,8}".prop_map(Value::SimpleString),
    ];
    leaf.prop_recursive(3, 64, 10, |inner| {
        prop::collection::vec(inner, 0..10).prop_map(Value::Array)
    })
}

proptest! {
    #[test]
    fn a_reply_is_refused_or_answers_each_step(reply in any_value(), answer in any_value()) {
        let (scope, limit) = (Scope::new("s"), limit("1/minute"));
        let charges = [charging(&scope, &limit, "key", 1)];
        let request = Request::new(&charges);
        let lease = PermitId::from_u128(1);
        let steps = [
            LuaStep::charge(&keys(), &plan(&request)),
            LuaStep::release(&keys(), lease),
            LuaStep::forget(&plan(&Request::new(&[charging(&scope, &limit, "key", 0)]))),
        ];
        for step in &steps {
            let answered = Value::Array(vec![Value::Int(5), answer.clone()]);
            for reply in [reply.clone(), answered] {
                if let Ok((_, answers)) = decode(&[step], &reply) {
                    prop_assert_eq!(answers.len(), 1);
                }
            }
        }
    }
}

#[test]
fn a_reply_of_another_length_is_refused() {
    let (scope, limit) = (Scope::new("s"), limit("1/minute"));
    let charges = [charging(&scope, &limit, "key", 1)];
    let step = LuaStep::charge(&keys(), &plan(&Request::new(&charges)));
    for reply in [
        vec![],
        vec![Value::Int(1)],
        vec![Value::Int(-1), Value::Array(vec![])],
    ] {
        assert_eq!(decode(&[&step], &Value::Array(reply)).err(), Some(BadReply));
    }
}
