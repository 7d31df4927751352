//! What ATen operators do besides computing their results.
//!
//! `aten_effects.txt` lists the overloads that take or give tensors (out variants aside), made from torch 2.15's
//! schemas: `name.overload [w<args>] [v<args>] [r]`, where `w` are the positions of arguments it writes, `v` of those
//! its results may alias, and `r` says that it draws random numbers. An operator that is not listed may do anything.

use std::cmp::Ordering;

const TABLE: &str = include_str!("aten_effects.txt");

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Positions (in schema order) of arguments that are written.
    pub writes: Vec<u32>,
    /// Positions of arguments that results may share storage with.
    pub aliases: Vec<u32>,
    pub random: bool,
}

impl Effects {
    /// Without any effect: may be removed, repeated and reordered.
    pub fn is_pure(&self) -> bool {
        self.writes.is_empty() && self.aliases.is_empty() && !self.random
    }
}

/// The effects of `aten.name.overload`; None if the operator is unknown.
pub fn effects(target: &str) -> Option<Effects> {
    let name = target.strip_prefix("aten.")?;
    let line = find(name)?;
    let mut effects = Effects::default();
    for word in line.split(' ').skip(1) {
        let positions = || word[1..].split(',').filter_map(|p| p.parse().ok()).collect();
        match word.as_bytes().first() {
            Some(b'w') => effects.writes = positions(),
            Some(b'v') => effects.aliases = positions(),
            _ => effects.random = true,
        }
    }
    Some(effects)
}

/// Binary search over the sorted lines, without an index in memory.
fn find(name: &str) -> Option<&'static str> {
    let (mut low, mut high) = (0, TABLE.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let start = TABLE[low..middle].rfind('\n').map_or(low, |i| low + i + 1);
        let end = TABLE[middle..].find('\n').map_or(TABLE.len(), |i| middle + i);
        let line = &TABLE[start..end];
        let key = line.split(' ').next().unwrap_or(line);
        match name.as_bytes().cmp(key.as_bytes()) {
            Ordering::Equal => return Some(line),
            Ordering::Less => high = start,
            Ordering::Greater => low = end + 1,
        }
    }
    None
}

/// Operators that may raise depending on data, not metadata: they run even when nobody reads their results.
pub fn may_raise(target: &str) -> bool {
    let name = target.strip_prefix("aten.").unwrap_or(target).split('.').next().unwrap_or("");
    const PREFIXES: &[&str] = &["_assert", "index", "linalg", "_linalg", "nll_loss", "scatter", "sparse", "_sparse"];
    const NAMES: &[&str] = &[
        "_embedding_bag",
        "_local_scalar_dense",
        "bincount",
        "cholesky",
        "cholesky_inverse",
        "cross_entropy_loss",
        "embedding",
        "equal",
        "floor_divide",
        "gather",
        "histc",
        "inverse",
        "is_nonzero",
        "item",
        "masked_scatter",
        "multinomial",
        "one_hot",
        "put",
        "repeat_interleave",
        "remainder",
        "fmod",
        "div",
        "segment_reduce",
        "take",
    ];
    PREFIXES.iter().any(|p| name.starts_with(p)) || NAMES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_every_line_and_nothing_else() {
        for line in TABLE.lines() {
            let name = line.split(' ').next().unwrap_or("");
            assert!(effects(&format!("aten.{name}")).is_some(), "{name}");
        }
        assert_eq!(effects("aten.no_such.default"), None);
        assert_eq!(effects("aten."), None);
        assert_eq!(effects("mylib.op.default"), None);
    }

    #[test]
    fn reads_effects() {
        assert_eq!(effects("aten.add_.Tensor").map(|e| e.writes), Some(vec![0]));
        assert_eq!(effects("aten.view.default").map(|e| e.aliases), Some(vec![0]));
        assert!(effects("aten.bernoulli.p").is_some_and(|e| e.random));
        assert!(effects("aten.mul.Tensor").is_some_and(|e| e.is_pure()));
        assert_eq!(effects("aten.native_batch_norm.default").map(|e| e.writes), Some(vec![3, 4]));
    }
}
