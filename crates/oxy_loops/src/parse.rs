//! Reads the text form of kernels (see `print`). It checks syntax only; `verify` checks meaning.

use crate::{
    kernel::{Body, Dim, DimKind, Index, Kernel, Param, Phase, Reduction, Split, Store, V},
    scalar::{Expr, ReduceOp, ScalarOp, Ty},
};
use oxy_graph::DType;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ParseError {
    /// From 1.
    pub line: usize,
    pub what: String,
}

type Parse<T> = Result<T, String>;

/// Parses one kernel. Blank lines and `#` comments are skipped.
pub fn parse(text: &str) -> Result<Kernel, ParseError> {
    let mut kernels = parse_all(text)?;
    match kernels.len() {
        1 => Ok(kernels.swap_remove(0)),
        n => Err(ParseError { line: 1, what: format!("{n} kernels where one is needed") }),
    }
}

/// Parses any number of kernels.
pub fn parse_all(text: &str) -> Result<Vec<Kernel>, ParseError> {
    let mut kernels = Vec::new();
    let mut open: Option<Kernel> = None;
    let mut last = 0;
    for (i, line) in text.lines().enumerate() {
        last = i + 1;
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        let fail = |what| ParseError { line: i + 1, what };
        match (&mut open, line) {
            (None, _) => open = Some(start(line).map_err(fail)?),
            (Some(_), "end") => kernels.extend(open.take()),
            (Some(kernel), _) => parse_line(kernel, line).map_err(fail)?,
        }
    }
    match open {
        Some(_) => Err(ParseError { line: last, what: "no `end`".into() }),
        None => Ok(kernels),
    }
}

fn start(line: &str) -> Parse<Kernel> {
    let name = line.strip_prefix("kernel ").ok_or("`kernel <name>` is needed")?;
    Ok(Kernel {
        name: name.trim().to_string(),
        params: Vec::new(),
        dims: Vec::new(),
        vector_dim: None,
        phases: Vec::new(),
        slots: Vec::new(),
        split: Split::Outer,
    })
}

fn parse_line(kernel: &mut Kernel, line: &str) -> Parse<()> {
    match line {
        "loop" => kernel.phases.push(Phase::Loop(Body::default())),
        "point" => kernel.phases.push(Phase::Point(Body::default())),
        _ => {
            let dims = kernel.dims.len();
            match kernel.phases.last_mut() {
                None => header(kernel, line)?,
                Some(Phase::Loop(body) | Phase::Point(body)) => statement(body, dims, line)?,
            }
        }
    }
    Ok(())
}

fn header(kernel: &mut Kernel, line: &str) -> Parse<()> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["vector", d] => kernel.vector_dim = Some(numbered('d', d)?),
        ["split", "outer"] => kernel.split = Split::Outer,
        ["split", "vector"] => kernel.split = Split::Vector,
        [p, dtype, ref rest @ ..] if p.starts_with('p') => {
            in_order('p', p, kernel.params.len())?;
            let written = match rest {
                [] => false,
                ["written"] => true,
                _ => return Err(format!("unknown attribute in {line:?}")),
            };
            kernel.params.push(Param { dtype: parse_dtype(dtype)?, written });
        }
        [d, kind, extent] if d.starts_with('d') => {
            in_order('d', d, kernel.dims.len())?;
            let kind = match kind {
                "parallel" => DimKind::Parallel,
                "reduce" => DimKind::Reduce,
                _ => return Err(format!("unknown kind of dimension {kind:?}")),
            };
            kernel.dims.push(Dim { extent: int(extent)?, kind });
        }
        [s, ty] if s.starts_with('s') => {
            in_order('s', s, kernel.slots.len())?;
            kernel.slots.push(parse_ty(ty)?);
        }
        _ => return Err(format!("unknown line {line:?}")),
    }
    Ok(())
}

fn statement(body: &mut Body, dims: usize, line: &str) -> Parse<()> {
    if let Some((target, value)) = line.split_once(" <- ") {
        if target.starts_with('p') {
            let (param, index) = place(target, dims)?;
            body.stores.push(Store { param, index, value: v(value)? });
            return Ok(());
        }
        let (op, value) = value.split_once(' ').ok_or("a reduction needs an operator and a value")?;
        let op = ReduceOp::from_name(op).ok_or_else(|| format!("unknown reduction {op:?}"))?;
        body.reductions.push(Reduction { op, value: v(value)?, slot: numbered('s', target)? });
        return Ok(());
    }
    let (target, value) = line.split_once(" = ").ok_or_else(|| format!("unknown statement {line:?}"))?;
    if target.starts_with('s') {
        body.sets.push((numbered('s', target)?, v(value)?));
        return Ok(());
    }
    let (name, ty) = target.split_once(' ').ok_or("a value needs a type")?;
    in_order('v', name, body.exprs.len())?;
    body.exprs.push(expression(value, dims)?);
    body.types.push(parse_ty(ty)?);
    Ok(())
}

fn expression(text: &str, dims: usize) -> Parse<Expr> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let rest = rest.trim();
    Ok(match word {
        "float" => Expr::Float(float(rest)?),
        "int" => Expr::Int(int(rest)?),
        "iota" => Expr::Iota(numbered('d', rest)?),
        "slot" => Expr::Slot(numbered('s', rest)?),
        "load" => {
            let (target, mask) = match rest.split_once(" if ") {
                Some((target, mask)) => (target, Some(v(mask)?)),
                None => (rest, None),
            };
            let (param, index) = place(target, dims)?;
            Expr::Load { param, index, mask }
        }
        "cast" => Expr::Cast(v(rest)?),
        "round" => {
            let (dtype, value) = rest.split_once(' ').ok_or("round needs a dtype and a value")?;
            Expr::Round(parse_dtype(dtype)?, v(value)?)
        }
        _ => {
            let op = ScalarOp::from_name(word).ok_or_else(|| format!("unknown operator {word:?}"))?;
            Expr::Op(op, rest.split_whitespace().map(v).collect::<Parse<_>>()?)
        }
    })
}

/// `p0[3 + 4*d0 + d1 + 64*v2]`
fn place(text: &str, dims: usize) -> Parse<(u32, Index)> {
    let (param, terms) = text.strip_suffix(']').and_then(|t| t.split_once('[')).ok_or("`p<n>[…]` is needed")?;
    let mut index = Index { strides: std::iter::repeat_n(0, dims).collect(), ..Index::default() };
    for term in terms.split(" + ") {
        let (factor, name) = term.split_once('*').unwrap_or(("1", term));
        if name.starts_with('d') {
            let d: u32 = numbered('d', name)?;
            let stride = index.strides.get_mut(d as usize).ok_or_else(|| format!("no dimension {name}"))?;
            *stride = int(factor)?;
        } else if name.starts_with('v') {
            index.indirect.push((v(name)?, int(factor)?));
        } else {
            index.base = int(term)?;
        }
    }
    Ok((numbered('p', param)?, index))
}

fn numbered(prefix: char, text: &str) -> Parse<u32> {
    let digits = text.trim().strip_prefix(prefix).ok_or_else(|| format!("`{prefix}<n>` is needed, not {text:?}"))?;
    digits.parse().map_err(|_| format!("not a number: {digits:?}"))
}

fn in_order(prefix: char, text: &str, expected: usize) -> Parse<()> {
    let n = numbered(prefix, text)?;
    if n as usize == expected { Ok(()) } else { Err(format!("{text} where {prefix}{expected} is next")) }
}

fn v(text: &str) -> Parse<V> {
    numbered('v', text).map(V)
}

fn int(text: &str) -> Parse<i64> {
    text.trim().parse().map_err(|_| format!("not an integer: {text:?}"))
}

fn float(text: &str) -> Parse<u64> {
    if let Some(bits) = text.strip_prefix("nan:") {
        return u64::from_str_radix(bits, 16).map_err(|_| format!("not NaN bits: {bits:?}"));
    }
    text.parse::<f64>().map(f64::to_bits).map_err(|_| format!("not a float: {text:?}"))
}

fn parse_dtype(name: &str) -> Parse<DType> {
    DType::from_name(name).ok_or_else(|| format!("unknown dtype {name:?}"))
}

fn parse_ty(name: &str) -> Parse<Ty> {
    Ty::from_name(name.trim()).ok_or_else(|| format!("unknown type {name:?}"))
}
