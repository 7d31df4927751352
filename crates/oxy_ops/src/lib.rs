//! The operator registry: one row for each operator.
//!
//! A row says how an operator is computed; whatever it leaves out has a safe meaning (`OpDef::FALLBACK`): the operator
//! is called. So an operator without any row works, and rows make it fast. Rows live in `ops/<family>.rs`.
#![forbid(unsafe_code)]

pub mod def;
pub mod effects;
pub mod expr;
pub mod ops;
pub mod promote;
pub mod schema;

pub use def::{Body, OpCx, OpDef};
pub use effects::{Effects, effects, may_raise};
pub use expr::{Expr, Exprs, Kind, T};

/// The row of an ATen overload, `aten.add.Tensor`; in-place forms find the row of the functional one.
pub fn lookup(target: &str) -> Option<&'static OpDef> {
    let full = target.strip_prefix("aten.")?;
    let (name, overload) = full.split_once('.')?;
    let base = name.strip_suffix('_').filter(|base| !base.is_empty() && !base.ends_with('_'));
    let find = |name: &str, in_place: bool| {
        let has_name = |def: &&OpDef| {
            let rest = def.schema.strip_prefix(name);
            let rest = match overload {
                "default" => rest,
                _ => rest.and_then(|r| r.strip_prefix('.')?.strip_prefix(overload)),
            };
            rest.is_some_and(|r| r.starts_with('(')) && (!in_place || def.in_place)
        };
        ops::FAMILIES.iter().flat_map(|family| family.iter()).find(has_name)
    };
    find(name, false).or_else(|| base.and_then(|base| find(base, true)))
}

/// Whether an operator's results are views of its first argument.
pub fn is_view(target: &str) -> bool {
    lookup(target).is_some_and(|def| matches!(def.body, Body::View))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_rows_and_in_place_forms() {
        assert!(lookup("aten.relu.default").is_some());
        assert!(lookup("aten.relu_.default").is_some());
        assert!(lookup("aten.add_.Tensor").is_some());
        assert!(lookup("aten._softmax.default").is_some());
        assert!(lookup("aten.add.no_such").is_none());
        assert!(lookup("aten.lt_.Tensor").is_none());
        assert!(lookup("aten.no_such.default").is_none());
    }

    #[test]
    fn rows_are_unique_and_known_to_torch() {
        let mut seen = std::collections::BTreeSet::new();
        for def in ops::FAMILIES.iter().flat_map(|family| family.iter()) {
            let target = schema::target(def.schema);
            assert!(seen.insert(target.clone()), "two rows for {target}");
            assert!(
                effects(&target).is_some_and(|e| !e.random && e.writes.is_empty() || target.contains("batch_norm")),
                "{target}"
            );
        }
    }
}
